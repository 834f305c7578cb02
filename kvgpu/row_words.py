"""What a row of a batch shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvgpu.group_blocks import Shown, showing

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]

NOTHING = showing(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8), 0, ())
"""What stands in an empty row."""


class RowWords(NamedTuple):
    """What a row shows. ``length``: the blocks of its member; those behind them are BAD.

    By group of the tables: ``shown``, the member's own arrays, which change only once the row shows others, and ``counts``, the
    eligible counts.
    """

    length: int
    shown: Sequence[Shown]
    counts: Sequence[int]

    def group(self, place: int) -> tuple[Int32, Int8, int]:
        """Slots, levels and eligible count in the ``place``-th group of the tables. Views: copy what is kept."""
        shown = self.shown[place]
        return shown.indices[: self.length], shown.levels[: self.length], self.counts[place]


def empty_row(groups: int) -> RowWords:
    """What a row without a member shows in ``groups`` groups: all BAD, with counts of 0."""
    return RowWords(0, (NOTHING,) * groups, (0,) * groups)
