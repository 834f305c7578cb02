"""The fetch kernel for rows that select no more numbers, and have no more entries, than a block has threads.

What ``kvgpu.fetch.kernel`` says holds, and the arguments are the same. A thread takes one number of the selection and one place
of the order, so that all is loaded at once and no scratch is needed: which entries are free, which are named by nobody, which
numbers are hits and which misses are bits in shared memory, and to count the bits before one's own is to know one's turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.cuda
import numpy as np

from kvgpu.fetch.moving import move_misses
from kvgpu.fetch.words import BAD, HEAD, HIT, MISS, first_of, home_of

cuda: Any = numba.cuda

FREE_AT, OTHERS_AT, HITS_AT, MISSES_AT = range(4)


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def set_bit(bits: Any, first: int, at: int) -> None:
    """Set a bit of those that begin at a word."""
    cuda.atomic.or_(bits, first + (at >> 5), np.uint32(1 << (at & 31)))


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def bits_before(bits: Any, first: int, at: int) -> int:
    """How many bits are set before one: of all, with ``at`` the number of bits."""
    found = 0
    for word in range(at >> 5):
        found += cuda.popc(bits[first + word])
    if at & 31:
        found += cuda.popc(bits[first + (at >> 5)] & np.uint32((1 << (at & 31)) - 1))
    return found


def quick_source_of(most: int, threads: int) -> Callable[..., None]:
    """The kernel for at most so many numbers a row, a power of two, and so many entries, the threads of a block."""
    hashed, words = 2 * most, threads // 32
    all_words = 4 * words

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
        at_place = cuda.shared.array(threads, np.int32)
        free_ones = cuda.shared.array(threads, np.int32)
        other_ones = cuda.shared.array(threads, np.int32)
        bits = cuda.shared.array(all_words, np.uint32)
        row = cuda.blockIdx.x
        mine = cuda.threadIdx.x
        of_row = rows.view(np.int32)
        table = tables.view(np.int32)
        cache = state.view(np.int32)
        asked = selected.view(np.int32)
        out = result.view(np.int32)
        base = width * row
        numbers_at = layer * plane
        marks_at = (layers + layer) * plane
        order_at = (2 * layers + layer) * plane
        # Loads that wait for no other.
        mark = of_row[base]
        held = of_row[base + 1]
        countable = table[counts_at + row] * units
        one = BAD
        if mine < selects:
            one = asked[row * selects + mine]
        raw = 0
        if mine < (width - HEAD) * units:
            if units == 1:
                raw = of_row[base + HEAD + mine]
            else:
                slot = mine // units
                raw = of_row[base + HEAD + slot] * units + mine - slot * units
        for at in range(mine, hashed, threads):
            shared_hash[at] = -1
        if mine < all_words:
            bits[mine] = np.uint32(0)
        entries = held * units
        if mark == 0:
            entries = 0
            countable = 0
        marked = 0
        ordered = 0
        known = 0
        if mine < entries:
            marked = cache[marks_at + raw]
            ordered = cache[order_at + raw]
            known = cache[numbers_at + ordered]
        at_place[mine] = raw
        if one < 0 or one >= countable:
            one = BAD
        if mine < selects:
            number[mine] = one
            entry[mine] = BAD
        cuda.syncthreads()
        # What is selected, each number once: the first that names it stands for all. And who is free.
        if one >= 0:
            where = home_of(one, hashed)
            while True:
                old = cuda.atomic.cas(shared_hash, where, -1, mine)
                if old == -1:
                    break
                if number[old] == one:
                    cuda.atomic.min(shared_hash, where, mine)
                    break
                where = (where + 1) & (hashed - 1)
        is_free = mine < entries and marked != mark
        if is_free:
            set_bit(bits, FREE_AT * words, mine)
        cuda.syncthreads()
        # The cached ones, the most recent first: named by the selection, or not.
        free = bits_before(bits, FREE_AT * words, entries)
        is_other = False
        if mine < entries - free:
            first = first_of(shared_hash, number, known, hashed)
            if first == -1:
                is_other = True
                set_bit(bits, OTHERS_AT * words, mine)
            else:
                entry[first] = ordered
        cuda.syncthreads()
        # Hits and misses, by the first that names each.
        first = -1
        is_hit = False
        is_miss = False
        if one >= 0:
            first = first_of(shared_hash, number, one, hashed)
            if first == mine:
                is_hit = entry[mine] >= 0
                is_miss = not is_hit
        if is_hit:
            set_bit(bits, HITS_AT * words, mine)
        if is_miss:
            set_bit(bits, MISSES_AT * words, mine)
        cuda.syncthreads()
        # Hits become the most recent (R15.5).
        others = bits_before(bits, OTHERS_AT * words, entries)
        hits = bits_before(bits, HITS_AT * words, selects)
        misses = bits_before(bits, MISSES_AT * words, selects)
        if is_free:
            free_ones[bits_before(bits, FREE_AT * words, mine)] = raw
        if is_other:
            other_ones[bits_before(bits, OTHERS_AT * words, mine)] = ordered
        if is_hit:
            cache[order_at + at_place[bits_before(bits, HITS_AT * words, mine)]] = entry[mine]
        if is_miss:
            missed[bits_before(bits, MISSES_AT * words, mine)] = mine
        cuda.syncthreads()
        evicted = misses - free
        if evicted < 0:
            evicted = 0
        if mine < misses:
            raw = free_ones[mine] if mine < free else other_ones[others - 1 - (mine - free)]
            at = missed[mine]
            entry[at] = raw
            cache[numbers_at + raw] = number[at]
            cache[marks_at + raw] = mark
            cache[order_at + at_place[hits + mine]] = raw
        if mine < others - evicted:
            cache[order_at + at_place[hits + misses + mine]] = other_ones[mine]
        cuda.syncthreads()
        if mine < selects:
            kind = 0
            raw = BAD
            if one >= 0:
                raw = entry[first]
                kind = MISS
                if (bits[HITS_AT * words + (first >> 5)] >> np.uint32(first & 31)) & np.uint32(1):
                    kind = HIT
            out[row * selects + mine] = raw
            out[(count + row) * selects + mine] = kind
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
