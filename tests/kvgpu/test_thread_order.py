"""Eight threads over shared prefixes: what they did is what some order of the reference allows (R12.1); the lock knows which."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from kvgpu.adapter.system import Implementation
from kvspec.config import LevelKind
from kvspec.harness.systems import find_system
from kvspec.observation import PageStatus
from kvspec.ops import MakeBatch, Operation, Publish, SeedPrefix
from kvspec.system import Setup
from tests.kvgpu.driving import BLOCKS, CONFIG, ROWS, STORY, STREAMS, Driver, Log, end_state

THREADS = 8
OPERATIONS = 250
"""Of each thread."""
FIRST: tuple[Operation, ...] = (
    SeedPrefix(tokens=STORY[:10], level=LevelKind.GPU),
    SeedPrefix(tokens=STORY[:14], level=LevelKind.HOST),
    MakeBatch(name="rows", rows=ROWS, blocks=BLOCKS),
)


@pytest.fixture
def often_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often_switching")
@pytest.mark.parametrize("seed", range(2))
def test_what_eight_threads_did_is_an_order_of_the_reference(seed: int) -> None:
    setup = Setup(CONFIG, STREAMS, {"device": "sim"})
    reference, built = find_system("kvref")(setup), find_system("kvgpu")(setup)
    assert isinstance(built, Implementation)
    for op in FIRST:
        assert built.apply(op).error is None
    run, log = built._run, Log()
    manager, batch = run.manager, run.names.batches["rows"]
    drivers = [Driver(f"t{n}.", manager, batch, run.names.streams, log, 100 * seed + n) for n in range(THREADS)]
    failures: list[BaseException] = []
    finished = threading.Event()
    reads: Counter[str] = Counter()

    def drive(driver: Driver) -> None:
        try:
            driver.run(OPERATIONS)
        except BaseException as error:
            failures.append(error)

    def look(name: str) -> None:
        try:
            while not finished.is_set():
                with manager.shared():
                    infos = manager.page_infos()
                    assert all((info.status is PageStatus.LOCKED) == bool(info.owners) for info in infos)
                    assert len({(info.level, info.slot, info.group) for info in infos}) == len(infos)
                    dirty = batch.dirty_rows()
                    assert dirty == batch.dirty_rows()
                reads[name] += 1
        except BaseException as error:
            failures.append(error)

    manager.lock.hook = log.hook
    writers = [threading.Thread(target=drive, args=(driver,)) for driver in drivers]
    readers = [threading.Thread(target=look, args=(f"reader {n}",)) for n in range(2)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    finished.set()
    for thread in readers:
        thread.join()
    if failures:
        raise failures[0]
    log.do(Publish(batch="rows"), lambda: batch.publish(run.names.streams["exec"]))
    manager.lock.hook = None

    done = Counter(entry.op.verb for entry in log.entries)
    assert sum(done.values()) >= THREADS * OPERATIONS
    assert len(done) == 11, f"operations that never ran: {done}"
    assert all(entry.taken == 1 for entry in log.entries), "an operation that took the lock twice is no operation"
    assert all(reads[f"reader {n}"] > 10 for n in range(2)), f"readers made no progress beside the writers: {reads}"
    switches = sum(
        getattr(one.op, "request", "")[:2] != getattr(two.op, "request", "")[:2]
        for one, two in zip(log.entries, log.entries[1:], strict=False)
    )
    assert switches > len(log.entries) // 10, "the threads ran one after the other"

    for op in FIRST:
        reference.apply(op)
    for number, entry in enumerate(log.entries):
        outcome = reference.apply(entry.op)
        answer = outcome.value if outcome.error is None else outcome.error
        assert answer == entry.answer, f"operation {number}, {entry.op}: {entry.answer}, but {answer} {outcome.message}"
    wanted, got = end_state(reference.observe()), end_state(built.observe())
    # What a page holds that the reference says nobody has written is nobody's affair.
    got["payloads"] = {page: bytes_ for page, bytes_ in got["payloads"].items() if page in wanted["payloads"]}
    assert len(wanted["payloads"]) > 10
    for what, value in wanted.items():
        assert got[what] == value, what
    assert built.observe().faults == ()
    built.close()
    reference.close()
