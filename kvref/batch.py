"""Batches: stable rows, tables, publication (section 8)."""

from __future__ import annotations

from kvref.cached import CapturedFetch
from kvref.failure import invalid, logic
from kvref.lookup import any_batch, live, open_batch
from kvref.order import Work
from kvref.state import EMPTY, NEVER, Batch, Entries, Request, State, Upload, batch_of, fresh, put_request, snapshot
from kvref.values import replace
from kvspec import ops
from kvspec.observation import BAD


def make_batch(state: State, op: ops.MakeBatch) -> tuple[State, None]:
    """R8.1: a batch and its tables, which read -1 and 0 before the first publication."""
    if op.rows < 1 or op.blocks < 1:
        raise invalid(f"batch {op.name!r} of {op.rows} rows and {op.blocks} blocks: expected at least one of each")
    if op.beam_width != 1:
        raise invalid(f"batch {op.name!r} with beam width {op.beam_width}: a batch has beam width 1")
    if any(b.name == op.name and b.open for b in state.batches.values()):
        raise logic(f"batch {op.name!r} is open: close it first, or choose another name")
    gone = [b.uid for b in state.batches.values() if b.name == op.name and not captured(state, b)]
    state, uid = fresh(replace(state, batches=state.batches.without(*gone)))
    blank = tuple(entries_of(state, None, op.blocks) for _ in range(op.rows))
    nobody, nothing = (None,) * op.rows, ((),) * op.rows
    batch = Batch(uid, op.name, nobody, op.blocks, op.levels, (NEVER,) * op.rows, (Upload(Work(), blank),))
    batch = replace(batch, members=nobody, reserved=nothing, retry=op.retry)
    return put_batch(state, batch), None


def put_batch(state: State, batch: Batch) -> State:
    """The state with ``batch`` as it now is."""
    return replace(state, batches=state.batches.set(batch.uid, batch))


def entries_of(state: State, r: Request | None, blocks: int) -> tuple[Entries, ...]:
    """R8.4, R8.5: what a row shows, by attention group: indices, BAD beyond its blocks, and the eligible count."""
    entries: list[Entries] = []
    for g in state.layout.attention:
        s = snapshot(state, r, g.index) if r else None
        indices, levels, count = (s.indices, s.levels, s.eligible) if s else ((), (), 0)
        padding = blocks - len(indices)
        entries.append(Entries(indices + (BAD,) * padding, levels + (None,) * padding, count))
    return tuple(entries)


def would_publish(state: State, batch: Batch, row: int) -> int:
    """R8.3: what a row would publish, by name: its member's version, which no other request has, or that there is none."""
    name = batch.rows[row]
    return EMPTY if name is None else state.requests[name].version


def dirty_rows(state: State, batch: Batch) -> tuple[int, ...]:
    """R8.3: the rows that would publish something else than they last published."""
    return tuple(row for row in range(len(batch.rows)) if would_publish(state, batch, row) != batch.published[row])


def add(state: State, op: ops.Add) -> tuple[State, int]:
    """R8.2: put a request into the given or the first free row, which is returned."""
    batch, r = open_batch(state, op.batch), live(state, op.request)
    current = batch_of(state, r)
    if current == batch:
        row = batch.rows.index(r.name)
        if op.row not in (None, row):
            raise logic(f"request {r.name!r} is in row {row} of this batch already: remove it first")
        return state, row
    if current is not None:
        raise logic(f"request {r.name!r} is in batch {current.name!r}: remove it there first")
    if op.row is not None and not 0 <= op.row < len(batch.rows):
        raise invalid(f"row {op.row}: batch {batch.name!r} has rows 0 to {len(batch.rows) - 1}")
    if op.row is not None and batch.rows[op.row] is not None:
        raise invalid(f"row {op.row} of batch {batch.name!r} is taken by {batch.rows[op.row]!r}")
    if op.row is None and None not in batch.rows:
        raise invalid(f"batch {batch.name!r} has no free row")
    if state.layout.blocks(r.capacity) > batch.blocks:
        raise invalid(
            f"request {r.name!r} has {state.layout.blocks(r.capacity)} blocks, batch {batch.name!r} only {batch.blocks}"
        )
    if r.width > 1:
        raise invalid(f"request {r.name!r} has beam width {r.width}, a batch 1")  # R3.12
    row = batch.rows.index(None) if op.row is None else op.row
    state = put_batch(state, replace(batch, rows=(*batch.rows[:row], r.name, *batch.rows[row + 1 :])))
    return put_request(state, replace(r, row=row)), row


def remove(state: State, op: ops.Remove) -> tuple[State, None]:
    """R8.2: free a request's row; nothing for a request in no batch."""
    batch, r = open_batch(state, op.batch), live(state, op.request)
    current = batch_of(state, r)
    if current is None:
        return state, None
    if current != batch:
        raise logic(f"request {r.name!r} is in batch {current.name!r}, not in {batch.name!r}")
    state = put_batch(state, replace(batch, rows=tuple(None if name == r.name else name for name in batch.rows)))
    return put_request(state, replace(r, row=None)), None


def close_batch(state: State, op: ops.CloseBatch) -> tuple[State, None]:
    """R8.2: release the members without closing them; idempotent. What was published stays for graphs that read it (R8.8)."""
    batch = any_batch(state, op.batch)
    for name in batch.rows:
        if name is not None:
            state = put_request(state, replace(state.requests[name], row=None))
    uploads = batch.uploads if captured(state, batch) else ()
    return put_batch(state, replace(batch, rows=(None,) * len(batch.rows), uploads=uploads, open=False)), None


def captured(state: State, batch: Batch) -> bool:
    """R8.8: whether a graph reads the tables of a batch, or one that is being captured."""
    graphs = [*state.graphs.values(), state.capture.reads if state.capture is not None else ()]
    return any((part.batch if isinstance(part, CapturedFetch) else part[0]) == batch.uid for parts in graphs for part in parts)


def no_capture(state: State, what: str) -> None:
    """R8.8: what is not allowed during capture, on whatever stream."""
    if state.capture is not None:
        raise logic(f"{what} during the capture on stream {state.capture.stream!r}: end the capture first")


def need_published(state: State, batch: Batch) -> None:
    """R8.7: what is refused while anything is unpublished."""
    dirty = dirty_rows(state, batch)
    if dirty:
        raise logic(f"row(s) {', '.join(map(str, dirty))} of batch {batch.name!r} are unpublished: publish first")
