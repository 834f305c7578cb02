"""The decoding workload with a consumer of fetches, and dense attention over what is selected and what is on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvgpu.batch.batch import Batch
from kvgpu.manager import Manager
from kvgpu.serving.attention import Attention
from kvgpu.serving.fetched import FetchedAttention
from kvspec.config import Level
from kvspec.observation import Observation
from tests.consumer.workload import LAYERS, ROWS, TOKENS_PER_BLOCK, Float64, Workload, history, length_of


@dataclass(slots=True)
class Asked:
    """What was selected, so that a run that shows nothing is not taken for a proof."""

    below_the_count: int = 0
    at_or_beyond: int = 0
    twice: int = 0
    own: int = 0


class FetchingWorkload(Workload):
    """A workload whose consumer fetches: selections that drift, repeat, name a block twice, and name what cannot be fetched."""

    def __init__(self, device: str, fetching: Mapping[str, int], **kwargs: Any) -> None:
        """``fetching``: ``selected``, ``reserve``, and ``unit``, in tokens."""
        self.unit = fetching.get("unit", TOKENS_PER_BLOCK)
        self.selects = fetching["selected"]
        self.asked = Asked()
        self._before: dict[str, list[int]] = {}
        self._now: dict[str, set[int]] = {}
        self._selection = np.full((ROWS, self.selects), -1, np.int32)
        super().__init__(device, fetching=fetching, **kwargs)

    def _consumer(self, manager: Manager, batch: Batch) -> Attention:
        return FetchedAttention(manager, batch, LAYERS[1])

    def compare(self, *args: Any) -> None:
        """Select anew, then run and compare."""
        assert isinstance(self.attention, FetchedAttention)
        state = self.reference.observe()
        self._selection[:] = -1
        for row, member in enumerate(state.batches["rows"].rows):
            if member is not None:
                self._selection[row] = self._drifted(state, member)
                self._now[member] = set(self._selection[row].tolist())
        self.attention.select(self._selection)
        super().compare(*args)

    def _drifted(self, state: Observation, member: str) -> list[int]:
        """Two numbers in three as before; the others anywhere in the history, seldom beyond it or none."""
        most = length_of(state, member) // self.unit + 2
        before = self._before.get(member, [])
        picked = [
            before[at] if at < len(before) and self.rng.random() < 2 / 3 else int(self.rng.integers(-1, most))
            for at in range(self.selects)
        ]
        self._before[member] = picked
        return picked

    def read_by(self, state: Observation, member: str | None) -> tuple[Float64, Float64] | None:
        """Selected units below the count, and units of pages on the GPU at and beyond it."""
        if member is None:
            return None
        row = state.batches["rows"].rows.index(member)
        units = TOKENS_PER_BLOCK // self.unit
        countable = state.batches["rows"].published["first"].num_blocks[row] * units
        asked, asked_now = self.asked, self._now[member]
        asked.below_the_count += sum(0 <= number < countable for number in asked_now)
        asked.at_or_beyond += sum(number >= countable for number in asked_now)
        asked.twice += self.selects - len(asked_now)

        def chosen(number: int, level: Level) -> bool:
            own = number >= countable and level is Level.GPU
            asked.own += own
            return own or (number < countable and number in asked_now)

        return history(state, member, chosen, self.unit)
