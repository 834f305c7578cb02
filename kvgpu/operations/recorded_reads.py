"""Reads that a request records: later use of its slots, and its own later work, runs after the reads (R7.7)."""

from __future__ import annotations

import numpy as np

from kvgpu.device.api import Stream
from kvgpu.operations.state import Core
from kvgpu.requests.request import Request

OF_SLOT = "R7.7 slot: reads of it"
"""Why reads are kept for a slot."""


def of_request(core: Core, request: Request, stream: Stream) -> None:
    """Order later use of all that an active request has mapped, and its own stream, after the reads so far on a stream."""
    reads = core.fences.record(stream, "R7.7 reads of a request so far")
    assert request.stream is not None
    core.fences.wait(request.stream, [reads], "R7.7 work of a request after its reads")
    kept = [core.fences.again(reads, OF_SLOT)]
    locked = np.concatenate([request.locked_pages(group) for group in range(request.group_count)])
    for key, part in core.by_key(locked):
        core.pool(key).note_reads(core.pages.slot[part], kept)
