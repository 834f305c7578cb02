"""What the device keeps of the caches of a layer group (R15.3): as much as the group has GPU slots, whatever the context."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from kvgpu.config import Layout
from kvgpu.device.api import Access, Device, Event, Memory
from kvgpu.fetch.kernel import FETCH_ARRAYS, kernel_for
from kvgpu.fetch.words import PLANES, SEGMENT_WORDS
from kvgpu.requests.reservation import Reservation
from kvspec.config import Level

_numbers = itertools.count()

Columns = npt.NDArray[np.int32]


class GroupCaches:
    """The caches of a layer group, for all requests and layers. ``state``, ``counters``, ``segments``: what the kernel gets.

    ``plane``: entries of the pool group: its slots times the units of a page. ``per_layer``: buffers of a layer; one that has
    fewer has empty ones. ``ready``: what the first fetch waits for.
    """

    def __init__(self, device: Device, layout: Layout, group: int) -> None:
        """Allocate the memory. ``DeviceError`` if there is not enough."""
        self.layout, self.group = layout, layout.groups[group]
        self.kernel = kernel_for(self.group.selected, self.group.reserve * self.group.units)
        device.prepare(self.kernel, FETCH_ARRAYS)
        self.plane = layout.pool_group(group, Level.GPU).slots * self.group.units
        self.layers = self.group.layers
        own = [[buffer for buffer in self.group.buffers if buffer.layer == layer] for layer in self.layers]
        self.per_layer = max(map(len, own))
        words = np.zeros((len(self.layers), self.per_layer, SEGMENT_WORDS), dtype=np.int64)
        for number, buffers in enumerate(own):
            for at, buffer in enumerate(buffers):
                sides = (layout.spot(buffer.layer, buffer.role, level) for level in (Level.HOST, Level.GPU))
                words[number, at] = [*(word for side in sides for word in side), buffer.nbytes // self.group.units]
        self.unit_bytes = words[:, :, -1].sum(axis=1)
        name = f"of fetches of {self.group.name}"
        self.state = device.allocate("device", 4 * PLANES * len(self.layers) * self.plane, f"caches {name}")
        self.counters = device.allocate("device", 16 * len(self.layers), f"counters {name}")
        self.segments = device.allocate("device", words.nbytes, f"segments {name}")
        self._staged = device.allocate("pinned", words.nbytes, f"staged segments {name}")
        self._staged.host_array()[: words.nbytes] = words.view(np.uint8).reshape(-1)
        self._stream = device.stream(f"kv segments {name} ({id(self)})")
        site = "R15.4 where the buffers of a layer lie"
        self._number = next(_numbers)
        written = Access(self._resource, write=True)
        device.upload(self._stream, self._staged, 0, self.segments, 0, words.nbytes, lambda: (written,), site)
        self.ready: Event = device.record(self._stream, site)
        device.give_back(self._stream)
        self._reset = np.zeros((len(self.layers), 2), dtype=np.int64)

    def access(self) -> Access:
        """What a fetch declares for the ordering check, of where the buffers lie."""
        return Access(self._resource, write=False)

    @property
    def _resource(self) -> tuple[str, int]:
        return ("fetch segments", self._number)

    def close(self) -> None:
        """Give the memory back."""
        for memory in self._memories():
            memory.free()

    def _memories(self) -> tuple[Memory, ...]:
        return self.state, self.counters, self.segments, self._staged

    def counts(self, since_reset: bool) -> dict[str, int]:
        """The counters of the group, as they are on the device now (R15.10)."""
        counts = self._counts()
        if since_reset:
            counts = counts - self._reset
        misses = counts[:, 1]
        nbytes = int((misses * self.unit_bytes).sum())
        return {"fetch_hits": int(counts[:, 0].sum()), "fetch_misses": int(misses.sum()), "fetch_bytes": nbytes}

    def reset(self) -> None:
        """What is counted since the last reset begins anew."""
        self._reset = self._counts()

    def _counts(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.counters.read_now(0, 16 * len(self.layers)), dtype=np.int64).reshape(-1, 2).copy()

    def cached_now(self, layer: int, held: Reservation) -> list[tuple[int, int]]:
        """For observers: number and entry of all that is cached of a layer in reserved slots, the most recent first."""
        numbers, marks, order = (self._column(plane, layer) for plane in range(3))
        units = self.group.units
        places = (held.slots[:, None] * units + np.arange(units)).reshape(-1)
        entries = order[places[: int((marks[places] == held.number).sum())]]
        return list(zip(numbers[entries].tolist(), entries.tolist(), strict=True))

    def _column(self, plane: int, layer: int) -> Columns:
        at = 4 * (plane * len(self.layers) + layer) * self.plane
        return np.frombuffer(self.state.read_now(at, 4 * self.plane), dtype=np.int32)
