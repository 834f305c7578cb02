"""What a request has reserved of a group's GPU slots (R15.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvgpu.config import SlotKey
from kvgpu.runs import Int32


@dataclass(slots=True, eq=False)
class Reservation:
    """Reserved slots. ``number``: never used again; the device knows by it whose an entry is. ``key``: their pool group.

    ``slots``: int32, in the order in which they were taken; they stay here when they have been given back (R15.7).
    """

    number: int
    key: SlotKey
    slots: Int32 = field(default_factory=lambda: np.empty(0, dtype=np.int32))
