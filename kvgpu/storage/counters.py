"""Counters (R13.1, R13.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvgpu.storage.faults import Direction

COLUMNS = ("offload_pages", "offload_bytes", "onboard_pages", "onboard_bytes", "copy_pages", "drop_pages", "attach_pages")
"""The counters of a layer group."""

_PAGES = {Direction.OFFLOAD: 0, Direction.ONBOARD: 2, Direction.COPY: 4}
_BYTES = {Direction.OFFLOAD: 1, Direction.ONBOARD: 3}
_DROPPED = 5
_ATTACHED = 6
FEW = 8
"""Pages that are counted one by one."""


@dataclass(frozen=True, slots=True)
class CounterView:
    """Counters as they were. ``groups``: of each layer group, pages and bytes by the names of ``COLUMNS``."""

    groups: tuple[Mapping[str, int], ...]
    suspends: int
    resumes: int


class Counters:
    """The counters of a manager: int64 ``pages[groups, 7]``, and those of the manager."""

    def __init__(self, page_bytes: npt.NDArray[np.int64]) -> None:
        """``page_bytes``: by layer group."""
        self._page_bytes = page_bytes
        self._groups = np.zeros((len(page_bytes), len(COLUMNS)), dtype=np.int64)
        self._manager = np.zeros(2, dtype=np.int64)
        self._groups_at_reset = self._groups.copy()
        self._manager_at_reset = self._manager.copy()
        self.calls = {Direction.OFFLOAD: 0, Direction.ONBOARD: 0, Direction.COPY: 0}

    def copied(self, direction: Direction, groups: npt.NDArray[np.int16] | list[int]) -> None:
        """A submission was made and is kept; ``groups``: the layer group of each of its pages."""
        self.calls[direction] += 1
        if len(groups) <= FEW:
            for group in groups if isinstance(groups, list) else groups.tolist():
                self._groups[group, _PAGES[direction]] += 1
                if direction in _BYTES:
                    self._groups[group, _BYTES[direction]] += self._page_bytes[group]
            return
        pages = np.bincount(groups, minlength=len(self._page_bytes))
        self._groups[:, _PAGES[direction]] += pages
        if direction in _BYTES:
            self._groups[:, _BYTES[direction]] += pages * self._page_bytes

    def dropped(self, group: int) -> None:
        """A page of a layer group was dropped."""
        self._groups[group, _DROPPED] += 1

    def attached(self, group: int) -> None:
        """A request has given up its copy of a page for what the host had already (R14.13)."""
        self._groups[group, _ATTACHED] += 1

    def suspended(self) -> None:
        """A request was suspended; a close does not count (R3.10)."""
        self._manager[0] += 1

    def resumed(self) -> None:
        """A request that was resumed before was resumed."""
        self._manager[1] += 1

    def view(self, since_reset: bool) -> CounterView:
        """The counters since the last reset, or since the beginning."""
        groups = self._groups - self._groups_at_reset if since_reset else self._groups
        manager = self._manager - self._manager_at_reset if since_reset else self._manager
        return CounterView(
            tuple(dict(zip(COLUMNS, row, strict=True)) for row in groups.tolist()), int(manager[0]), int(manager[1])
        )

    def reset(self) -> None:
        """What is counted since the last reset begins anew."""
        self._groups_at_reset = self._groups.copy()
        self._manager_at_reset = self._manager.copy()
