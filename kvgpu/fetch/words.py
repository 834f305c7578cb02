"""The words that the fetch kernels read and write, and what both do with a selection."""

from __future__ import annotations

from typing import Any

import numba.cuda

cuda: Any = numba.cuda

PLANES = 5
"""Planes of the state: numbers, reservations, order, and two of scratch."""
HEAD = 2
"""Words of a row before its slots."""
SEGMENT_WORDS = 5
"""Of a buffer of the layer: where it begins in the source, and from slot to slot; the same in the target; bytes of a unit."""
HIT, MISS = 1, 2
"""What the kernel says of a number; 0: neither."""
BAD = -1


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def running_sums(sums: Any, mine: int, threads: int) -> None:
    """Each of ``sums`` gets the sum up to it. All threads of the block take part, the thread ``mine`` with its own."""
    cuda.syncthreads()
    step = 1
    while step < threads:
        more = 0
        if mine >= step:
            more = sums[mine - step]
        cuda.syncthreads()
        sums[mine] += more
        cuda.syncthreads()
        step *= 2


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def home_of(one: int, hashed: int) -> int:
    """Where the search for a number begins in a hash of so many places, a power of two."""
    return (one * 40503) & (hashed - 1)


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def first_of(shared_hash: Any, number: Any, one: int, hashed: int) -> int:
    """The first of the selection that names a number, -1 for none."""
    where = home_of(one, hashed)
    while shared_hash[where] != -1 and number[shared_hash[where]] != one:
        where = (where + 1) & (hashed - 1)
    return int(shared_hash[where])
