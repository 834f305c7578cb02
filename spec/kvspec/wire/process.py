"""A process that answers each line with a line. What it does wrong becomes an error, in a limited time."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.util import Finalize
from pathlib import Path

from kvspec.harness.watch import TimedOut, end_groups, note_group, watched
from kvspec.harness.workers import exit_text
from kvspec.system import RemoteError

SECONDS = 60.0
"""How long one answer may take where nothing else limits the time."""
TO_LEAVE = 3.0
"""How long a process may take to end after its input has."""
STDERR_LINES = 8
"""How many of the last lines of its standard error a report shows."""
MAX_SHOWN = 200
"""How many characters of a bad line a message shows."""
_PIECE = 1 << 20
_PR_SET_PDEATHSIG = 1

_started: weakref.WeakSet[Process] = weakref.WeakSet()


class Process:
    """A process in a process group of its own, so that a Ctrl-C at the terminal is for those that drive it alone."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """Start it.

        :raises OSError: it cannot be started.
        """
        self.command = tuple(command)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        # What is written always comes behind what is there, also after it has been cut (see `forget`).
        fcntl.fcntl(self._stderr, fcntl.F_SETFL, fcntl.fcntl(self._stderr, fcntl.F_GETFL) | os.O_APPEND)
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=folder,
            bufsize=0,
            process_group=0,
            preexec_fn=_die_with(os.getpid()),
        )
        note_group(self._process.pid)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._read = b""
        self.alive = True
        _started.add(self)
        _end_with_this_process()

    def ask(self, line: bytes, doing: str) -> bytes:
        """Send a line, and wait for the line that answers it.

        After any error, an interruption too, the process is ended: it could only answer what was asked before.

        :param doing: what it is asked for, for messages.
        :raises RemoteError: it ended, or gave no answer in time. `TimedOut` passes through.
        """
        try:
            return self._exchange(line, doing)
        except TimedOut as late:
            late.lines = (f"waiting for the answer of {self.command[0]} {doing}", *self.last_lines())
            self.end(kindly=False)
            raise
        except BaseException:
            self.end(kindly=False)
            raise

    def send(self, line: bytes) -> None:
        """Write a line, and wait for nothing."""
        try:
            os.write(self._in, line)
        except OSError:
            self.end(kindly=False)

    def end(self, kindly: bool = True) -> int:
        """End the process and whatever it has started. Idempotent.

        :param kindly: let it end by itself first, as its input has.
        :returns: its exit code, as ``subprocess`` gives it.
        """
        process = self._process
        if self.alive:
            self.alive = False
            self.close_pipes()
            try:
                if kindly:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(TO_LEAVE)
            finally:
                end_groups([process.pid])
                process.wait()
                note_group(process.pid, ended=True)
                self._stderr.close()
        assert process.returncode is not None
        return process.returncode

    def forget(self) -> None:
        """Forget what it has written to its standard error so far."""
        self._stderr.truncate(0)

    def last_lines(self) -> tuple[str, ...]:
        """The last lines of its standard error."""
        if self._stderr.closed:
            return ()
        size = os.fstat(self._stderr.fileno()).st_size
        start = max(0, size - (1 << 14))
        text = os.pread(self._stderr.fileno(), size - start, start).decode(errors="replace")
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return tuple(f"stderr: {line}" for line in lines[-STDERR_LINES:])

    def abandon(self) -> None:
        """In a process that was forked: leave it to the one that has started it."""
        self.alive = False
        self.close_pipes()
        self._stderr.close()
        self._process.returncode = 0  # nobody here may wait for it

    def close_pipes(self) -> None:
        """Say that there is no more to come."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _exchange(self, line: bytes, doing: str) -> bytes:
        until = None if watched() else time.monotonic() + SECONDS
        left = memoryview(line)
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        poll.register(self._in, select.POLLOUT)
        while True:
            answer, found, rest = self._read.partition(b"\n")
            if found:
                self._read = rest
                if left:
                    raise RemoteError(f"it wrote a line before it had read the message: {shown(answer)}", self.last_lines())
                return answer
            wait = None if until is None else max(0.0, until - time.monotonic())
            ready = dict(poll.poll(None if wait is None else wait * 1000))
            if not ready and until is not None and time.monotonic() >= until:
                raise RemoteError(f"no answer within {SECONDS:g} s {doing}", self.last_lines())
            if left and ready.get(self._in):
                left = self._write(left)
                if not left:
                    poll.unregister(self._in)
            if ready.get(self._out):
                piece = os.read(self._out, _PIECE)
                if not piece:
                    raise RemoteError(self._gone(doing), self.last_lines())
                self._read += piece

    def _write(self, left: memoryview) -> memoryview:
        try:
            return left[os.write(self._in, left) :]
        except BlockingIOError:
            return left
        except BrokenPipeError:  # its output ends as well, and says so
            return left[:0]

    def _gone(self, doing: str) -> str:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return f"it closed its standard output, instead of an answer {doing}"
        began = f", in the middle of a line: {shown(self._read)}" if self._read else ""
        return f"{exit_text(code)} {doing}{began}"


def shown(line: bytes) -> str:
    """A line for a message, not too long of it."""
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ...")


def end_all() -> None:
    """End every process that was started here and still runs."""
    running = [process for process in _started if process.alive]
    for process in running:
        process.close_pipes()
    for process in running:
        process.end()


_registered: list[int] = [0]


def _end_with_this_process() -> None:
    """Have all processes ended as this one is: one of multiprocessing leaves without what ``atexit`` knows, and forgets at a
    fork what was to be done at its end."""
    if _registered[0] != os.getpid():
        _registered[0] = os.getpid()
        atexit.register(end_all)
        Finalize(None, end_all, exitpriority=0)


def _abandon_all() -> None:
    for process in list(_started):
        if process.alive:
            process.abandon()


os.register_at_fork(after_in_child=_abandon_all)


def _die_with(parent: int) -> Callable[[], None] | None:
    """What has a process ended with the thread that starts it, where the system can: only of use in the main thread."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before it could be asked for
            os._exit(1)

    return ask
