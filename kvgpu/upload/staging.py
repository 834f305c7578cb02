"""Pinned staging buffers for publications: never rewritten before their upload has run (R7.6)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Access, Device, DeviceError, Event, Memory, Stream

INITIAL_BUFFERS = 2
"""How many buffers exist from the start (R7.6)."""


@dataclass(slots=True)
class StagingBuffer:
    """One buffer. ``number``: its number in the pool. ``busy_until``: the point after which it may be rewritten."""

    number: int
    memory: Memory
    busy_until: Event | None = None


class StagingPool:
    """The staging buffers of one batch, all of one size.

    Two exist from the start; more are made only while all of those are in flight (R7.6). A device with poison on overwrites
    each buffer the moment it may be reused.
    """

    def __init__(self, device: Device, owner: Hashable, nbytes: int) -> None:
        """Allocate the first buffers, ``nbytes`` bytes each. Raises ``DeviceError`` if there is not enough memory."""
        self._device = device
        self._owner = owner
        self._nbytes = nbytes
        self._buffers: list[StagingBuffer] = []
        try:
            for _ in range(INITIAL_BUFFERS):
                self._grow()
        except DeviceError:
            self.free()
            raise

    def __len__(self) -> int:
        """How many buffers exist."""
        return len(self._buffers)

    def acquire(self) -> StagingBuffer:
        """A buffer that no upload in flight reads; a new one if there is none (R7.6). Never blocks."""
        for buffer in self._buffers:
            if buffer.busy_until is None or buffer.busy_until.done():
                buffer.busy_until = None
                return buffer
        return self._grow()

    def host_bytes(self, buffer: StagingBuffer) -> npt.NDArray[np.uint8]:
        """The bytes of an acquired buffer, to be rewritten by the CPU now."""
        self._device.host_access(lambda: (Access(self._resource(buffer), write=True),), "R7.6 the CPU fills a staging buffer")
        return buffer.memory.host_array()

    def read_access(self, buffer: StagingBuffer) -> Access:
        """What an upload out of ``buffer`` declares for the ordering check."""
        return Access(self._resource(buffer), write=False)

    def submitted(self, buffer: StagingBuffer, stream: Stream) -> Event:
        """Keep ``buffer`` from being rewritten until the work submitted to ``stream`` so far has run; that point."""
        uploaded = self._device.record(stream, "R7.6 staging buffer: its upload has run")
        poisoned = self._device.poison(buffer.memory, ((0, self._nbytes),), (uploaded,), "R7.6 poison a reusable staging buffer")
        buffer.busy_until = uploaded if poisoned is None else poisoned
        return uploaded

    def free(self) -> None:
        """Give the memory back, once the uploads in flight have run. Idempotent."""
        for buffer in self._buffers:
            buffer.memory.free()

    def _resource(self, buffer: StagingBuffer) -> tuple[Hashable, ...]:
        return ("staging", self._owner, buffer.number)

    def _grow(self) -> StagingBuffer:
        number = len(self._buffers)
        memory = self._device.allocate("pinned", self._nbytes, f"staging {number} of batch {self._owner}")
        buffer = StagingBuffer(number, memory)
        self._buffers.append(buffer)
        return buffer
