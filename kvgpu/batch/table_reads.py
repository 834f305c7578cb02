"""Which slots published rows name, for readers of the tables (R7.7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from kvgpu.config import Layout
from kvgpu.requests.row_entries import RowEntries
from kvgpu.runs import Int32


def named_slots(layout: Layout, groups: Sequence[int], rows: Iterable[RowEntries]) -> Iterator[tuple[int, int, Int32]]:
    """Every slot that the given rows name, once: (level, pool group, slot numbers).

    ``groups``: the layer groups of the tables, in their order.
    """
    found: dict[tuple[int, int], list[Int32]] = {}
    for row in rows:
        for number, group in enumerate(groups):
            slots, levels, _ = row.group(number)
            for level, pool_group in enumerate(layout.groups[group].pool_groups):
                here = slots[levels == level]
                if here.size:
                    found.setdefault((level, pool_group), []).append(here)
    for (level, pool_group), parts in found.items():
        named = np.zeros(layout.levels[level][pool_group].slots, dtype=np.bool_)
        for slots in parts:
            named[slots] = True
        yield level, pool_group, np.flatnonzero(named).astype(np.int32)
