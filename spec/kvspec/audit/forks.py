"""Work in forked processes, as many at a time as wanted, each held to a limit of its own time on the CPU.

A fork has all that its parent has loaded, may break it in any way, and is gone afterwards.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Begin = Callable[[str, float], None]
"""Called by work when it begins a part: its name, and how many seconds on the CPU it may take."""

MEMORY = 6 << 30
"""Bytes of data that such a process may have: an endless loop may collect things."""
MIN_WAIT = 120.0
"""Seconds that a part may take at least if it uses no CPU: it waits for something that never comes."""
WAIT = 10.0
"""How often the time that it may use the CPU a part may take in all, on a machine that is busy with others."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that did not finish its work. ``part``: where. ``why``: in words. ``late``: it took too long."""

    part: str
    why: str
    late: bool


@dataclass(slots=True)
class _Child(Generic[T]):
    task: T
    pid: int
    connection: Connection
    folder: str
    part: str = "-"
    until: float = field(default_factory=lambda: time.monotonic() + MIN_WAIT)
    late: bool = False


def can_fork() -> bool:
    """Whether this system forks processes."""
    return hasattr(os, "fork")


def in_forks(tasks: Iterable[T], work: Callable[[T, Begin], Any], jobs: int, end: float | None = None) -> Iterator[tuple[T, Any]]:
    """Do ``work`` for each task in a process of its own; yields the task and what came of it, as they finish.

    What came of it is the value, which must be picklable, or ``Ended``. An exception is an ``Ended`` too.

    :param end: the time, by ``time.monotonic``, after which no task is begun.
    """
    rest = iter(tasks)
    running: dict[Connection, _Child[T]] = {}
    try:
        while True:
            while len(running) < jobs and (end is None or time.monotonic() < end):
                task = next(rest, None)
                if task is None:
                    break
                child = _start(task, work, list(running))
                running[child.connection] = child
            if not running:
                return
            for connection in wait(list(running), 1.0):
                assert isinstance(connection, Connection)
                child = running[connection]
                said = _received(connection)
                if said is not None and said[0] == "part":
                    child.part, child.until = said[1], time.monotonic() + max(MIN_WAIT, WAIT * said[2])
                    continue
                del running[connection]
                yield child.task, _reaped(child, said)
            for child in running.values():
                if time.monotonic() > child.until and not child.late:
                    child.late = True
                    os.kill(child.pid, signal.SIGKILL)  # its connection ends
    finally:
        for child in running.values():
            os.kill(child.pid, signal.SIGKILL)
            _reaped(child, None)


def _received(connection: Connection) -> tuple[Any, ...] | None:
    try:
        said: tuple[Any, ...] = connection.recv()
    except (EOFError, OSError):
        return None
    return said


def _reaped(child: _Child[Any], said: tuple[Any, ...] | None) -> Any:
    _, status = os.waitpid(child.pid, 0)
    child.connection.close()
    shutil.rmtree(child.folder, ignore_errors=True)
    if said is not None:
        return said[1] if said[0] == "value" else Ended(child.part, said[1], False)
    if child.late:
        return Ended(child.part, "it took too long without using the CPU", True)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGPROF:
            return Ended(child.part, "it took too long", True)
        return Ended(child.part, f"the process was ended by {signal.Signals(number).name}", False)
    return Ended(child.part, f"the process ended with status {os.WEXITSTATUS(status)}", False)


def _start(task: T, work: Callable[[T, Begin], Any], others: list[Connection]) -> _Child[T]:
    here, there = multiprocessing.Pipe(duplex=False)
    folder = tempfile.mkdtemp(prefix="fork-")
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of numpy's, which sleep and hold no lock, are none of ours.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        there.close()
        return _Child(task, pid, here, folder)
    try:
        for connection in (here, *others):
            connection.close()
        _child(task, work, there, Path(folder))
    finally:
        os._exit(1)  # whatever happened, this process has no business in the parent's frames


def _child(task: T, work: Callable[[T, Begin], Any], connection: Connection, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    tempfile.tempdir = str(folder)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most), most))

    def begin(part: str, seconds: float) -> None:
        connection.send(("part", part, seconds))
        signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends the process, whatever it is doing

    try:
        said = ("value", work(task, begin))
    except BaseException as error:  # an exit, too
        said = ("raised", traceback.format_exception_only(error)[-1].strip())
    signal.setitimer(signal.ITIMER_PROF, 0)
    connection.send(said)
    connection.close()
    os._exit(0)
