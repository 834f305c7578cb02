"""Which slots published rows name, for readers of the tables (R7.7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from kvgpu.config import Layout
from kvgpu.publication import Publication

Int32 = npt.NDArray[np.int32]


def named_slots(
    layout: Layout, groups: Sequence[int], rows: Iterable[tuple[Publication, int]]
) -> Iterator[tuple[int, int, Int32]]:
    """Every slot that the given rows of publications name, once: (level, pool group, slot numbers).

    ``groups``: the layer groups of the tables, in their order.
    """
    found: dict[tuple[int, int], list[Int32]] = {}
    for publication, number in rows:
        for place, group in enumerate(groups):
            slots, levels, _ = publication.row(number, place)
            for level in np.unique(levels[levels >= 0]).tolist():
                key = (level, layout.groups[group].pool_groups[level])
                found.setdefault(key, []).append(slots[levels == level])
    for (level, pool_group), parts in found.items():
        yield level, pool_group, np.unique(np.concatenate(parts))
