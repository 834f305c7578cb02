"""Batches: stable rows, tables, publication (section 8)."""

from __future__ import annotations

from dataclasses import replace

from kvref.copies import refuses
from kvref.eviction import act, new_plan
from kvref.failure import Failure, NoRoom, invalid, logic
from kvref.growth import check_ended, check_values, resized
from kvref.layout import Place
from kvref.lookup import any_batch, any_request, attempt, live, need_active, need_stream, open_batch
from kvref.offload import offload, offload_of, plan_offload
from kvref.order import Work, join, pending
from kvref.pages import fence_slot, follow, renew, submit_visible
from kvref.state import (
    EMPTY,
    NEVER,
    Batch,
    Request,
    State,
    Upload,
    Words,
    batch_of,
    fresh,
    mapped,
    owners,
    place_of,
    put_request,
    snapshot,
)
from kvref.versions import settle
from spec import ops
from spec.errors import ErrorKind
from spec.observation import BAD
from spec.ops import Direction


def make_batch(state: State, op: ops.MakeBatch) -> tuple[State, None]:
    """R8.1: a batch and its tables, which read -1 and 0 before the first publication."""
    if op.rows < 1 or op.blocks < 1:
        raise invalid(f"batch {op.name!r} of {op.rows} rows and {op.blocks} blocks: expected at least one of each")
    if op.beam_width != 1:
        raise invalid(f"batch {op.name!r} with beam width {op.beam_width}: a batch has beam width 1")
    if any(b.name == op.name and b.open for b in state.batches.values()):
        raise logic(f"batch {op.name!r} is open: close it first, or choose another name")
    state, uid = fresh(state)
    blank = tuple(words_of(state, None, op.blocks) for _ in range(op.rows))
    batch = Batch(uid, op.name, (None,) * op.rows, op.blocks, op.levels, (NEVER,) * op.rows, (Upload(Work(), blank),))
    return put_batch(state, batch), None


def put_batch(state: State, batch: Batch) -> State:
    """The state with ``batch`` as it now is."""
    return replace(state, batches=state.batches.set(batch.uid, batch))


def words_of(state: State, r: Request | None, blocks: int) -> tuple[Words, ...]:
    """R8.4, R8.5: what a row publishes, by attention group: indices, BAD beyond its blocks, and the eligible count."""
    words: list[Words] = []
    for g in state.layout.attention:
        s = snapshot(state, r, g.index) if r else None
        indices, levels, count = (s.indices, s.levels, s.eligible) if s else ((), (), 0)
        padding = blocks - len(indices)
        words.append(Words(indices + (BAD,) * padding, levels + (None,) * padding, count))
    return tuple(words)


def would_publish(state: State, batch: Batch, row: int) -> int:
    """R8.3: what a row would publish, by name: its member's version, which no other request has, or that there is none."""
    name = batch.rows[row]
    return EMPTY if name is None else state.requests[name].version


def dirty_rows(state: State, batch: Batch) -> tuple[int, ...]:
    """R8.3: the rows that would publish something else than they last published."""
    return tuple(row for row in range(len(batch.rows)) if would_publish(state, batch, row) != batch.published[row])


def add(state: State, op: ops.Add) -> tuple[State, int]:
    """R8.2: put a request into the given or the first free row, which is returned."""
    batch, r = any_batch(state, op.batch), any_request(state, op.request)
    open_batch(state, op.batch)
    live(state, op.request)
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
    batch, r = any_batch(state, op.batch), any_request(state, op.request)
    open_batch(state, op.batch)
    live(state, op.request)
    current = batch_of(state, r)
    if current is None:
        return state, None
    if current != batch:
        raise logic(f"request {r.name!r} is in batch {current.name!r}, not in {batch.name!r}")
    state = put_batch(state, replace(batch, rows=tuple(None if name == r.name else name for name in batch.rows)))
    return put_request(state, replace(r, row=None)), None


def close_batch(state: State, op: ops.CloseBatch) -> tuple[State, None]:
    """R8.2: release the members without closing them; idempotent. What was published stays in memory (R8.7)."""
    batch = any_batch(state, op.batch)
    for name in batch.rows:
        if name is not None:
            state = put_request(state, replace(state.requests[name], row=None))
    return put_batch(state, replace(batch, rows=(None,) * len(batch.rows), open=False)), None


def publish(state: State, op: ops.Publish) -> tuple[State, tuple[int, ...]]:
    """R8.4: retry the members' deferred pages, then publish the dirty rows, which are returned."""
    batch = open_batch(state, op.batch)
    need_stream(state, op.stream)
    no_capture(state, "publish")
    return publication(state, batch, op.stream)


def publication(state: State, batch: Batch, stream: str) -> tuple[State, tuple[int, ...]]:
    """R8.4, R8.6: the publication itself. What was moved before a failure stays, and is dirty."""
    members = [state.requests[name] for name in batch.rows if name is not None]
    for r in members:
        if state.layout.blocks(r.capacity) > batch.blocks:
            raise invalid(
                f"request {r.name!r} has outgrown batch {batch.name!r}: {state.layout.blocks(r.capacity)} of {batch.blocks}"
            )
    for r in members:
        state = retry(state, r)
    state = settle(state)
    rows = dirty_rows(state, batch)
    if not rows:
        return follow(state, stream, batch.uploads[-1].work), ()
    return upload(state, batch, rows, stream), rows


def retry(state: State, r: Request) -> State:
    """R4.3, R8.6: the deferred pages of an active decoding member, all or nothing; all that may move must find a slot."""

    def acting(s: State) -> State:
        work = offload_of(s, r, None)
        plan, chosen = plan_offload(s, new_plan(s, mapped(s, r).values()), work)
        return offload(act(s, plan), chosen)

    try:
        return attempt(state, acting)
    except NoRoom as full:
        raise Failure(ErrorKind.OUT_OF_PAGES, f"deferred pages of {r.name!r}: {full.message}", state) from None


def upload(state: State, batch: Batch, rows: tuple[int, ...], stream: str) -> State:
    """R8.4, R7.5: write rows to the tables in one upload, and acknowledge exactly the versions written.

    It runs after the readiness of every page in the rows, the reads recorded on the tables, the previous publication, and the
    stream. R7.6: each upload in flight has a staging buffer to itself.
    """
    members = [(row, state.requests[name]) for row in rows if (name := batch.rows[row]) is not None]
    pages = [p for _, r in members if r.active for p in mapped(state, r).values() if not state.layout.groups[p.group].ssm]
    behind = join(*(p.ready for p in pages), batch.reads, batch.uploads[-1].work)
    state, refused, queued = refuses(state, Direction.UPLOAD)
    in_flight = [u.work for u in batch.uploads if pending(u.work, state.gates)]
    stuck = [work for work in batch.refused if pending(work, state.gates)]
    staging = max(batch.staging, len(in_flight) + len(stuck) + 1)
    if refused:
        if queued:
            waiting = join(state.streams[stream].last, behind)
            state = put_batch(state, replace(batch, refused=(*stuck, waiting), staging=staging))
        raise Failure(
            ErrorKind.COPY_FAILED, f"the upload of {len(rows)} row(s) of batch {batch.name!r} was refused: publish again", state
        )
    state, work = submit_visible(state, stream, behind)
    table = list(batch.uploads[-1].rows)
    published = list(batch.published)
    for row in rows:
        name = batch.rows[row]
        table[row] = words_of(state, state.requests[name] if name is not None else None, batch.blocks)
        published[row] = would_publish(state, batch, row)
    for _, r in members:
        state = put_request(state, replace(r, acknowledged=r.version))
    last_run = max((i for i, u in enumerate(batch.uploads) if not pending(u.work, state.gates)), default=0)
    uploads = (*batch.uploads[last_run:], Upload(work, tuple(table)))
    return put_batch(state, replace(batch, published=tuple(published), uploads=uploads, refused=tuple(stuck), staging=staging))


def no_capture(state: State, what: str) -> None:
    """R8.8: what is not allowed during capture, on whatever stream."""
    if state.capture is not None:
        raise logic(f"{what} during the capture on stream {state.capture.stream!r}: end the capture first")


def need_published(state: State, batch: Batch) -> None:
    """R8.7: what is refused while anything is unpublished."""
    dirty = dirty_rows(state, batch)
    if dirty:
        raise logic(f"row(s) {', '.join(map(str, dirty))} of batch {batch.name!r} are unpublished: publish first")


def wait_ready(state: State, op: ops.WaitReady) -> tuple[State, None]:
    """R8.7: order a stream after the publication."""
    batch = open_batch(state, op.batch)
    need_stream(state, op.stream)
    need_published(state, batch)
    no_capture(state, "wait_ready")
    return follow(state, op.stream, batch.uploads[-1].work), None


def record_read(state: State, op: ops.RecordRead) -> tuple[State, None]:
    """R7.7: order later writes and later use of slots after the reads so far on a stream."""
    if (op.batch is None) == (op.request is None):
        raise invalid("record_read is of a batch or of a request: name one")
    if op.batch is not None:
        return record_table_read(state, open_batch(state, op.batch), op.stream), None
    assert op.request is not None
    r = live(state, op.request)
    need_stream(state, op.stream)
    need_active(r)
    if batch_of(state, r) is not None:
        raise logic(f"request {r.name!r} is a member of a batch: record the reads of the batch")
    reads = state.streams[op.stream].last
    for page in mapped(state, r).values():
        state = fence_slot(state, place_of(state, page), page.slot, reads, read=True)
    return follow(state, r.stream, reads), None


def record_table_read(state: State, batch: Batch, stream: str) -> State:
    """R7.7 of a batch: its tables, the streams of its active members, and every slot that the published tables name."""
    need_stream(state, stream)
    no_capture(state, "record_read")
    reads = state.streams[stream].last
    state = put_batch(state, replace(batch, reads=join(batch.reads, reads)))
    for name in batch.rows:
        if name is not None and state.requests[name].active:
            state = follow(state, state.requests[name].stream, reads)
    for place, slot in named_slots(state, batch):
        state = fence_slot(state, place, slot, reads, read=True)
        for page in state.pages.values():
            if place_of(state, page) == place and page.slot == slot:  # whoever has it now
                for owner in owners(state, page):
                    state = follow(state, owner.stream, reads)
    return state


def named_slots(state: State, batch: Batch) -> list[tuple[Place, int]]:
    """The slots that the published tables name, each once."""
    named: dict[tuple[Place, int], None] = {}
    for row in batch.uploads[-1].rows:
        for g, words in zip(state.layout.attention, row, strict=True):
            for index, level in zip(words.indices, words.levels, strict=True):
                if level is not None:
                    named[state.layout.place(level, g.index), index] = None
    return list(named)


def resize_batch(state: State, op: ops.ResizeBatch) -> tuple[State, tuple[bool | None, ...]]:
    """R8.9: check all rows, resize each member by itself, then publish. Each active member's result; none for other rows."""
    batch = open_batch(state, op.batch)
    need_stream(state, op.stream)
    no_capture(state, "resize")
    count = len(batch.rows)
    capacities = (None,) * count if op.capacities is None else op.capacities
    histories = (None,) * count if op.histories is None else op.histories
    if len(capacities) != count or len(histories) != count:
        raise invalid(f"lists of {len(capacities)} and {len(histories)} values: batch {batch.name!r} has {count} rows")
    asked = list(zip(batch.rows, capacities, histories, strict=True))
    for row, (name, capacity, history) in enumerate(asked):
        limit = batch.blocks * state.layout.tpb
        for value in (capacity, history):
            if value is not None and (name is None or not 0 <= value <= limit):
                raise invalid(f"row {row}: value {value}; expected 0 to {limit}, and none for an empty row")
        if name is not None and (capacity, history) != (None, None):
            check_values(state, state.requests[name], capacity, history)
    for name, capacity, history in asked:
        if name is not None and (capacity, history) != (None, None):
            need_active(state.requests[name])
            check_ended(state, state.requests[name], capacity, history)
    results: list[bool | None] = []
    refused: Failure | None = None
    for name, capacity, history in asked:
        if name is None or not state.requests[name].active:
            results.append(None)
            continue
        before = state
        try:
            state = attempt(state, lambda s, n=name, c=capacity, h=history: resized(s, s.requests[n], c, h))  # type: ignore[misc]
            results.append(True)
        except NoRoom:
            results.append(False)
        except Failure as failure:
            assert failure.state is not None
            refused = refused or failure
            state = failure.state
            results.append(False)
        state = renew(before, state)
    try:
        state, _ = publication(settle(state), state.batches[batch.uid], op.stream)
    except Failure as failure:
        raise Failure(failure.kind, failure.message, failure.state or settle(state)) from None
    if refused is not None:
        raise Failure(refused.kind, refused.message, state)
    return state, tuple(results)
