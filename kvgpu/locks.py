"""The manager's lock: shared for pure reads, exclusive for changes and snapshots, re-entrant, fair (R12.1).

PyPI's ``readerwriterlock`` is not re-entrant, and a lock that is decides deadlocks here: an operation of a batch calls
operations of the manager, a payload hook that runs inside a change asks the manager what to write.

Threads are served in the order in which they came; readers that stand next to each other in the queue go in together, so neither
readers nor writers starve. A thread that has the lock already never queues:

* exclusive inside exclusive, shared inside shared, shared inside exclusive: one level deeper;
* exclusive inside shared: ``LockUpgrade``. Two readers that both wanted it would wait for each other for ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import TypeAlias

NOBODY = 0
"""Not the identity of any thread."""


class Mode(StrEnum):
    """How the lock is taken."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class Moment(StrEnum):
    """When the hook is called."""

    WAITING = "waiting"
    """The thread stands in the queue, and will have to wait."""
    TAKEN = "taken"
    """The thread has the lock now, which it had not before."""


Hook: TypeAlias = Callable[[Moment, Mode], None]
"""Called by the thread that takes the lock, outside every lock but this one. It must not raise."""


class LockUpgrade(RuntimeError):
    """A thread that has the manager shared asks for something that needs it exclusively: leave the block first.

    It is refused at once, since two such threads would wait for each other for ever.
    """


@dataclass(slots=True, eq=False)
class _Waiter:
    """A thread in the queue. ``go``: released when the lock is its own."""

    thread: int
    mode: Mode
    go: threading.Lock = field(default_factory=threading.Lock)


class ManagerLock:
    """A re-entrant, fair reader-writer lock. ``hook``: told when a thread has to wait, and when it has the lock."""

    def __init__(self, hook: Hook | None = None) -> None:
        """Nobody has it."""
        self.hook = hook
        self._mutex = threading.Lock()
        self._queue: deque[_Waiter] = deque()
        self._readers: dict[int, int] = {}
        self._writer = NOBODY
        self._depth = 0
        self._shared = _Shared(self)
        self._exclusive = _Exclusive(self)

    def shared(self) -> AbstractContextManager[None]:
        """``with lock.shared():`` several threads at once, no writer meanwhile."""
        return self._shared

    def exclusive(self) -> AbstractContextManager[None]:
        """``with lock.exclusive():`` this thread alone. Raises ``LockUpgrade`` in a thread that has the lock shared."""
        return self._exclusive

    def _take_shared(self, me: int) -> None:
        with self._mutex:
            depth = self._readers.get(me, 0)
            if depth or (self._writer == NOBODY and not self._queue):
                self._readers[me] = depth + 1
                waiter = None
            else:
                waiter = self._stand_in_line(me, Mode.SHARED)
        if waiter is not None:
            self._wait(waiter)
        if self.hook is not None and not depth:
            self.hook(Moment.TAKEN, Mode.SHARED)

    def _leave_shared(self, me: int) -> None:
        with self._mutex:
            depth = self._readers[me] - 1
            if depth:
                self._readers[me] = depth
            else:
                del self._readers[me]
                self._let_in()

    def _take_exclusive(self, me: int) -> None:
        with self._mutex:
            if me in self._readers:
                raise LockUpgrade(
                    "this thread has the manager's lock for reading and wants to change something: two threads that did so would "
                    "wait for each other for ever; leave the block `with manager.shared()` first, or enter it with exclusive()"
                )
            if self._writer == NOBODY and not self._readers and not self._queue:
                self._writer, self._depth = me, 1
                waiter = None
            else:
                waiter = self._stand_in_line(me, Mode.EXCLUSIVE)
        if waiter is not None:
            self._wait(waiter)
        if self.hook is not None:
            self.hook(Moment.TAKEN, Mode.EXCLUSIVE)

    def _leave_exclusive(self) -> None:
        with self._mutex:
            self._writer = NOBODY
            self._let_in()

    def _stand_in_line(self, thread: int, mode: Mode) -> _Waiter:
        waiter = _Waiter(thread, mode)
        waiter.go.acquire()
        self._queue.append(waiter)
        return waiter

    def _wait(self, waiter: _Waiter) -> None:
        try:
            if self.hook is not None:
                self.hook(Moment.WAITING, waiter.mode)
            waiter.go.acquire()
        except BaseException:  # an interrupt: the others must not wait for a thread that has gone
            self._give_up(waiter)
            raise

    def _give_up(self, waiter: _Waiter) -> None:
        with self._mutex:
            if waiter in self._queue:
                self._queue.remove(waiter)
            elif waiter.mode is Mode.SHARED:
                del self._readers[waiter.thread]
            else:
                self._writer, self._depth = NOBODY, 0
            self._let_in()

    def _let_in(self) -> None:
        """Hand the lock to those whose turn it is: one writer, or the readers at the head of the queue."""
        while self._queue and self._writer == NOBODY:
            waiter = self._queue[0]
            if waiter.mode is Mode.EXCLUSIVE:
                if self._readers:
                    return
                self._writer, self._depth = waiter.thread, 1
            else:
                self._readers[waiter.thread] = 1
            self._queue.popleft()
            waiter.go.release()


class _Exclusive:
    """The lock taken exclusively. It has no state of its own, so that any number of threads may enter it."""

    __slots__ = ("_lock",)

    def __init__(self, lock: ManagerLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        lock, me = self._lock, threading.get_ident()
        if lock._writer == me:  # no other thread writes or removes that
            lock._depth += 1
        else:
            lock._take_exclusive(me)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        lock = self._lock
        lock._depth -= 1
        if lock._depth == 0:
            lock._leave_exclusive()


class _Shared:
    """The lock taken shared."""

    __slots__ = ("_lock",)

    def __init__(self, lock: ManagerLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        lock, me = self._lock, threading.get_ident()
        if lock._writer == me:
            lock._depth += 1
        else:
            lock._take_shared(me)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        lock, me = self._lock, threading.get_ident()
        if lock._writer == me:
            lock._depth -= 1
        else:
            lock._leave_shared(me)
