"""Publication: deferred pages, dirty rows, one upload; and the resize of a whole batch (R8.3-R8.9)."""

from __future__ import annotations

from functools import partial

from kvref.all_or_nothing import fits, must_fit, part
from kvref.batch import dirty_rows, entries_of, need_published, no_capture, put_batch, would_publish
from kvref.copies import refuses
from kvref.failure import Failure, invalid
from kvref.growth import check_ended, check_values, resized
from kvref.lookup import need_active, need_stream, open_batch
from kvref.offload import move_history
from kvref.order import join, pending
from kvref.pages import follow, submit_visible
from kvref.reserving import forget, reservation
from kvref.state import Batch, Request, State, Upload, mapped, put_request
from kvref.values import replace
from kvref.versions import settle
from kvspec import ops
from kvspec.errors import ErrorKind
from kvspec.ops import Direction


def publish(state: State, op: ops.Publish) -> tuple[State, tuple[int, ...]]:
    """R8.4: retry the members' deferred pages, then publish the dirty rows, which are returned."""
    batch = open_batch(state, op.batch)
    need_stream(state, op.stream)
    no_capture(state, "publish")
    return publication(state, batch, op.stream)


def publication(state: State, batch: Batch, stream: str) -> tuple[State, tuple[int, ...]]:
    """R8.4, R8.6: the publication itself. What was moved before a failure stays, and is dirty.

    R8.10: a member may outgrow the batch by its own resize; it is an error here.
    """
    members = [state.requests[name] for name in batch.rows if name is not None]
    for r in members:
        if state.layout.blocks(r.capacity) > batch.blocks:
            raise invalid(
                f"request {r.name!r} has outgrown batch {batch.name!r}: {state.layout.blocks(r.capacity)} of {batch.blocks}"
            )
    for r in members:
        state = retry(state, r, batch.retry)
    state = settle(state)
    rows = dirty_rows(state, batch)
    if not rows:
        return follow(state, stream, batch.uploads[-1].work), ()
    return upload(state, batch, rows, stream), rows


def retry(state: State, r: Request, how: ops.Retry) -> State:
    """R4.3, R8.6: the deferred pages of an active decoding member, all or nothing. With ``strict`` all that may move must find a
    slot; with ``lenient`` those move that find one.
    """
    must = None if how is ops.Retry.STRICT else ()
    return must_fit(state, lambda s: move_history(s, s.requests[r.name], must), f"deferred pages of {r.name!r}: ")


def upload(state: State, batch: Batch, rows: tuple[int, ...], stream: str) -> State:
    """R8.4, R7.5: write rows to the tables in one upload, and acknowledge exactly the versions written.

    It runs after the readiness of every page in the rows, the reads recorded on the tables, the previous publication, and the
    stream. R7.6: each upload in flight has a staging buffer to itself.
    """
    members = [(row, state.requests[name]) for row in rows if (name := batch.rows[row]) is not None]
    pages = [p for _, r in members if r.active for p in mapped(state, r).values() if not state.layout.groups[p.group].ssm]
    behind = join(*(p.ready for p in pages), batch.reads, batch.uploads[-1].work, *batch.refused)
    state, refused, queued = refuses(state, Direction.UPLOAD)
    in_flight = [u.work for u in batch.uploads if pending(u.work, state.gates)]
    stuck = [work for work in batch.refused if pending(work, state.gates)]
    staging = max(batch.staging, len(in_flight) + len(stuck) + 1)
    if refused:
        if queued:
            # R8.4: it stays on the stream, and the next publication runs after what it had to wait for.
            state = follow(state, stream, behind)
            state = put_batch(state, replace(batch, refused=(*stuck, state.streams[stream].last), staging=staging))
        raise Failure(
            ErrorKind.COPY_FAILED, f"the upload of {len(rows)} row(s) of batch {batch.name!r} was refused: publish again", state
        )
    state, work = submit_visible(state, stream, behind)
    table = list(batch.uploads[-1].rows)
    published = list(batch.published)
    for row in rows:
        name = batch.rows[row]
        table[row] = entries_of(state, state.requests[name] if name is not None else None, batch.blocks)
        published[row] = would_publish(state, batch, row)
    for _, r in members:
        state = put_request(state, replace(r, acknowledged=r.version))
    last_run = max((i for i, u in enumerate(batch.uploads) if not pending(u.work, state.gates)), default=0)
    uploads = (*batch.uploads[last_run:], Upload(work, tuple(table)))
    batch = replace(batch, published=tuple(published), uploads=uploads, refused=tuple(stuck), staging=staging)
    return forget(put_batch(state, published_rows(state, batch, rows)))


def published_rows(state: State, batch: Batch, rows: tuple[int, ...]) -> Batch:
    """R15.7: the batch that remembers who is in the rows written, and what they have reserved."""
    members, reserved = list(batch.members), list(batch.reserved)
    for row in rows:
        name = batch.rows[row]
        members[row] = name
        own = [reservation(state, state.requests[name], g.index) for g in state.layout.groups] if name is not None else []
        reserved[row] = tuple(one.id for one in own if one is not None)
    return replace(batch, members=tuple(members), reserved=tuple(reserved))


def wait_ready(state: State, op: ops.WaitReady) -> tuple[State, None]:
    """R8.7: order a stream after the publication."""
    batch = open_batch(state, op.batch)
    need_stream(state, op.stream)
    need_published(state, batch)
    no_capture(state, "wait_ready")
    return follow(state, op.stream, batch.uploads[-1].work), None


Asked = list[tuple[str | None, int | None, int | None]]
"""By row: its member, and the capacity and history that are asked for."""


def resize_batch(state: State, op: ops.ResizeBatch) -> tuple[State, tuple[bool | None, ...]]:
    """R8.9: check all rows, resize each member by itself, then publish. Each active member's result; none for other rows."""
    batch = open_batch(state, op.batch)
    need_stream(state, op.stream)
    no_capture(state, "resize")
    asked = check_lengths(state, batch, op)
    state, results, refused = resize_members(state, asked)
    state, _ = part(settle(state), lambda s: publication(s, s.batches[batch.uid], op.stream))
    if refused is not None:
        raise Failure(refused.kind, refused.message, state)
    return state, results


def check_lengths(state: State, batch: Batch, op: ops.ResizeBatch) -> Asked:
    """R8.9: every check that needs no action, over all rows."""
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
    return asked


def resize_members(state: State, asked: Asked) -> tuple[State, tuple[bool | None, ...], Failure | None]:
    """R8.9: each active member's resize by itself. Their results, and the first copy that was refused, which stops no other."""
    results: list[bool | None] = []
    refused: Failure | None = None
    for name, capacity, history in asked:
        if name is None or not state.requests[name].active:
            results.append(None)
            continue
        acting = partial(resized_member, name=name, capacity=capacity, history=history)
        try:
            state, fitted = part(state, partial(fits, request=name, acting=acting))
        except Failure as failure:
            assert failure.state is not None
            refused, state, fitted = refused or failure, failure.state, False
        results.append(fitted)
    return state, tuple(results), refused


def resized_member(state: State, name: str, capacity: int | None, history: int | None) -> State:
    """R3.6: the acting part of one member's resize."""
    return resized(state, state.requests[name], capacity, history)
