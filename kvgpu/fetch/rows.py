"""What the fetch kernel is told of a batch's rows: by row the reservation, 0 for a row that is not served, and its slots."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable, Sequence

import numpy as np

from kvgpu.device.api import Access, Device, Memory, Stream
from kvgpu.fetch.words import HEAD
from kvgpu.requests.reservation import Reservation
from kvgpu.runs import Int32
from kvgpu.upload.staging import StagingPool

_numbers = itertools.count()


class FetchRows:
    """The rows of one batch and group in device memory, int32 ``[rows, HEAD + reserve]``."""

    def __init__(self, device: Device, rows: int, reserve: int) -> None:
        """Allocate. ``DeviceError`` if there is not enough memory."""
        self._device = device
        self._number = next(_numbers)
        self.width = HEAD + reserve
        self._shown: Int32 = np.zeros((rows, self.width), dtype=np.int32)
        self._slots: list[Int32 | None] = [None] * rows
        self.memory: Memory = device.allocate("device", self._shown.nbytes, f"rows of fetches ({self._number})")
        self._staging = StagingPool(device, ("fetch rows", self._number), self._shown.nbytes)
        weakref.finalize(self, _give_back, self.memory, self._staging)

    def refresh(self, stream: Stream, rows: Sequence[Reservation | None]) -> None:
        """Have the device know these rows, on ``stream``, which runs after the fetches so far; nothing if it does."""
        # Slots that are added make another array, and no two reservations share one.
        slots = [None if held is None else held.slots for held in rows]
        changed = [row for row, (new, old) in enumerate(zip(slots, self._slots, strict=True)) if new is not old]
        if not changed:
            return
        now = self._shown
        for row in changed:
            held, now[row] = rows[row], 0
            if held is not None:
                now[row, :HEAD] = held.number, len(held.slots)
                now[row, HEAD : HEAD + len(held.slots)] = held.slots
        self._slots = slots
        buffer = self._staging.acquire()
        self._staging.host_bytes(buffer)[:] = now.view(np.uint8).reshape(-1)
        read = self._staging.read_access(buffer)
        self._device.upload(
            stream,
            buffer.memory,
            0,
            self.memory,
            0,
            now.nbytes,
            lambda: (read, Access(self._resource, write=True)),
            "R15.8 which rows a fetch serves",
        )
        self._staging.submitted(buffer, stream)

    def access(self) -> Access:
        """What a fetch declares for the ordering check."""
        return Access(self._resource, write=False)

    @property
    def _resource(self) -> tuple[Hashable, ...]:
        return ("fetch rows", self._number)


def _give_back(memory: Memory, staging: StagingPool) -> None:
    memory.free()
    staging.free()
