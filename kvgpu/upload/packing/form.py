"""The packed form of a publication, in staging memory: what travels over the bus, and in few bytes (R8.4).

Of ``n`` dirty rows of ``groups`` groups, ``pairs`` in all:

* ``heads[pairs, 8]``, int32, for each (dirty row, group): the row number, where its entries begin, how many there are (blocks
  beyond them get BAD, R1.9), and the eligible count, for ``num_blocks`` (R8.5). ``~c`` entries instead: only ``c`` blocks are
  written, the others stay as they are. Then what all of its entries have in ``high``, which then need not be looked at, or
  ``MIXED``: pages that were made together mostly have slots side by side. The last three words mean nothing;
* ``low[entries]``, uint16: the low bits of the slot numbers. Each (dirty row, group) begins at a multiple of ``UNIT``;
  what fills the gaps means nothing;
* ``high[entries]``: the bits above these, int8, or, in the wide form, int16;
* ``levels[entries]``, int8, only with ``page_level``: the level of each slot number.

Where few blocks are written, ``low`` holds instead, from where the entries begin, ``c`` times a block and its slot number, int32
each, and ``levels``, from there, the level of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

HEAD = 8
"""Words of a head."""
ROW, START, LENGTH, COUNT, SAME = range(5)
"""Which word of a head is what: see the module's text."""
MIXED = 1 << 16
"""Not all entries are known to have the same in ``high``."""
UNIT = 16
"""Entries that are read at a time: then each section is read 16 bytes at a time."""
CHANGE = 4
"""How many entries of ``low`` take as many bytes as one block and its slot number."""
NARROW_SLOTS = 1 << 23
"""Slots up to which their numbers, and BAD, fit into three bytes."""


def padded(entries: npt.NDArray[np.int32] | int) -> Any:
    """Numbers of entries up to the next multiple of ``UNIT``: what they take."""
    return -(-entries // UNIT) * UNIT


class Packed(NamedTuple):
    """The sections, as views of staging memory (shapes: see the module's text)."""

    heads: npt.NDArray[np.int32]
    low: npt.NDArray[np.uint16]
    high: npt.NDArray[np.signedinteger]
    levels: npt.NDArray[np.int8]

    def changes(self, start: int, count: int) -> npt.NDArray[np.int32]:
        """``[count, 2]``: the blocks and slot numbers of a (dirty row, group) of which few are written, from ``start`` on."""
        return self.low[start : start + CHANGE * count].view(np.int32).reshape(count, 2)


@dataclass(frozen=True, slots=True)
class PackedForm:
    """``levels``: with ``page_level``. ``wide``: there are more slots than ``NARROW_SLOTS``."""

    levels: bool
    wide: bool

    def nbytes(self, pairs: int, entries: int) -> int:
        """The bytes for so many (dirty row, group) and entries, padded."""
        return 4 * HEAD * pairs + (3 + self.wide + self.levels) * entries

    def sections(self, staging: npt.NDArray[np.uint8], pairs: int, entries: int) -> Packed:
        """The sections over ``staging`` (uint8, large enough)."""
        low = 4 * HEAD * pairs
        high = low + 2 * entries
        levels = high + (1 + self.wide) * entries
        return Packed(
            heads=staging[:low].view(np.int32).reshape(pairs, HEAD),
            low=staging[low:high].view(np.uint16),
            high=staging[high:levels].view(np.int16 if self.wide else np.int8),
            levels=staging[levels : self.nbytes(pairs, entries)].view(np.int8),
        )
