"""A limit on how long a replay may take, and where it is at, for whoever watches it from another process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

DEFAULT_SECONDS = 60.0
"""How long the replay of one scenario may take, unless the command line says otherwise."""
AGAIN = 1.0
"""The interruption is repeated after so many seconds: a system may catch whatever is raised in it."""


class TimedOut(BaseException):
    """The time of a replay is up, or it was told to stop. ``str()`` of it says which. Raised wherever the replay is just then.

    ``lines``: what to show in the place of the frames, if there is something better.
    """

    lines: tuple[str, ...] = ()


_watched: list[bool] = [False]


def watched() -> bool:
    """Whether the time is watched by `limited`, also where it has no limit: whoever waits then needs no limit of his own."""
    return _watched[0] and threading.current_thread() is threading.main_thread()


def ignore_steps(number: int) -> None:
    """The default of ``telling``: nobody wants to know."""


telling: list[Callable[[int], None]] = [ignore_steps]
"""What is called with the number of each step before it is carried out; a process has one replay at a time."""


started: list[Any] = [None]
"""Where a process notes the process groups that it has started: an array of numbers that outlives it, if somebody watches it."""


def note_group(number: int, ended: bool = False) -> None:
    """Note that a process group was started, or has ended, so that it can be ended should this process be killed."""
    array = started[0]
    if array is not None:
        old, new = (number, 0) if ended else (0, number)
        place = next((place for place, there in enumerate(array) if there == old), None)
        if place is not None:
            array[place] = new


def end_groups(array: Iterable[int]) -> None:
    """End the process groups that a process has noted which was killed."""
    for number in array:
        if number:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(number, signal.SIGKILL)


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
    outside, _watched[0] = _watched[0], True
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN if seconds else 0.0)
        yield
    finally:
        # Nothing may be raised once the block is left: first no handler of ours, then no timer.
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        _watched[0] = outside
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)
