"""The executor's side of the cache: admission, dense block offsets and their guard (section 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvgpu.batch import Batch
from kvgpu.device.api import Stream
from kvgpu.errors import InvalidArgument, LogicError
from kvgpu.manager import Manager
from kvgpu.request import Request
from spec.observation import BAD

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LayerOffsets:
    """The offsets of one layer: ``slot * scale + base``, in pages of its first buffer (R1.7, R11.3).

    ``by_request``: int64 ``[blocks]`` by the request's name; BAD stays BAD.
    """

    scale: int
    base: int
    by_request: Mapping[str, Int64]


def admit_generation(manager: Manager, request: Request, stream: Stream) -> bool:
    """Bring a request into decode: an active one enters it, a suspended one resumes with it; false means not now (R11.2).

    ``stream``: the execution stream, for a request that has none yet.
    """
    with manager.exclusive():
        if request.active:
            return manager.enter_decode(request)
        return manager.resume(request, stream if request.stream is None else None, decode=True)


def dense_offsets(
    manager: Manager, batch: Batch, requests: Sequence[Request], layers: Sequence[str] | None = None
) -> dict[str, LayerOffsets]:
    """Block offsets for dense attention, by layer (R11.3). ``layers``: ``None`` for every attention layer.

    Dense offsets cannot address host memory: ``LogicError`` if a request has a block of a sparse group mapped on the host, or is
    not active or not in ``batch``. ``OutOfRange`` for an unknown layer, ``InvalidArgument`` for an SSM layer.
    Publish first: a publication that moves deferred pages can turn a request that passes into one that does not (R11.4).
    """
    with manager.shared():
        for request in requests:
            if request.closed:
                raise LogicError(f"request {request.name!r} is closed: it has no block offsets (R3.13)")
        if not batch.open:
            raise LogicError(f"batch {batch.name!r} is closed (R8.2)")
        layout = manager.layout
        if layers is None:
            layers = [layer for group in layout.groups if not group.ssm for layer in group.layers]
        places = {layer: layout.buffer(layer) for layer in layers}
        for layer, (group, _) in places.items():
            if group.ssm:
                raise InvalidArgument(f"layer {layer!r} is an SSM layer: its state is in no table (R1.3)")
        for request in requests:
            _must_be_dense(manager, batch, request)
        return {
            layer: _layer(requests, group.number, layout.scale(layer), place.index_offset)
            for layer, (group, place) in places.items()
        }


def _must_be_dense(manager: Manager, batch: Batch, request: Request) -> None:
    if request.batch is not batch or not request.active:
        raise LogicError(
            f"request {request.name!r} is not active or not in batch {batch.name!r}: schedule active members alone (R11.3)"
        )
    for group in manager.layout.groups:
        if not group.sparse:
            continue
        off_gpu = request.levels(group.number) >= 1
        if off_gpu.any():
            raise LogicError(
                f"request {request.name!r}, group {group.name!r}: block {int(np.argmax(off_gpu))} is on the host, which dense "
                f"block offsets cannot address: use sparse attention, or bring its history back to the GPU (R11.3)"
            )


def _layer(requests: Sequence[Request], group: int, scale: int, base: int) -> LayerOffsets:
    by_request = {}
    for request in requests:
        slots = request.indices(group).astype(np.int64)
        by_request[request.name] = np.where(slots == BAD, BAD, slots * scale + base)
    return LayerOffsets(scale, base, by_request)
