"""The manager's lock: who waits for whom (R12.1). No test sleeps: the lock's hook tells when a thread has reached it (R12.2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest

from kvgpu.device.sim import SimDevice
from kvgpu.locks import LockUpgrade, ManagerLock, Mode, Moment
from kvgpu.manager import Manager
from kvgpu.operations.state import PayloadHook, WriteTarget
from kvgpu.requests.request import Request, Snapshot
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

LONG = 60.0
"""Seconds after which a wait that should have ended has failed."""


class Thread:
    """A thread whose exception is raised where it is joined."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def join(self) -> None:
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the thread never ended"
        if self._error is not None:
            raise self._error


class Waiting:
    """A hook that lets a test wait until so many threads stand in the queue."""

    def __init__(self) -> None:
        self.modes: list[Mode] = []
        self._changed = threading.Condition()

    def __call__(self, moment: Moment, mode: Mode) -> None:
        if moment is Moment.WAITING:
            with self._changed:
                self.modes.append(mode)
                self._changed.notify_all()

    def until(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.modes) >= count, LONG), f"{len(self.modes)} of {count} threads wait"


@contextmanager
def held(taken: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Another thread has the lock inside this block."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with taken():
            inside.set()
            assert leave.wait(LONG)

    thread = Thread(work)
    assert inside.wait(LONG)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def a_manager(payload_hook: PayloadHook | None = None) -> tuple[Manager, Request]:
    """A manager, and an active request of one block."""
    layer = LayerConfig(name="main", buffers=(BufferConfig(role="key", bytes=64, sparse=True),))
    levels = (LevelConfig(kind=LevelKind.GPU, slots=4), LevelConfig(kind=LevelKind.HOST, slots=4))
    manager = Manager(ManagerConfig(tokens_per_block=2, levels=levels, layers=(layer,)), SimDevice(), payload_hook=payload_hook)
    request = manager.create("a")
    assert manager.resume(request, manager.device.stream("exec"))
    assert manager.resize(request, 2)
    return manager, request


def test_a_snapshot_waits_while_another_thread_is_in_a_shared_call() -> None:
    manager, request = a_manager()
    waiting = manager.lock.hook = Waiting()
    taken: list[Snapshot] = []
    with held(manager.shared):
        thread = Thread(lambda: taken.append(manager.snapshot(request, 0)))
        waiting.until(1)
        assert waiting.modes == [Mode.EXCLUSIVE]
        assert taken == []
    thread.join()
    assert taken[0].levels.tolist() == [0]
    assert waiting.modes == [Mode.EXCLUSIVE]


def test_a_read_waits_while_a_change_is_under_way_and_sees_all_of_it() -> None:
    inside, leave = threading.Event(), threading.Event()

    def hook(_request: Request, _targets: Sequence[WriteTarget]) -> None:
        inside.set()
        assert leave.wait(LONG)

    manager, request = a_manager(hook)
    waiting = manager.lock.hook = Waiting()
    change = Thread(lambda: manager.resize(request, 4, 2))
    assert inside.wait(LONG)
    seen: list[int] = []
    read = Thread(lambda: seen.append(len(manager.page_infos())))
    waiting.until(1)
    assert waiting.modes == [Mode.SHARED]
    assert seen == []
    leave.set()
    change.join()
    read.join()
    assert seen == [2]


def test_reads_run_beside_each_other() -> None:
    manager, _ = a_manager()
    together = threading.Barrier(4)

    def read() -> None:
        with manager.shared():
            together.wait(LONG)
            assert len(manager.page_infos()) == 1
            together.wait(LONG)

    for thread in [Thread(read) for _ in range(4)]:
        thread.join()


def test_threads_are_served_in_the_order_in_which_they_came() -> None:
    lock = ManagerLock()
    waiting = lock.hook = Waiting()
    order: list[str] = []
    pair = threading.Barrier(2)

    def work(name: str, taken: Callable[[], AbstractContextManager[None]], meet: bool = False) -> Callable[[], None]:
        def inner() -> None:
            with taken():
                order.append(name)
                if meet:
                    pair.wait(LONG)

        return inner

    with held(lock.exclusive):
        threads = []
        for number, (name, taken, meet) in enumerate(
            (
                ("reader 1", lock.shared, False),
                ("writer 1", lock.exclusive, False),
                ("reader 2", lock.shared, True),
                ("reader 3", lock.shared, True),
                ("writer 2", lock.exclusive, False),
                ("reader 4", lock.shared, False),
            )
        ):
            threads.append(Thread(work(name, taken, meet)))
            waiting.until(number + 1)
        assert order == []
    for thread in threads:
        thread.join()
    assert order[:2] == ["reader 1", "writer 1"]
    # They met inside, so they had the lock at the same time.
    assert sorted(order[2:4]) == ["reader 2", "reader 3"]
    assert order[4:] == ["writer 2", "reader 4"]


def test_a_reader_that_comes_after_a_waiting_writer_does_not_overtake_it() -> None:
    lock = ManagerLock()
    waiting = lock.hook = Waiting()
    order: list[str] = []

    def write() -> None:
        with lock.exclusive():
            order.append("writer")

    def read() -> None:
        with lock.shared():
            order.append("reader")

    with held(lock.shared):
        writer = Thread(write)
        waiting.until(1)
        reader = Thread(read)
        waiting.until(2)
        assert order == []
    writer.join()
    reader.join()
    assert order == ["writer", "reader"]


def test_readers_make_progress_beside_writers_and_writers_beside_readers() -> None:
    lock = ManagerLock()
    stop = threading.Event()
    value = [0, 0]

    def write() -> None:
        while not stop.is_set():
            with lock.exclusive():
                value[0] += 1
                value[1] += 1

    def read() -> None:
        while not stop.is_set():
            with lock.shared():
                assert value[0] == value[1]

    def some_reads() -> None:
        for _ in range(200):
            with lock.shared():
                assert value[0] == value[1]

    def some_writes() -> None:
        for _ in range(200):
            with lock.exclusive():
                value[0] += 1
                value[1] += 1

    for background, foreground in ((write, some_reads), (read, some_writes)):
        stop.clear()
        threads = [Thread(background) for _ in range(3)]
        Thread(foreground).join()
        stop.set()
        for thread in threads:
            thread.join()


def test_it_is_reentrant_also_while_others_wait() -> None:
    lock = ManagerLock()
    waiting = lock.hook = Waiting()
    written: list[int] = []

    def write() -> None:
        with lock.exclusive():
            written.append(1)

    with lock.exclusive(), lock.exclusive(), lock.shared(), lock.exclusive():
        writer = Thread(write)
        waiting.until(1)
        with lock.exclusive():
            assert written == []
    writer.join()
    with lock.shared():
        late = Thread(write)
        waiting.until(2)
        with lock.shared(), lock.shared():
            pass
        # One level is left: the writer still waits.
        assert written == [1]
    late.join()
    assert written == [1, 1]


def test_an_upgrade_is_refused_and_leaves_the_lock_as_it_was() -> None:
    manager, request = a_manager()
    with manager.shared():
        with pytest.raises(LockUpgrade, match="leave the block"):
            manager.snapshot(request, 0)
        with pytest.raises(LockUpgrade):
            manager.resize(request, 4)
        assert request.capacity == 2
        read: list[int] = []
        Thread(lambda: read.append(len(manager.page_infos()))).join()
        assert read == [1]
    Thread(lambda: manager.resize(request, 4)).join()
    assert request.capacity == 4


def test_a_thread_that_is_interrupted_while_it_waits_holds_nobody_up() -> None:
    lock = ManagerLock()

    def interrupted(moment: Moment, _mode: Mode) -> None:
        if moment is Moment.WAITING:
            raise KeyboardInterrupt

    for mode in (lock.exclusive, lock.shared):
        with held(lock.exclusive):
            lock.hook = interrupted
            thread = Thread(mode().__enter__)
            with pytest.raises(KeyboardInterrupt):
                thread.join()
            lock.hook = None
    done: list[str] = []

    def work() -> None:
        with lock.exclusive():
            done.append("exclusive")
        with lock.shared():
            done.append("shared")

    Thread(work).join()
    assert done == ["exclusive", "shared"]
