"""Systems that take their process with them, cannot be built, or have a device that can do little."""

import collections
import contextlib
import ctypes
import itertools
import os
import time
from pathlib import Path

from kvref.system import Reference
from kvspec.ops import Operation
from kvspec.system import DeviceLimit, Outcome, Setup


class Dies(Reference):
    """It ends the process at its first resume."""

    def apply(self, op: Operation) -> Outcome:
        if op.verb == "resume":
            os._exit(3)
        return super().apply(op)


class NeedsGpu(Reference):
    """It cannot be built here."""

    def __init__(self, setup: Setup) -> None:
        raise RuntimeError("there is no GPU")


class Limited(Reference):
    """Its device does five operations and no more."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._left = 5

    def apply(self, op: Operation) -> Outcome:
        if not self._left:
            raise DeviceLimit("five operations are all it can do")
        self._left -= 1
        return super().apply(op)


class Hangs(Reference):
    """It never comes back from its first resume. By a file in the folder ``MORTAL_BEGAN`` it says that it has begun."""

    def apply(self, op: Operation) -> Outcome:
        if op.verb == "resume":
            if folder := os.environ.get("MORTAL_BEGAN"):
                Path(folder, str(os.getpid())).touch()
            self.wait_for_ever()
        return super().apply(op)

    def wait_for_ever(self) -> None:
        while True:
            time.sleep(0.01)


class Stubborn(Hangs):
    """Likewise, and it catches whatever is raised in it."""

    def wait_for_ever(self) -> None:
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(0.01)


class Deaf(Hangs):
    """Likewise, inside a compiled function that never lets Python have a turn."""

    def wait_for_ever(self) -> None:
        collections.deque(itertools.repeat(None), maxlen=0)


class Crashes(Reference):
    """It reads where no memory is."""

    def apply(self, op: Operation) -> Outcome:
        if op.verb == "resume":
            ctypes.string_at(0)
        return super().apply(op)
