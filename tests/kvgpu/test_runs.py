"""Reading and writing by runs does what reading and writing by numbers does."""

import numpy as np
import numpy.typing as npt
import pytest

from kvgpu.runs import FEW, LONG, read, runs, write

Numbers = npt.NDArray[np.int32]


def in_runs(count: int, of: int = LONG) -> Numbers:
    """So many runs of ``of`` numbers each, in no order."""
    rng = np.random.default_rng(count)
    starts = rng.permutation(count) * (of + 1)
    return np.concatenate([np.arange(start, start + of, dtype=np.int32) for start in starts])


SCATTERED = np.random.default_rng(0).permutation(4 * LONG).astype(np.int32)
CASES = {
    "none": np.empty(0, np.int32),
    "one": np.array([7], np.int32),
    "few numbers": np.arange(LONG - 1, dtype=np.int32),
    "one run": in_runs(1),
    "as many runs as count": in_runs(FEW),
    "one run more": in_runs(FEW + 1),
    "scattered": SCATTERED,
    "descending": np.arange(LONG, dtype=np.int32)[::-1],
    "a run, then scattered": np.concatenate([in_runs(1, 2 * LONG), 2 * LONG + SCATTERED]),
    "twice the same run": np.concatenate([in_runs(1), in_runs(1)]),
}


@pytest.mark.parametrize("numbers", CASES.values(), ids=CASES)
def test_read_and_write(numbers: Numbers) -> None:
    rng = np.random.default_rng(1)
    array = rng.integers(-5, 100, 10 * LONG + FEW * (LONG + 2)).astype(np.int16)
    assert (read(array, numbers) == array[numbers]).all()
    taken = read(array, numbers)
    taken[:] = 0
    assert array.any(), "what was read is a copy"
    for values in (3, np.int16(4), rng.integers(0, 9, len(numbers)).astype(np.int64), array[numbers] + 1):
        by_numbers, by_runs = array.copy(), array.copy()
        by_numbers[numbers] = values
        write(by_runs, numbers, values)
        assert (by_runs == by_numbers).all()


def test_which_are_runs() -> None:
    found = {name: runs(numbers) for name, numbers in CASES.items() if len(numbers)}
    assert {name for name, each in found.items() if each is not None} == {
        "one",
        "few numbers",
        "one run",
        "as many runs as count",
        "twice the same run",
    }
    assert found["one run"] == [(slice(0, LONG), slice(0, LONG))]
    assert found["twice the same run"] == [(slice(0, LONG), slice(0, LONG)), (slice(LONG, 2 * LONG), slice(0, LONG))]
