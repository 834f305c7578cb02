"""What is asked of a manager: buffers, dense offsets, counters (R1.7, R11.3, R13.1)."""

from __future__ import annotations

from kvref.failure import invalid, logic, out_of_range
from kvref.layout import Buffer, Group
from kvref.lookup import live, open_batch
from kvref.maps import Map
from kvref.state import Request, State, batch_of, mapped, snapshot
from kvref.values import replace
from kvspec import ops
from kvspec.config import Level
from kvspec.observation import BAD, Counters, GroupCounters
from kvspec.system import OffsetTable


def buffer(state: State, layer: str, role: str | None = None) -> tuple[Group, Buffer]:
    """R1.7: a buffer by layer and role; the layer's first where no role is named."""
    found = state.layout.buffer(layer, role)
    if found is None:
        raise out_of_range(f"no buffer {layer}.{role}" if role else f"no layer {layer!r}")
    return found


def scale(b: Buffer) -> int:
    """R1.7: slot bytes of the buffer's pool / bytes of the buffer."""
    return b.slot_bytes // b.bytes


def is_sparse(state: State, op: ops.IsSparse) -> tuple[State, bool]:
    """R1.7: whether a buffer is sparse."""
    return state, buffer(state, op.layer, op.role)[0].sparse


def page_index_scale(state: State, op: ops.PageIndexScale) -> tuple[State, int]:
    """R1.7: the factor from slot number to the buffer's page index."""
    return state, scale(buffer(state, op.layer, op.role)[1])


def dense_offsets(state: State, op: ops.DenseOffsets) -> tuple[State, OffsetTable]:
    """R11.3: block offsets by layer and request: index times scale plus the layer's offset; BAD stays BAD.

    Refused if, and only if, a scheduled request has a block of a sparse group mapped at level >= 1.
    """
    batch = open_batch(state, op.batch)
    requests = [live(state, name) for name in op.requests]
    attention = [name for g in state.layout.attention for name in g.layers]
    buffers = {layer: buffer(state, layer) for layer in (op.layers if op.layers is not None else attention)}
    for layer, (g, _) in buffers.items():
        if g.ssm:
            raise invalid(f"layer {layer!r} is an SSM layer: it has no blocks, so no offsets")
    for r in requests:
        member = batch_of(state, r)
        if not r.active or member is None or member.uid != batch.uid:
            raise logic(f"request {r.name!r} is not an active member of batch {batch.name!r}: it cannot be scheduled")
    for r in requests:
        check_on_device(state, r)
    offsets = {
        layer: {
            r.name: tuple(
                BAD if index == BAD else index * scale(b) + b.offset // b.bytes for index in snapshot(state, r, g.index).indices
            )
            for r in requests
        }
        for layer, (g, b) in buffers.items()
    }
    return state, OffsetTable(
        {layer: scale(b) for layer, (_, b) in buffers.items()},
        {layer: b.offset // b.bytes for layer, (_, b) in buffers.items()},
        offsets,
    )


def check_on_device(state: State, r: Request) -> None:
    """R11.3: dense attention cannot address host memory."""
    for (group, block, _), page in mapped(state, r).items():
        g = state.layout.groups[group]
        if g.sparse and page.level is not Level.GPU:
            raise logic(f"{r.name}.{g.name}.{block} is at level {page.level.label}: dense attention cannot read it there")


def since_reset(state: State) -> Counters:
    """R13.1: the counters since they were last reset."""
    groups = {
        name: GroupCounters(
            now.offload_pages - then.offload_pages,
            now.offload_bytes - then.offload_bytes,
            now.onboard_pages - then.onboard_pages,
            now.onboard_bytes - then.onboard_bytes,
            now.copy_pages - then.copy_pages,
            now.drop_pages - then.drop_pages,
            now.attach_pages - then.attach_pages,
            now.fetch_hits - then.fetch_hits,
            now.fetch_misses - then.fetch_misses,
            now.fetch_bytes - then.fetch_bytes,
        )
        for name, now in state.counters.groups.items()
        for then in (state.reset.groups[name],)
    }
    return Counters(Map(groups), state.counters.suspends - state.reset.suspends, state.counters.resumes - state.reset.resumes)


def stats(state: State, op: ops.Stats) -> tuple[State, Counters]:
    """R13.1: read the counters, and reset them."""
    counters = since_reset(state)
    return (replace(state, reset=state.counters) if op.reset else state), counters
