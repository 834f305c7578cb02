"""A system that takes its process with it, and one that cannot be built."""

import os

from kvref.system import Reference
from spec.ops import Operation
from spec.system import Outcome, Setup


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
