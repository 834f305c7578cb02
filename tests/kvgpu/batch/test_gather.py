"""Gathering puts the beginning of each array at its place and nothing anywhere else, with threads or without."""

import numpy as np
import pytest

from kvgpu import gather as module
from kvgpu.gather import gather


@pytest.mark.parametrize("threshold", [0, 1 << 30])
@pytest.mark.parametrize("lengths", [[5], [0, 3, 0, 0, 4, 1], [1] * 40, [100, 0, 0, 0], [0, 0, 0, 100]])
def test_gather(lengths: list[int], threshold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARALLEL_FROM", threshold)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 3)
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 1000, length and length + 2).astype(np.int32) for length in lengths]
    starts = np.cumsum([0, *(length + 1 for length in lengths)])[:-1].astype(np.int32)
    out = np.full(sum(lengths) + len(lengths), -7, np.int32)
    gather(parts, np.array(lengths, np.int32), starts, out)()
    expected = [[*part[:length].tolist(), -7] for part, length in zip(parts, lengths, strict=True)]
    assert out.tolist() == [number for one in expected for number in one]
