"""Reads that somebody records: later use of slots, and later work of those who have them now, runs after the reads (R7.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from kvgpu.config import SlotKey
from kvgpu.device.api import Stream
from kvgpu.operations.state import Core
from kvgpu.requests.request import Request
from kvgpu.runs import Int32
from kvgpu.storage.fences import Point


def of_request(core: Core, request: Request, stream: Stream) -> None:
    """Order later use of all that an active request has mapped, and its own stream, after the reads so far on a stream."""
    reads = core.fences.record(stream, "R7.7 reads of a request so far")
    assert request.stream is not None
    core.fences.wait(request.stream, [reads], "R7.7 work of a request after its reads")
    for key, part in core.by_key(_locked(request)):
        keep_for_slots(core, reads, key, core.pages.slot[part])


def of_slots(core: Core, reads: Point, slots: Iterable[tuple[int, int, Int32]], members: Iterable[Request]) -> None:
    """Order later use of slots after reads. ``slots``: (level, pool group, slot numbers, each once).

    Also orders the streams of the active owners of the pages that are in these slots now, but for ``members``, whose own
    streams are the batch's affair.
    """
    known = {member.uid for member in members}
    others = [request for uid, request in core.by_uid.items() if request.active and uid not in known]
    named: dict[SlotKey, npt.NDArray[np.bool_]] = {}
    for level, number, numbers in slots:
        keep_for_slots(core, reads, (level, number), numbers)
        if others:
            named[level, number] = np.zeros(core.pools[level][number].spec.slots, dtype=np.bool_)
            named[level, number][numbers] = True
    streams = {other.stream.name: other.stream for other in others if other.stream and _locks_any(core, other, named)}
    for stream in streams.values():
        core.fences.wait(stream, [reads], "R7.7 work of an owner after reads of its slots")


def keep_for_slots(core: Core, reads: Point, key: SlotKey, slots: Int32) -> None:
    """Later use of slots of a pool group runs after reads."""
    pool, fences = core.pool(key), core.fences
    pool.readers[slots] = fences.merged(pool.readers[slots], [fences.again(reads, "R7.7 slot: reads of it")])


def _locks_any(core: Core, request: Request, slots: Mapping[SlotKey, npt.NDArray[np.bool_]]) -> bool:
    """Whether a request has locked a page in one of the slots."""
    found = ((key, part) for key, part in core.by_key(_locked(request)) if key in slots)
    return any(bool(slots[key][core.pages.slot[part]].any()) for key, part in found)


def _locked(request: Request) -> Int32:
    return np.concatenate([request.locked_pages(group) for group in range(request.group_count)])
