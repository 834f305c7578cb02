"""Where the tables of a batch lie: those of all groups in one range of device memory (R8.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvspec.observation import BAD

ALIGN = 256
"""Bytes to which each section of the tables is aligned."""


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


@dataclass(frozen=True, slots=True)
class TableLayout:
    """First ``page_table[groups, rows, blocks]`` int32, then ``num_blocks[groups, rows]`` int32, then, if ``levels``,
    ``page_level[groups, rows, blocks]`` int8. All offsets and sizes in bytes.
    """

    groups: int
    rows: int
    blocks: int
    levels: bool

    @property
    def counts_offset(self) -> int:
        """The byte at which the ``num_blocks`` of all groups begin."""
        return _aligned(4 * self.groups * self.rows * self.blocks)

    @property
    def levels_offset(self) -> int:
        """Where ``page_level`` begins (and ends, without levels)."""
        return self.counts_offset + _aligned(4 * self.groups * self.rows)

    @property
    def nbytes(self) -> int:
        """The size of all tables."""
        return self.levels_offset + (_aligned(self.groups * self.rows * self.blocks) if self.levels else 0)

    def page_table(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
        """The view ``[groups, rows, blocks]`` of the page tables in an array over all bytes."""
        size = 4 * self.groups * self.rows * self.blocks
        return memory[:size].view(np.int32).reshape(self.groups, self.rows, self.blocks)

    def num_blocks(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
        """The view ``[groups, rows]`` of the counts."""
        return memory[self.counts_offset :][: 4 * self.groups * self.rows].view(np.int32).reshape(self.groups, self.rows)

    def page_level(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
        """The view ``[groups, rows, blocks]`` of the levels; only with ``levels``."""
        size = self.groups * self.rows * self.blocks
        return memory[self.levels_offset :][:size].view(np.int8).reshape(self.groups, self.rows, self.blocks)

    def fill_empty(self, memory: npt.NDArray[np.uint8]) -> None:
        """Write what the tables hold before the first publication: -1, 0, -1 (R8.1)."""
        self.page_table(memory).fill(BAD)
        self.num_blocks(memory).fill(0)
        if self.levels:
            self.page_level(memory).fill(BAD)
