"""Where kernels find the pages of a buffer, from the raw slots of a page table."""

from __future__ import annotations

from dataclasses import dataclass

from kvgpu.manager import Manager


@dataclass(frozen=True, slots=True)
class BufferAddress:
    """Where a buffer lies on a level.

    ``address``: the device address of its page of slot 0 (the device addresses pinned host memory, too). ``slot_bytes``: from one
    slot to the next. ``nbytes``: of a page of the buffer. So slot ``s`` of a page table has its page of the buffer at
    ``address + s * slot_bytes``. None of them ever changes.
    """

    address: int
    slot_bytes: int
    nbytes: int


def buffer_address(manager: Manager, layer: str, role: str | None = None, level: int = 0) -> BufferAddress:
    """Where a buffer of a layer lies on level 0 (GPU) or 1 (host). ``role``: ``None`` for the layer's first buffer (R1.7).

    ``OutOfRange`` for a buffer or a level that is not there, and for the disk level, which no device can address.
    """
    offset, slot_bytes = manager.layout.spot(layer, role, level)
    group, buffer = manager.layout.buffer(layer, role)
    memory = manager.pool_memory(level, group.pool_groups[level])
    return BufferAddress(memory.address + offset, slot_bytes, buffer.nbytes)
