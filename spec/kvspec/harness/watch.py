"""A limit on how long a replay may take, and where it is at, for whoever watches it from another process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

DEFAULT_SECONDS = 60.0
"""How long the replay of one scenario may take, unless the command line says otherwise."""
AGAIN = 1.0
"""The interruption is repeated after so many seconds: a system may catch whatever is raised in it."""


class TimedOut(BaseException):
    """The time of a replay is up, or it was told to stop. ``str()`` of it says which. Raised wherever the replay is just then."""


def ignore_steps(number: int) -> None:
    """The default of ``telling``: nobody wants to know."""


telling: list[Callable[[int], None]] = [ignore_steps]
"""What is called with the number of each step before it is carried out; a process has one replay at a time."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TimedOut` inside the block after so many seconds, and again each second, until it is left.

    A SIGALRM from elsewhere does the same at once. Python raises between two of its own instructions: whoever waits inside a
    compiled function is interrupted when that returns.

    :param seconds: 0 for no limit. There is none either outside the main thread, or where the system has no such signal.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    start = time.monotonic()

    def stop(number: int, frame: FrameType | None) -> None:
        late = seconds and time.monotonic() - start >= seconds * 0.99
        raise TimedOut(f"no answer within {seconds:g} s" if late else "interrupted")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN if seconds else 0.0)
        yield
    finally:
        # Nothing may be raised once the block is left: first no handler of ours, then no timer.
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)
