"""Reads that users see, and the order that recording them makes (R7.7, R8.7, R8.8)."""

from __future__ import annotations

from kvref.batch import need_published, no_capture, put_batch
from kvref.failure import invalid, logic, out_of_range
from kvref.layout import PoolGroup
from kvref.lookup import live, need_active, need_blocks, need_no_capture, need_stream, only_group, open_batch
from kvref.order import join
from kvref.pages import at_slots, fence_slots, follow, submit_visible
from kvref.requests import need_beam
from kvref.reserving import slots_of
from kvref.state import Batch, Read, State, batch_of, locked, mapped, pool_group_of
from kvref.values import replace
from kvspec import ops


def read_page(state: State, op: ops.ReadPage) -> tuple[State, None]:
    """A device read of a page where it is now. It waits for nothing by itself."""
    r = live(state, op.request)
    need_stream(state, op.stream)
    group = only_group(state, op.group, range(len(state.layout.groups)))
    need_blocks((op.block,))
    need_beam(r, op.beam)
    need_active(r)
    need_no_capture(state, op.stream)
    page = mapped(state, r).get((group, op.block, op.beam))
    if page is None:
        raise logic(f"{r.name}.{state.layout.groups[group].name}.{op.block} is stale or absent: there is no page to read")
    state, work = submit_visible(state, op.stream)
    return replace(state, reads=state.reads.set(op.as_, Read(work, payload=page.content))), None


def table_group(state: State, name: str | None) -> int:
    """The number of the table of a group; an SSM group has none (R1.3)."""
    tables = [g.index for g in state.layout.attention]
    group = only_group(state, name, tables)
    if group not in tables:
        raise out_of_range(f"group {name!r} is not in the tables: it is an SSM group")
    return tables.index(group)


def read_table(state: State, op: ops.ReadTable) -> tuple[State, None]:
    """R8.7: a device read of a page table through the exported array, after the publication; R8.8: captured during a capture."""
    batch = open_batch(state, op.batch)
    need_stream(state, op.stream)
    table = table_group(state, op.group)
    need_published(state, batch)
    if state.capture is not None and state.capture.stream == op.stream:
        capture = replace(state.capture, reads=(*state.capture.reads, (batch.uid, table)))
        return replace(state, capture=capture), None
    state, read = read_of(state, batch, table, op.stream)
    return replace(state, reads=state.reads.set(op.as_, read)), None


def read_of(state: State, batch: Batch, table: int, stream: str) -> tuple[State, Read]:
    """A table read on a stream: it runs after the last publication, and returns what that published."""
    last = batch.uploads[-1]
    state, work = submit_visible(state, stream, last.work)
    return state, Read(work, tuple(row[table].indices for row in last.rows))


def record_read(state: State, op: ops.RecordRead) -> tuple[State, None]:
    """R7.7: order later writes and later use of slots after the reads so far on a stream."""
    batch = None if op.batch is None else open_batch(state, op.batch)
    r = None if op.request is None else live(state, op.request)
    need_stream(state, op.stream)
    if batch is not None and r is None:
        return record_table_read(state, batch, op.stream), None
    if r is None or batch is not None:
        raise invalid("record_read is of a batch or of a request: name one")
    need_active(r)
    if batch_of(state, r) is not None:
        raise logic(f"request {r.name!r} is a member of a batch: record the reads of the batch")
    no_capture(state, "record_read")
    reads = state.streams[op.stream].last
    state = fence_slots(state, {(pool_group_of(state, p), p.slot): reads for p in mapped(state, r).values()}, read=True)
    return follow(state, r.stream, reads), None


def record_table_read(state: State, batch: Batch, stream: str) -> State:
    """R7.7 of a batch: its tables, the streams of its active members, and every slot that the published tables name."""
    no_capture(state, "record_read")
    reads = state.streams[stream].last
    state = put_batch(state, replace(batch, reads=join(batch.reads, reads)))
    for name in batch.rows:
        if name is not None and state.requests[name].active:
            state = follow(state, state.requests[name].stream, reads)
    rows = [state.reservations[number] for numbers in batch.reserved for number in numbers]
    named = [*named_slots(state, batch), *(at for one in rows for at in slots_of(state, one))]  # R15.7
    state = fence_slots(state, dict.fromkeys(named, reads), read=True)
    owned, occupied = locked(state), at_slots(state)
    now = [owner for at in named if at in occupied for owner in owned.get(occupied[at].id, ())]  # whoever has it now
    for followed in dict.fromkeys(owner.stream for owner in now):
        state = follow(state, followed, reads)
    return state


def named_slots(state: State, batch: Batch) -> list[tuple[PoolGroup, int]]:
    """The slots that the published tables name, each once."""
    named: dict[tuple[PoolGroup, int], None] = {}
    for row in batch.uploads[-1].rows:
        for g, shown in zip(state.layout.attention, row, strict=True):
            for index, level in zip(shown.indices, shown.levels, strict=True):
                if level is not None:
                    named[state.layout.pool_group(level, g.index), index] = None
    return list(named)
