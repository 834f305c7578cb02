"""Systems that take their process with them, cannot be built, or have a device that can do little."""

import os

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
