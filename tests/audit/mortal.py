"""A system that takes its process with it."""

import os

from kvref.system import Reference
from spec.ops import Operation
from spec.system import Outcome


class Dies(Reference):
    """It ends the process at its first resume."""

    def apply(self, op: Operation) -> Outcome:
        if op.verb == "resume":
            os._exit(3)
        return super().apply(op)
