"""Kinds of state: what is so of that which an operation is called on, just before it.

The list is closed. A subject has every kind that is true of it: a request is ``decode`` and has ``deferred pages``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kvspec import ops
from kvspec.audit.coverage.asked import subjects
from kvspec.audit.coverage.past import Past
from kvspec.audit.moment import Moment
from kvspec.config import LayerKind, Level
from kvspec.observation import Observation, Phase, RequestStatus, RequestView


class Subject(StrEnum):
    """What an operation is called on, or needs."""

    REQUEST = "request"
    BATCH = "batch"
    ROOM = "room"
    DEVICE = "device"


class Says(StrEnum):
    """What a kind of state says of a call: that is what it is asked for."""

    MISSING = "missing"
    """There is nothing to call: every way to end is asked for."""
    THERE = "there"
    """There is: the errors of values and names, which come before any look at it."""
    STATUS = "status"
    """Whether the call is allowed now: whatever comes after the check of values and names."""
    TRAIT = "trait"
    """What an allowed call meets."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of state. ``title``: what is true then."""

    subject: Subject
    name: str
    title: str
    says: Says = Says.TRAIT


KINDS: tuple[Kind, ...] = (
    Kind(Subject.REQUEST, "unknown", "there is no request of that name", Says.MISSING),
    Kind(Subject.REQUEST, "closed", "it is closed", Says.MISSING),
    Kind(Subject.REQUEST, "live", "it is there and not closed", Says.THERE),
    Kind(Subject.REQUEST, "new", "it has never been active", Says.STATUS),
    Kind(Subject.REQUEST, "suspended", "it was active, and is suspended in prefill", Says.STATUS),
    Kind(Subject.REQUEST, "suspended, decode", "it is suspended in decode", Says.STATUS),
    Kind(Subject.REQUEST, "prefill", "it is active in prefill", Says.STATUS),
    Kind(Subject.REQUEST, "decode", "it is active in decode", Says.STATUS),
    Kind(Subject.REQUEST, "partial match", "it has matched a part of a block, which the first resume copies"),
    Kind(Subject.REQUEST, "deferred pages", "it is active in decode, and complete history of a sparse group is on the GPU"),
    Kind(Subject.REQUEST, "shared pages", "another request locks or holds one of its pages"),
    Kind(Subject.REQUEST, "kept stale pages", "it keeps stale pages for committing"),
    Kind(Subject.REQUEST, "below the GPU", "it is in prefill, and one of its pages is not on the GPU"),
    Kind(Subject.REQUEST, "pages on disk", "one of its pages is on the disk"),
    Kind(Subject.REQUEST, "beams", "its beam width is over 1"),
    Kind(Subject.REQUEST, "a state", "there is a group of SSM states"),
    Kind(Subject.REQUEST, "nothing sparse", "there is no sparse group"),
    Kind(Subject.REQUEST, "ended", "it commits no more: `end`, `stop_committing`"),
    Kind(Subject.REQUEST, "in a batch", "it is a member of a batch"),
    Kind(Subject.REQUEST, "reserved slots", "it has reserved slots for fetches"),
    Kind(Subject.REQUEST, "own copies", "it has a copy of its own of a page (private ownership)"),
    Kind(Subject.BATCH, "unknown", "there is no batch of that name", Says.MISSING),
    Kind(Subject.BATCH, "closed", "it was closed", Says.MISSING),
    Kind(Subject.BATCH, "open", "it is there and not closed", Says.THERE),
    Kind(Subject.BATCH, "never published", "it has never been published", Says.STATUS),
    Kind(Subject.BATCH, "dirty", "it was published, and a row is dirty", Says.STATUS),
    Kind(Subject.BATCH, "clean", "nothing of it is unpublished", Says.STATUS),
    Kind(Subject.BATCH, "captured", "the manager captures a graph", Says.STATUS),
    Kind(Subject.BATCH, "no members", "no row has a request"),
    Kind(Subject.BATCH, "too large", "a member has more blocks than the batch"),
    Kind(Subject.BATCH, "upload held up", "its last publication is behind a closed gate"),
    Kind(Subject.ROOM, "any", "whatever room there is", Says.THERE),
    Kind(Subject.ROOM, "empty", "there is no page at all"),
    Kind(Subject.ROOM, "room", "every pool group has a free slot"),
    Kind(Subject.ROOM, "GPU tight", "a pool group of the GPU has no free slot, but pages that can be evicted"),
    Kind(Subject.ROOM, "GPU full", "a pool group of the GPU has no free slot, and none of its pages can be evicted"),
    Kind(Subject.ROOM, "host tight", "the same of the host"),
    Kind(Subject.ROOM, "host full", "the same of the host"),
    Kind(Subject.ROOM, "disk tight", "the same of the disk"),
    Kind(Subject.ROOM, "disk full", "the same of the disk"),
    Kind(Subject.DEVICE, "any", "whether it captures or not", Says.THERE),
    Kind(Subject.DEVICE, "no capture", "the manager does not capture", Says.STATUS),
    Kind(Subject.DEVICE, "captured", "the manager captures a graph", Says.STATUS),
)
"""Every kind, in the order of the tables."""


def kinds_before(moment: Moment, past: Past) -> set[tuple[Subject, str]]:
    """The kinds of state that what an operation is called on had before it."""
    found: set[tuple[Subject, str]] = set()
    for subject in map(Subject, subjects(moment.verb)):
        match subject:
            case Subject.REQUEST:
                found |= {(subject, name) for one in _requests(moment) for name in of_request(moment, past, one)}
            case Subject.BATCH:
                batch = _batch(moment.op)
                found |= {(subject, name) for name in _of_batch(moment, past, batch)} if batch is not None else set()
            case Subject.ROOM:
                found |= {(subject, name) for name in of_room(moment.before.observation)}
            case Subject.DEVICE:
                found |= {(subject, "any"), (subject, "no capture" if moment.trail.memory.capturing is None else "captured")}
    return found


def _requests(moment: Moment) -> Iterable[str]:
    op = moment.op
    if isinstance(op, ops.Fetch):
        return op.select
    if isinstance(op, ops.DenseOffsets):
        return op.requests
    if isinstance(op, ops.Iterate | ops.ResizeBatch | ops.Publish):
        return moment.actors
    name = getattr(op, "request", None)
    return (name,) if isinstance(name, str) else ()


def _batch(op: ops.Operation) -> str | None:
    name = op.name if isinstance(op, ops.MakeBatch) else getattr(op, "batch", None)
    return name if isinstance(name, str) else None


def of_request(moment: Moment, past: Past, name: str) -> Iterator[str]:
    """The kinds of a request."""
    view = moment.was(name)
    if view is None or view.status is RequestStatus.CLOSED:
        yield "unknown" if view is None else "closed"
        return
    yield "live"
    decode = view.phase is Phase.DECODE
    if view.status is RequestStatus.ACTIVE:
        yield "decode" if decode else "prefill"
    elif name not in past.resumed:
        yield "new"
        if view.committed % moment.manager.tokens_per_block:
            yield "partial match"
    else:
        yield "suspended, decode" if decode else "suspended"
    layers = moment.manager.layers
    sparse = {layer.name for layer in layers if layer.sparse}
    if decode and view.status is RequestStatus.ACTIVE and _deferred(moment, view, sparse):
        yield "deferred pages"
    if not sparse:
        yield "nothing sparse"
    if any(layer.kind is LayerKind.SSM for layer in layers):
        yield "a state"
    if view.beam_width > 1:
        yield "beams"
    if name in past.ended:
        yield "ended"
    if view.batch is not None:
        yield "in a batch"
    if moment.before.observation.reserved.get(name):
        yield "reserved slots"
    yield from _pages(moment, name, decode)


def _deferred(moment: Moment, view: RequestView, sparse: set[str]) -> bool:
    complete = view.history // moment.manager.tokens_per_block
    return any(
        Level.GPU in snapshot.levels[:complete] for (group, _), snapshot in view.snapshots.items() if complete and group in sparse
    )


def _pages(moment: Moment, name: str, decode: bool) -> Iterator[str]:
    found: set[str] = set()
    for page in moment.before.pages:
        if page.copy_of == name:
            found.add("own copies")
        mine = [ref for ref in page.refs if ref.request == name]
        if not mine:
            continue
        if len(page.refs) > len(mine):
            found.add("shared pages")
        if page.level is Level.DISK:
            found.add("pages on disk")
        if page.level is not Level.GPU and not decode:
            found.add("below the GPU")
        if "kept stale pages" not in found and any(ref.request == name for ref in moment.keepers_of_stale(page, moment.before)):
            found.add("kept stale pages")
    yield from sorted(found)


def _of_batch(moment: Moment, past: Past, name: str) -> Iterator[str]:
    view = moment.before.observation.batches.get(name)
    if view is None:
        yield "closed" if name in past.closed else "unknown"
        return
    yield "open"
    memory = moment.trail.memory
    known = memory.batches.get(name)
    if memory.capturing is not None:
        yield "captured"
    elif known is None or not known.published:
        yield "never published"
    else:
        yield "dirty" if view.dirty_rows else "clean"
    members = [moment.before.observation.requests[row] for row in view.rows if row is not None]
    if not members:
        yield "no members"
    size = view.blocks * moment.manager.tokens_per_block
    if any(member.capacity > size for member in members):
        yield "too large"
    if view.upload.pending:
        yield "upload held up"


def of_room(seen: Observation) -> Iterator[str]:
    """The kinds of room that a manager has."""
    yield "any"
    if not seen.pages:
        yield "empty"
    short = {(level, bool(pool.evictable)) for (level, _), pool in seen.pools.items() if not pool.free}
    if not short:
        yield "room"
    for level, evictable in sorted(short):
        yield f"{'GPU' if level is Level.GPU else level.label} {'tight' if evictable else 'full'}"
