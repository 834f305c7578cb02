"""Which numbers are in an array, for arrays that mostly have few elements or one number: ``np.unique`` costs 20 us at least."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

SHORT = 64
"""Up to so many elements a set or a dictionary of Python is faster."""


def distinct(numbers: npt.NDArray[Any]) -> list[int]:
    """Each number of an integer array once, ascending."""
    if len(numbers) <= SHORT:
        return sorted(set(numbers.tolist()))
    if bool((numbers == numbers[0]).all()):
        return [int(numbers[0])]
    found: list[int] = np.unique(numbers).tolist()
    return found


def counted(numbers: npt.NDArray[Any]) -> dict[int, int]:
    """How often each number is in an integer array, in ascending order of the numbers."""
    if len(numbers) <= SHORT:
        return dict(sorted(Counter(numbers.tolist()).items()))
    if bool((numbers == numbers[0]).all()):
        return {int(numbers[0]): len(numbers)}
    found, counts = np.unique(numbers, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))
