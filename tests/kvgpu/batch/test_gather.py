"""Gathering puts the beginning of each array at its place and nothing anywhere else, with threads or without."""

import numpy as np
import pytest

from kvgpu import gather as module
from kvgpu.gather import gather


class NoThreads:
    """A system that has no more threads to give."""

    @staticmethod
    def pthread_create(*args: object) -> int:
        return 11


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("threshold", [0, 1 << 30])
@pytest.mark.parametrize("apart", [1, 4])
@pytest.mark.parametrize("lengths", [[5], [0, 3, 0, 0, 4, 1], [1] * 40, [100, 0, 0, 0], [0, 0, 0, 101], [17, 8, 0, 31]])
def test_gather(lengths: list[int], apart: int, threshold: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "THREADS_FROM", threshold)
    monkeypatch.setattr(module, "PIECE", 32)
    if refused:
        monkeypatch.setattr(module, "_system", lambda: (NoThreads, None))
    monkeypatch.setattr(module.os, "cpu_count", lambda: 3)
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 1000, length and length + 2).astype(np.int32) for length in lengths]
    room = [(length // apart + 1) * apart for length in lengths]  # 4 apart: of 16 bytes each, as threads need it
    starts = np.cumsum([0, *room])[:-1].astype(np.int32)
    out = np.full(sum(room) + 3, -7, np.int32)
    out = out[-out.ctypes.data // 4 % 4 :][: sum(room)]
    gather(parts, np.array(lengths, np.int32), starts, out)()
    expected = [[*part[:n].tolist(), *[-7] * (r - n)] for part, n, r in zip(parts, lengths, room, strict=True)]
    assert out.tolist() == [number for one in expected for number in one]
