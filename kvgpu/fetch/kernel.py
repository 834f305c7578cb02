"""The fetch kernel: hits, misses, evictions and copies of all rows in one launch (R15.4, R15.5).

A block of threads does a row. What it knows of the row is in ``rows``, int32 ``[rows, 2 + n]``: the number of the reservation (0:
the row is not served), how many slots it has, and these. What is cached is in ``state``, ``PLANES`` planes of int32
``[layers, slots of the pool group * units]``, by entry: the number that is there, the reservation that put it there (of another
one it is free), and then by *place* the entries in order of recency, and two planes of scratch. The places of a reservation are
its own entries, in the order of its slots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.cuda
import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Kernel
from kvgpu.fetch.moving import move_misses
from kvgpu.fetch.quick import quick_source_of
from kvgpu.fetch.words import BAD, HEAD, HIT, MISS, PLANES, SEGMENT_WORDS, first_of, home_of, running_sums
from kvspec.config import MAX_SELECTED

cuda: Any = numba.cuda

THREADS = 512
"""Threads of a block."""
SIZES = (64, 512, MAX_SELECTED)
"""How many numbers a row may select: there is a kernel for each, as its shared memory has a fixed size."""
Bytes = npt.NDArray[np.uint8]


def source_of(most: int) -> Callable[..., None]:
    """The kernel for rows that select at most so many numbers, a power of two."""
    hashed, threads = 2 * most, THREADS

    def _fetch(
        host: Any,
        gpu: Any,
        tables: Any,
        rows: Any,
        state: Any,
        selected: Any,
        result: Any,
        counters: Any,
        segments: Any,
        count: int,
        selects: int,
        width: int,
        units: int,
        blocks: int,
        table_at: int,
        counts_at: int,
        plane: int,
        layers: int,
        layer: int,
        buffers: int,
    ) -> None:
        shared_hash = cuda.shared.array(hashed, np.int32)
        number = cuda.shared.array(most, np.int32)
        entry = cuda.shared.array(most, np.int32)
        missed = cuda.shared.array(most, np.int32)
        sums = cuda.shared.array(threads, np.int32)
        row = cuda.blockIdx.x
        mine = cuda.threadIdx.x
        of_row = rows.view(np.int32)
        table = tables.view(np.int32)
        cache = state.view(np.int32)
        asked = selected.view(np.int32)
        out = result.view(np.int32)
        base = width * row
        mark = of_row[base]
        entries = of_row[base + 1] * units
        countable = 0
        if mark != 0:
            countable = table[counts_at + row] * units
        numbers_at = layer * plane
        marks_at = (layers + layer) * plane
        order_at = (2 * layers + layer) * plane
        free_at = (3 * layers + layer) * plane
        others_at = (4 * layers + layer) * plane
        # What is selected, each number once: the first that names it stands for all.
        for at in range(mine, hashed, threads):
            shared_hash[at] = -1
        for at in range(mine, selects, threads):
            one = asked[row * selects + at]
            number[at] = one if 0 <= one < countable else BAD
            entry[at] = BAD
        cuda.syncthreads()
        for at in range(mine, selects, threads):
            one = number[at]
            if one >= 0:
                where = home_of(one, hashed)
                while True:
                    old = cuda.atomic.cas(shared_hash, where, -1, at)
                    if old == -1:
                        break
                    if number[old] == one:
                        cuda.atomic.min(shared_hash, where, at)
                        break
                    where = (where + 1) & (hashed - 1)
        cuda.syncthreads()
        # The entries that are free, by place; the others are as many as the order has places.
        free = 0
        for start in range(0, entries, threads):
            place = start + mine
            flag = 0
            raw = 0
            if place < entries:
                raw = of_row[base + HEAD + place // units] * units + place % units
                if cache[marks_at + raw] != mark:
                    flag = 1
            sums[mine] = flag
            running_sums(sums, mine, threads)
            if flag == 1:
                rank = free + sums[mine] - 1
                cache[free_at + of_row[base + HEAD + rank // units] * units + rank % units] = raw
            free += sums[threads - 1]
            cuda.syncthreads()
        cached = entries - free
        # The cached ones, the most recent first: named by the selection, or not.
        others = 0
        for start in range(0, cached, threads):
            place = start + mine
            flag = 0
            raw = 0
            if place < cached:
                raw = cache[order_at + of_row[base + HEAD + place // units] * units + place % units]
                first = first_of(shared_hash, number, cache[numbers_at + raw], hashed)
                if first == -1:
                    flag = 1
                else:
                    entry[first] = raw
            sums[mine] = flag
            running_sums(sums, mine, threads)
            if flag == 1:
                rank = others + sums[mine] - 1
                cache[others_at + of_row[base + HEAD + rank // units] * units + rank % units] = raw
            others += sums[threads - 1]
            cuda.syncthreads()
        # Hits become the most recent (R15.5); misses are numbered.
        found_at = count * selects
        hits = 0
        misses = 0
        for start in range(0, selects, threads):
            at = start + mine
            kind = 0
            if at < selects and number[at] >= 0 and first_of(shared_hash, number, number[at], hashed) == at:
                kind = HIT if entry[at] >= 0 else MISS
            if at < selects:
                out[found_at + row * selects + at] = kind
            # Hits in the low half of a word, misses in the high one.
            sums[mine] = (1 if kind == HIT else 0) + (65536 if kind == MISS else 0)
            running_sums(sums, mine, threads)
            if kind == HIT:
                rank = hits + (sums[mine] & 65535) - 1
                cache[order_at + of_row[base + HEAD + rank // units] * units + rank % units] = entry[at]
            if kind == MISS:
                missed[misses + (sums[mine] >> 16) - 1] = at
            hits += sums[threads - 1] & 65535
            misses += sums[threads - 1] >> 16
            cuda.syncthreads()
        evicted = misses - free
        if evicted < 0:
            evicted = 0
        for rank in range(mine, misses, threads):
            if rank < free:
                raw = cache[free_at + of_row[base + HEAD + rank // units] * units + rank % units]
            else:
                last = others - 1 - (rank - free)
                raw = cache[others_at + of_row[base + HEAD + last // units] * units + last % units]
            at = missed[rank]
            entry[at] = raw
            cache[numbers_at + raw] = number[at]
            cache[marks_at + raw] = mark
            place = hits + rank
            cache[order_at + of_row[base + HEAD + place // units] * units + place % units] = raw
        for rank in range(mine, others - evicted, threads):
            place = hits + misses + rank
            cache[order_at + of_row[base + HEAD + place // units] * units + place % units] = cache[
                others_at + of_row[base + HEAD + rank // units] * units + rank % units
            ]
        cuda.syncthreads()
        for at in range(mine, selects, threads):
            one = number[at]
            if one < 0:
                out[row * selects + at] = BAD
            else:
                first = first_of(shared_hash, number, one, hashed)
                out[row * selects + at] = entry[first]
                if first != at:
                    out[found_at + row * selects + at] = out[found_at + row * selects + first]
        if mine == 0 and hits + misses > 0:
            counts = counters.view(np.int64)
            cuda.atomic.add(counts, 2 * layer, hits)
            cuda.atomic.add(counts, 2 * layer + 1, misses)
        if misses > 0:
            row_at, first_buffer = table_at + row * blocks, layer * buffers
            move_misses(
                host, gpu, table, row_at, segments, first_buffer, buffers, number, entry, missed, misses, units, mine, threads
            )

    return _fetch


def named(selected: list[int], countable: int) -> list[int]:
    """The numbers that may be asked for, each once, in order (R15.4)."""
    return [one for one in dict.fromkeys(selected) if 0 <= one < countable]


def placed(others: list[int], free: list[int], misses: int) -> tuple[list[int], list[int]]:
    """Of the entries that no number names, those that stay; for each miss a free one, then the least recent (R15.4)."""
    stay = len(others) - max(0, misses - len(free))
    return others[:stay], [*free[:misses], *reversed(others[stay:])]


def recent(hits: list[int], misses: list[int], others: list[int]) -> list[int]:
    """The entries in their order after a fetch, the most recent first (R15.5)."""
    return [*hits, *misses, *others]


def unit_start(number: int, units: int, size: int) -> int:
    """Where a unit begins in its buffer's page (R15.11)."""
    return number % units * size


def fetch_twin(
    host: Bytes,
    gpu: Bytes,
    tables: Bytes,
    rows: Bytes,
    state: Bytes,
    selected: Bytes,
    result: Bytes,
    counters: Bytes,
    segments: Bytes,
    count: int,
    selects: int,
    width: int,
    units: int,
    blocks: int,
    table_at: int,
    counts_at: int,
    plane: int,
    layers: int,
    layer: int,
    buffers: int,
) -> None:
    """The kernel's work on host arrays, a row after the other."""
    table = tables.view(np.int32)
    planes = state.view(np.int32)[: PLANES * layers * plane].reshape(PLANES, layers, plane)
    numbers, marks, order = planes[0, layer], planes[1, layer], planes[2, layer]
    asked = selected.view(np.int32)[: count * selects].reshape(count, selects)
    out, found = result.view(np.int32)[: 2 * count * selects].reshape(2, count, selects)
    counts = counters.view(np.int64)
    words = segments.view(np.int64)[SEGMENT_WORDS * layer * buffers :][: SEGMENT_WORDS * buffers].reshape(-1, SEGMENT_WORDS)
    out[:], found[:] = BAD, 0
    for row, head in enumerate(rows.view(np.int32)[: count * width].reshape(count, width)):
        mark, held = int(head[0]), head[HEAD : HEAD + head[1]]
        if not mark:
            continue
        places = (held[:, None] * units + np.arange(units)).reshape(-1)
        countable = int(table[counts_at + row]) * units
        free = places[marks[places] != mark].tolist()
        cached = order[places[: len(places) - len(free)]].tolist()
        there = {int(numbers[entry]): entry for entry in cached}
        valid = named(asked[row].tolist(), countable)
        hits = [there[one] for one in valid if one in there]
        missed = [one for one in valid if one not in there]
        left, taken = placed([entry for entry in cached if int(numbers[entry]) not in valid], free, len(missed))
        fresh = dict(zip(missed, taken, strict=True))
        for one, entry in fresh.items():
            numbers[entry], marks[entry] = one, mark
            slot = int(table[table_at + row * blocks + one // units])
            for source_base, source_stride, target_base, target_stride, size in words.tolist():
                source = source_base + slot * source_stride + unit_start(one, units, size)
                target = target_base + entry // units * target_stride + entry % units * size
                gpu[target : target + size] = host[source : source + size]
        now = recent(hits, taken, left)
        order[places[: len(now)]] = now
        for at, one in enumerate(asked[row].tolist()):
            if one in fresh:
                out[row, at], found[row, at] = fresh[one], MISS
            elif one in valid:
                out[row, at], found[row, at] = there[one], HIT
        counts[2 * layer] += len(hits)
        counts[2 * layer + 1] += len(missed)


QUICK = tuple(Kernel(f"fetch_quick_{most}", quick_source_of(most, THREADS), fetch_twin) for most in SIZES if most <= THREADS)
"""For rows with at most so many entries as a block has threads, by how many numbers a row selects at most."""
ANY = tuple(Kernel(f"fetch_{most}", source_of(most), fetch_twin) for most in SIZES)
"""For all others. Arguments of either: the host's and the GPU's memory of the pool group, tables, rows, state, selected, result
(entries, then what came of each), counters, segments; then the numbers of ``fetch_twin`` in its order."""
FETCH_ARRAYS = 9 * (True,) + 11 * (False,)
"""Which arguments are memory."""


def kernel_for(selects: int, entries: int) -> Kernel:
    """The kernel for rows that select so many numbers, at most ``MAX_SELECTED`` (R15.1), and have at most so many entries."""
    kernels: list[tuple[int, Kernel]] = [*zip(SIZES, QUICK, strict=False)] if entries <= THREADS else []
    kernels += zip(SIZES, ANY, strict=True)
    return next(kernel for most, kernel in kernels if selects <= most)
