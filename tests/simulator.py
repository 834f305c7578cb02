"""Kernels on numba's CUDA simulator, which has to be chosen before numba is imported: so in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np

from tests.paths import PATHS


def said_on_simulator(file: str) -> list[str]:
    """Run a file as a program on the simulator; the words that it prints."""
    done = subprocess.run(
        [sys.executable, file],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def load16(source: Any, offset: int) -> tuple[Any, Any]:
    """What ``kvgpu.storage.wide_copy.load16`` does, for the simulator, which knows no inline PTX."""
    assert offset % 16 == 0
    low, high = source[offset : offset + 16].view(np.uint64)
    return low, high


def store16(target: Any, offset: int, words: tuple[Any, Any]) -> None:
    """The same of ``store16``."""
    assert offset % 16 == 0
    target[offset : offset + 16].view(np.uint64)[:] = words
