"""Ranges of memory that are kept for the next user.

The driver may wait for all running work when memory is allocated or freed, which a closed gate would turn into a wait without
end. So memory goes back to the driver only when there is no other way to get any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kvgpu.device.api import DeviceError
from kvgpu.device.cuda.driver import OUT_OF_MEMORY, SUCCESS, text

SMALLEST = 512
"""Ranges are multiples of this, and aligned to it."""
CHUNK = 8 << 20
"""Bytes that are asked of the driver at a time for small ranges."""
LARGE = 1 << 20
"""Ranges from this size on are the driver's own allocations, in multiples of ``LARGE``."""

Alloc = Callable[[int], tuple[Any, int]]
"""From a size to the driver's result and an address."""


class Arena:
    """Ranges of one kind of memory."""

    def __init__(self, kind: str, alloc: Alloc, free: Callable[[int], None]) -> None:
        """``kind`` is for messages."""
        self._kind, self._alloc, self._free_now = kind, alloc, free
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._next, self._end = 0, 0

    def take(self, nbytes: int) -> int:
        """The address of at least ``nbytes`` bytes of any contents. Raises ``DeviceError`` if there are not as many."""
        size = range_size(nbytes)
        if free := self._free[size]:
            return free.pop()
        if size >= LARGE:
            return self._from_driver(size)
        if self._end - self._next < size:
            self._next = self._from_driver(CHUNK)
            self._end = self._next + CHUNK
        address = self._next
        self._next += size
        return address

    def give_back(self, address: int, nbytes: int) -> None:
        """Keep a range for the next user; no work may still use it."""
        self._free[range_size(nbytes)].append(address)

    def _from_driver(self, size: int) -> int:
        error, address = self._alloc(size)
        if error == OUT_OF_MEMORY:
            for large in [each for each in self._free if each >= LARGE]:
                for unused in self._free.pop(large):
                    self._free_now(unused)
            error, address = self._alloc(size)
        if error != SUCCESS:
            raise DeviceError(f"{size} bytes of {self._kind} memory cannot be had: {text(error)}; make the pools smaller")
        return address


def range_size(nbytes: int) -> int:
    """The size of the range that serves ``nbytes``: a power of two, or a multiple of ``LARGE``."""
    if nbytes >= LARGE:
        return -(-nbytes // LARGE) * LARGE
    return max(SMALLEST, 1 << (nbytes - 1).bit_length()) if nbytes else SMALLEST
