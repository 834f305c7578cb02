"""Processes that answer one question at a time. One that ends, or gives no answer, costs that question alone.

A pool of ``concurrent.futures`` is of no use once one of its processes ends; a system under test may end its process, wait for
ever or crash in a driver, and whoever runs it wants to know in which scenario, at which step and where in its code.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kvspec.collecting import seldom_collected
from kvspec.harness import watch

MAX_GROUPS = 16
"""How many process groups of a process are known at a time, to be ended with it."""
GRACE = 3.0
"""So many seconds after its limit, a process that has not interrupted itself is ended."""
FRAMES = 5
"""How many of the innermost frames are kept."""
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')
_OWN = str(Path(__file__).resolve().parent)


@dataclass(frozen=True, slots=True)
class Ended:
    """Instead of an answer: the process ended, or had to be ended.

    ``why``: for the reader. ``step``: the last that it began, -1 if it began none. ``frames``: where it was, the innermost first,
    as far as that is known.
    """

    why: str
    step: int
    frames: tuple[str, ...]


class Failed(Exception):
    """A question could not be answered because of a mistake in kvspec itself; ``str()`` of it says which."""


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Connection
    step: Any
    groups: Any
    trace: Path
    key: Hashable = None
    busy: bool = False
    until: float | None = None


class Workers:
    """A number of processes, and the questions that they have not answered yet."""

    def __init__(self, count: int, context: BaseContext, again: BaseContext | None = None) -> None:
        """Start ``count`` processes.

        :param again: the context of the processes that replace those that ended; ``context`` if left out.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="kvspec-")
        self._started = 0
        self._again = again or context
        self._waiting: deque[tuple[Hashable, Callable[..., Any], tuple[Any, ...], float]] = deque()
        self._workers: list[_Worker] = []
        self._handlers: dict[int, Any] = {}
        try:
            for _ in range(count):
                self._workers.append(self._start(context))
        except BaseException:
            self.stop()
            raise

    @property
    def under_way(self) -> list[Hashable]:
        """The keys of the questions that a process is at."""
        return [worker.key for worker in self._workers if worker.busy]

    @property
    def ahead(self) -> int:
        """How many questions to have asked, so that no process waits."""
        return 2 * len(self._workers)

    @property
    def unanswered(self) -> int:
        """How many questions have no answer yet."""
        return len(self._waiting) + len(self.under_way)

    def ask(self, key: Hashable, function: Callable[..., Any], *args: Any, seconds: float = 0.0) -> None:
        """Have a process answer ``function(*args)``.

        :param seconds: how long it may take before it interrupts itself; 0 for no limit.
        """
        self._waiting.append((key, function, args, seconds))
        self._feed()

    def answers(self) -> Iterator[tuple[Hashable, Any]]:
        """The key and the answer of each question, as they come, until all have one: a value, or `Ended`.

        :raises Failed: the function raised.
        """
        while self.unanswered:
            yield from self._next(None)

    def interrupt(self, seconds: float = 1.0) -> list[tuple[Hashable, Any]]:
        """Stop what is under way, and forget what is not: the keys and the answers, which say where each was.

        It takes a second or two, to the end of `stop`; another Ctrl-C meanwhile would only leave processes running.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers.setdefault(number, signal.signal(number, signal.SIG_IGN))
        self._waiting.clear()
        until = time.monotonic() + seconds
        for worker in self._workers:
            if worker.busy:
                worker.until = min(until, worker.until or until)
                _signal(worker.process, signal.SIGALRM)
        found: list[tuple[Hashable, Any]] = []
        while self.under_way:
            found += self._next(0.1)
        return found

    def stop(self) -> None:
        """End all processes. Idempotent."""
        for worker in self._workers:
            worker.connection.close()  # an idle one ends by itself
            if worker.busy:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            watch.end_groups(worker.groups)
        self._workers = []
        self._folder.cleanup()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def __enter__(self) -> Workers:
        """Itself."""
        return self

    def __exit__(self, *args: object) -> None:
        """End all processes."""
        self.stop()

    def _start(self, context: BaseContext) -> _Worker:
        self._started += 1
        trace = Path(self._folder.name) / f"{self._started}"
        trace.touch()
        here, there = context.Pipe()
        step = context.RawValue("i", -1)
        groups = context.RawArray("i", MAX_GROUPS)
        forked = context.get_start_method() == "fork"
        # A forked process has our end of the pipe too, and would never see it closed.
        process = context.Process(target=_serve, args=(there, step, groups, trace, here if forked else None))  # type: ignore[attr-defined]
        process.start()
        there.close()
        return _Worker(process, here, step, groups, trace)

    def _feed(self) -> None:
        for worker in self._workers:
            if not self._waiting:
                return
            if worker.busy:
                continue
            key, function, args, seconds = self._waiting.popleft()
            worker.key, worker.busy, worker.step.value = key, True, -1
            worker.until = time.monotonic() + seconds + GRACE if seconds else None
            with contextlib.suppress(OSError):  # it has ended: that is seen when its answer is waited for
                worker.connection.send((function, args))

    def _next(self, seconds: float | None) -> list[tuple[Hashable, Any]]:
        """Wait for a while: what came, and what came to an end."""
        ends = [worker.until for worker in self._workers if worker.busy and worker.until is not None]
        if ends:
            left = max(0.0, min(ends) - time.monotonic())
            seconds = left if seconds is None else min(seconds, left)
        busy = {worker.connection: worker for worker in self._workers if worker.busy}
        ready = wait(list(busy), seconds)
        found = [self._take(busy[one]) for one in ready]  # type: ignore[index]
        now = time.monotonic()
        for worker in busy.values():
            if worker.busy and worker.until is not None and worker.until <= now:
                found.append(self._end(worker, _asked_where(worker)))
        self._feed()
        return found

    def _take(self, worker: _Worker) -> tuple[Hashable, Any]:
        try:
            right, answer = worker.connection.recv()
        except (EOFError, OSError):
            return self._end(worker, "")
        worker.busy = False
        if not right:
            raise Failed(answer)
        return worker.key, answer

    def _end(self, worker: _Worker, why: str) -> tuple[Hashable, Ended]:
        """Give up a process, and start another one instead."""
        worker.connection.close()
        worker.process.join(1.0 if not why else 0.0)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        watch.end_groups(worker.groups)
        ended = Ended(why or exit_text(worker.process.exitcode), worker.step.value, _frames(worker.trace))
        key = worker.key
        self._workers[self._workers.index(worker)] = self._start(self._again)
        return key, ended


def _asked_where(worker: _Worker) -> str:
    """Have a process that answers nothing write down where it is."""
    _signal(worker.process, signal.SIGUSR1)
    for _ in range(20):
        time.sleep(0.02)
        if worker.trace.stat().st_size:
            break
    return "no answer, and it could not be interrupted"


def _signal(process: BaseProcess, number: int) -> None:
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def exit_text(code: int | None) -> str:
    """How a process has ended, for the reader."""
    if code is not None and code < 0:
        try:
            return f"its process was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"its process was ended by signal {-code}"
    return f"its process ended with exit code {code}"


def _frames(trace: Path) -> tuple[str, ...]:
    """The innermost frames, down to the harness, from what ``faulthandler`` wrote."""
    found = (line for line in map(_FRAME.match, trace.read_text(errors="replace").splitlines()) if line is not None)
    inside = itertools.takewhile(lambda line: not line[1].startswith(_OWN), found)
    return tuple(f"{line[1]}:{line[2]} in {line[3]}" for line in itertools.islice(inside, FRAMES))


def _raised_frames(error: BaseException) -> tuple[str, ...]:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OWN)][-FRAMES:]
    return tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))


def _serve(connection: Connection, step: Any, groups: Any, trace: Path, other: Connection | None) -> None:
    """Answer questions until there are no more."""
    if other is not None:
        other.close()
        with contextlib.suppress(OSError):
            sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it was closed; a debugger in a system needs it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who waits for the answers says what is to become of them
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    file = trace.open("w")
    faulthandler.enable(file)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file)
    watch.started[0] = groups
    watch.telling[0] = lambda number: setattr(step, "value", number)
    with seldom_collected():  # looking after every question would cost more than most answers
        _answer_all(connection, step)


def _answer_all(connection: Connection, step: Any) -> None:
    while True:
        try:
            function, args = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, function(*args))
        except watch.TimedOut as error:  # neither of the systems, nor a replay of them
            answer = (True, Ended(str(error), step.value, _raised_frames(error)))
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except OSError:
            return
