"""The executor as a Python caller has it: connector, consumer, messages, teardown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Stream
from kvgpu.device.sim import SimDevice
from kvgpu.errors import InvalidArgument, LogicError, OutOfRange
from kvgpu.locks import Mode, Moment
from kvgpu.manager import Manager
from kvgpu.requests.request import Request, Snapshot
from kvgpu.serving.executor import Executor, Prepared, RequestOutcome, Scheduled, Turn, admit_generation, dense_offsets
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

SPARSE = (BufferConfig(role="key", bytes=64, sparse=True), BufferConfig(role="value", bytes=64, sparse=True))
CONFIG = ManagerConfig(
    tokens_per_block=4,
    levels=(LevelConfig(kind=LevelKind.GPU, slots=8), LevelConfig(kind=LevelKind.HOST, slots=8)),
    layers=(
        LayerConfig(name="main", buffers=SPARSE),
        LayerConfig(name="more", buffers=SPARSE),
        LayerConfig(name="index", buffers=(BufferConfig(role="key", bytes=16),)),
    ),
)


@dataclass(slots=True)
class Scene:
    """A manager, a batch of two rows with its members, a stream, and the turns that the consumer has had."""

    manager: Manager
    batch: Batch
    stream: Stream
    a: Request
    b: Request
    turns: list[Turn] = field(default_factory=list)

    def executor(self, refuses: str = "") -> Executor:
        return Executor(
            self.manager,
            self.batch,
            self.stream,
            self.turns.append,
            lambda prepared: prepared.request.name not in refuses.split(),
        )


@pytest.fixture
def scene() -> Iterator[Scene]:
    device = SimDevice()
    manager = Manager(CONFIG, device)
    batch = Batch(manager, "rows", rows=2, blocks=3)
    a, b = manager.create("a"), manager.create("b")
    batch.add(a)
    batch.add(b)
    yield Scene(manager, batch, device.stream("exec"), a, b)
    device.settle()
    assert device.faults() == ()


def test_the_consumer_gets_who_runs_and_their_offsets(scene: Scene) -> None:
    executor = scene.executor(refuses="b")
    outcomes = executor.iterate([Scheduled(scene.a, 8, 5), Scheduled(scene.b, 4)], layers=["main", "more", "index"])
    assert outcomes == {"a": RequestOutcome.RAN, "b": RequestOutcome.REFUSED}
    assert list(outcomes) == ["a", "b"]
    (turn,) = scene.turns
    assert (turn.batch, turn.stream, turn.running) == (scene.batch, scene.stream, (scene.a,))
    slots = scene.a.indices(0)
    assert turn.offsets["main"].by_request.keys() == {"a"}
    assert turn.offsets["main"].by_request["a"].tolist() == (4 * slots).tolist()
    assert turn.offsets["more"].by_request["a"].tolist() == (4 * slots + 2).tolist()
    assert turn.offsets["index"].by_request["a"].tolist() == scene.a.indices(1).tolist()


def test_without_layers_no_offsets_are_built(scene: Scene) -> None:
    scene.executor().iterate([Scheduled(scene.a, 4, 4, decode=False)])
    scene.executor().iterate([Scheduled(scene.a, decode=True)])
    assert scene.a.levels(0).tolist() == [1]
    assert [dict(turn.offsets) for turn in scene.turns] == [{}, {}]


def test_the_guard_names_request_group_and_block_and_says_what_to_do(scene: Scene) -> None:
    executor = scene.executor()
    executor.iterate([Scheduled(scene.a, 12, 8), Scheduled(scene.b, 12, 8)])
    scene.manager.offload(scene.b, [1])
    message = (
        r"^request 'b', group 'main': block 1 is on the host, which dense block offsets cannot address: "
        r"use sparse attention, or bring its history back to the GPU \(R11\.3\)$"
    )
    with pytest.raises(LogicError, match=message):
        executor.iterate([Scheduled(scene.a), Scheduled(scene.b)], layers=["index"])
    with pytest.raises(LogicError, match=message):
        dense_offsets(scene.manager, scene.batch, [scene.a, scene.b])
    assert len(scene.turns) == 1, "the consumer ran although dense attention was refused"
    assert scene.batch.dirty_rows() == ()


@pytest.mark.parametrize(
    ("schedule", "layers", "kind", "message"),
    [
        ("a a", (), InvalidArgument, "request 'a' is scheduled twice: name it once"),
        ("a outside", (), LogicError, "request 'outside' is not in batch 'rows': add it first"),
        ("closed", (), LogicError, "request 'closed' is closed: take it off the schedule"),
        ("a", ("man",), OutOfRange, r"no buffer man\.\?: the manager has main\.key"),
    ],
)
def test_what_is_refused_before_anything_happens(
    scene: Scene, schedule: str, layers: tuple[str, ...], kind: type[Exception], message: str
) -> None:
    outside, closed = scene.manager.create("outside"), scene.manager.create("closed")
    scene.manager.close(closed)
    known = {"a": scene.a, "outside": outside, "closed": closed}
    with pytest.raises(kind, match=message):
        scene.executor().iterate([Scheduled(known[name], 4) for name in schedule.split()], layers)
    assert (scene.a.active, scene.a.capacity, scene.turns) == (False, 0, [])


def test_a_refused_request_that_is_as_it_was_has_its_old_version(scene: Scene) -> None:
    scene.executor().iterate([Scheduled(scene.a, 4, 4), Scheduled(scene.b, 4, 4)])
    versions = scene.a.version, scene.b.version
    outcomes = scene.executor(refuses="a b").iterate([Scheduled(scene.a, 12), Scheduled(scene.b, 4, 4, decode=True)])
    assert set(outcomes.values()) == {RequestOutcome.REFUSED}
    assert scene.a.version == versions[0]
    assert scene.b.version != versions[1], "it is in decode now, whatever the connector said"
    assert (scene.a.capacity, scene.b.capacity) == (4, 4)


def test_the_connector_is_asked_for_prepared_requests_alone_and_without_the_lock(scene: Scene) -> None:
    asked: list[str] = []

    def connector(prepared: Prepared) -> bool:
        # Another thread may use the manager meanwhile; if this one had the lock, that would never end.
        thread = threading.Thread(target=lambda: asked.append(f"{prepared.request.name} {len(scene.manager.requests())}"))
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        return True

    executor = Executor(scene.manager, scene.batch, scene.stream, scene.turns.append, connector)
    assert executor.iterate([Scheduled(scene.a, 40), Scheduled(scene.b, 4)]) == {
        "a": RequestOutcome.WAITING,
        "b": RequestOutcome.RAN,
    }
    assert asked == ["b 2"]


def test_the_connector_sees_where_the_pages_are_and_can_read_them_in_order(scene: Scene) -> None:
    manager, transfer = scene.manager, scene.manager.device.stream("transfer")
    main = manager.layout.groups[0]
    seen: dict[str, dict[str, Snapshot]] = {}

    def connector(prepared: Prepared) -> bool:
        found = seen[prepared.request.name] = prepared.snapshots()
        manager.wait_snapshot(found["main"], transfer)
        for level in (0, 1):  # what a connector that sends the pages away reads
            slots = found["main"].indices[found["main"].levels == level]
            source, reads = manager.pool_memory(level, main.pool_groups[level]), manager.slot_reads
            manager.device.upload(
                transfer, source, 0, target, 0, 64, partial(reads, level, main.pool_groups[level], slots), "sent away, of a user"
            )
        return True

    target = manager.device.allocate("pinned", 64, "sent away")
    executor = Executor(manager, scene.batch, scene.stream, scene.turns.append, connector)
    scene.executor().iterate([Scheduled(scene.a, 12, 8)])
    executor.iterate([Scheduled(scene.a, decode=True), Scheduled(scene.b, 40)])
    assert seen.keys() == {"a"}, "b is waiting, and nobody is asked about it"
    assert seen["a"].keys() == {"main", "index"}
    assert seen["a"]["main"].levels.tolist() == [1, 1, 0]
    assert seen["a"]["main"].eligible == 2
    assert seen["a"]["index"].levels.tolist() == [0, 0, 0]
    for number, group in enumerate(("main", "index")):
        assert seen["a"][group].indices.tolist() == scene.a.indices(number).tolist()


def test_an_error_of_the_connector_ends_the_iteration_before_the_publication(scene: Scene) -> None:
    def broken(_prepared: Prepared) -> bool:
        raise ConnectionError("no peer")

    with pytest.raises(ConnectionError, match="no peer"):
        Executor(scene.manager, scene.batch, scene.stream, scene.turns.append, broken).iterate([Scheduled(scene.a, 4)])
    assert (scene.turns, scene.batch.dirty_rows()) == ([], (0, 1))
    assert scene.a.capacity == 4


def test_nobody_changes_anything_between_the_publication_and_the_reads(scene: Scene) -> None:
    reached = threading.Event()
    order: list[str] = []

    def hook(moment: Moment, mode: Mode) -> None:
        if (moment, mode) == (Moment.WAITING, Mode.EXCLUSIVE):
            reached.set()

    def change() -> None:
        scene.manager.resize(scene.b, 8)
        order.append("change")

    threads: list[threading.Thread] = []

    def consumer(turn: Turn) -> None:
        threads.append(threading.Thread(target=change))
        threads[0].start()
        assert reached.wait(60), "the change did not wait"
        order.append("consumer")
        turn.batch.wait_ready(turn.stream)

    scene.executor().iterate([Scheduled(scene.b, 4)])
    scene.manager.lock.hook = hook
    Executor(scene.manager, scene.batch, scene.stream, consumer).iterate([Scheduled(scene.a, 4)])
    threads[0].join(60)
    assert order == ["consumer", "change"]


def test_teardown_removes_rows_closes_requests_and_frees_the_tables_last(scene: Scene) -> None:
    executor = scene.executor()
    executor.iterate([Scheduled(scene.a, 8, 8), Scheduled(scene.b, 4)])
    table = scene.batch.page_table(0)
    executor.close()
    assert scene.a.closed
    assert scene.b.closed
    assert (scene.a.row, scene.b.row, scene.batch.open) == (None, None, False)
    assert scene.manager.pool_info(0, 0).free == 8
    with pytest.raises(LogicError, match="batch 'rows' is closed: iterate over an open one"):
        executor.iterate([])
    with pytest.raises(LogicError, match="closed"):
        table.check()
    executor.close()


def test_a_request_that_had_no_stream_gets_the_execution_stream_or_the_one_for_new_requests(scene: Scene) -> None:
    other = scene.manager.device.stream("other")
    scene.executor().iterate([Scheduled(scene.a, 4)])
    executor = Executor(scene.manager, scene.batch, scene.stream, scene.turns.append, first_stream=other)
    executor.iterate([Scheduled(scene.a), Scheduled(scene.b, 4)])
    assert scene.a.stream is scene.stream
    assert scene.b.stream is other


def test_admission_takes_either_status(scene: Scene) -> None:
    scene.executor().iterate([Scheduled(scene.a, 8, 8), Scheduled(scene.b, 8, 8)])
    scene.manager.suspend(scene.b)
    assert admit_generation(scene.manager, scene.a, scene.stream)
    assert admit_generation(scene.manager, scene.b, scene.stream)
    assert scene.a.levels(0).tolist() == scene.b.levels(0).tolist() == [1, 1]
