"""Arrays of page and slot numbers: their types; reading and writing by number, in runs of successive numbers where there are few.

Pages that were made together mostly have successive numbers, in successive slots. A slice is read or written several times
faster than as many numbers. Most arrays of other numbers have few elements, or one number: ``np.unique`` costs 20 us at least.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

LONG = 256
"""Numbers from which it is worth looking for runs."""
SHORT = 64
"""Up to so many elements a set or a dictionary of Python is faster than numpy."""
FEW = 16
"""So many runs at most are read or written as such."""

Array = npt.NDArray[Any]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.signedinteger]


def runs(numbers: Numbers) -> list[tuple[slice, slice]] | None:
    """The runs of successive numbers: where in ``numbers`` each stands, and the numbers. ``None``: there are more than a few.

    There is at least one number.
    """
    if len(_ends(numbers[:LONG])) >= FEW or len(ends := _ends(numbers)) >= FEW:
        return None
    bounds = [0, *ends.tolist(), len(numbers)]
    firsts = numbers[bounds[:-1]].tolist()
    return [
        (slice(start, end), slice(first, first + end - start))
        for start, end, first in zip(bounds[:-1], bounds[1:], firsts, strict=True)
    ]


def _ends(numbers: Numbers) -> npt.NDArray[np.intp]:
    return np.flatnonzero(numbers[1:] - numbers[:-1] != 1) + 1


def read(array: Array, numbers: Numbers) -> Array:
    """``array[numbers]``, of a one-dimensional array."""
    if len(numbers) < LONG or (found := runs(numbers)) is None:
        return array[numbers]
    taken = np.empty(len(numbers), array.dtype)
    for positions, run in found:
        taken[positions] = array[run]
    return taken


def write(array: Array, numbers: Numbers, values: object) -> None:
    """``array[numbers] = values``, of a one-dimensional array; ``values``: one for all, or one for each."""
    if len(numbers) < LONG or (found := runs(numbers)) is None:
        array[numbers] = values
        return
    each = isinstance(values, np.ndarray) and values.ndim == 1
    for positions, run in found:
        array[run] = values[positions] if each else values  # type: ignore[index]


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
    if len(numbers) == 1:
        return {int(numbers[0]): 1}
    if len(numbers) <= SHORT:
        return dict(sorted(Counter(numbers.tolist()).items()))
    if bool((numbers == numbers[0]).all()):
        return {int(numbers[0]): len(numbers)}
    found, counts = np.unique(numbers, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))
