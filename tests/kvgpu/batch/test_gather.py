"""Gathering many arrays gives what concatenating them gives, with threads or without."""

import numpy as np
import pytest

from kvgpu import gather as module
from kvgpu.gather import gather


@pytest.mark.parametrize("threshold", [0, 1 << 30])
@pytest.mark.parametrize("lengths", [[5], [0, 3, 0, 0, 4, 1], [1] * 40, [100, 0, 0, 0], [0, 0, 0, 100]])
def test_gather_is_concatenation(lengths: list[int], threshold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARALLEL_FROM", threshold)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 3)
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 1000, length).astype(np.int32) for length in lengths]
    out = np.full(sum(lengths), -7, np.int32)
    gather(parts, np.cumsum(lengths), out)
    assert out.tolist() == np.concatenate(parts).tolist()
