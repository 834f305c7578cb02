"""Reached states of requests, pages and the order of work, under whatever policy."""

from __future__ import annotations

from collections.abc import Iterable

from kvspec import ops
from kvspec.audit.moment import Moment
from kvspec.audit.states.registry import Recognise, state
from kvspec.config import Level
from kvspec.errors import ErrorKind
from kvspec.observation import PageRef, PageStatus, PageView, Removed, RequestStatus, Stored
from kvspec.tokens import Keyed, Token, keyed, numbers

GROWING = ("resize", "resize_batch", "iterate", "commit")
"""The verbs with which a history or a capacity grows."""


# -- room -----------------------------------------------------------------------------------------------------


@state("offload evicts", "a bare offload that makes room on the host")
def _offload_evicts(m: Moment) -> bool:
    return m.verb == "offload" and m.succeeded and m.made_room


@state("commit stops, full", "a commit of which a later block finds no room")
def _commit_full(m: Moment) -> bool:
    return m.outcome.error is ErrorKind.OUT_OF_PAGES and _stopped(m)


@state("commit stops, refused", "a commit of which a later block's copy is refused")
def _commit_refused(m: Moment) -> bool:
    return m.refused and _stopped(m)


def _stopped(m: Moment) -> bool:
    if not isinstance(m.op, ops.Commit):
        return False
    was, now = m.was(m.op.request), m.now(m.op.request)
    return was is not None and now is not None and now.committed > was.committed


@state("cascade, drop above", "a page that has to move goes with a page that was dropped above it")
def _drop_above(m: Moment) -> bool:
    if not m.dropped or isinstance(m.op, ops.ClearReusable):
        return False
    roots = _roots(m)
    for page in m.dropped:
        needed = m.pool(page) in m.arrived or (isinstance(m.op, ops.Evict) and m.pool(page) == _pool_of(m, m.op))
        if not needed:
            continue
        above = [other for other in m.dropped if other.tokens in roots and _is_above(other, page)]
        if above and all(other.level > page.level and _asked_from_above(m, other) for other in above):
            return True
    return False


def _roots(m: Moment) -> set[tuple[Token, ...]]:
    """The tree blocks that left first, each with all below it (R10.3)."""
    removed = [event.tokens for event in m.after.observation.events if isinstance(event, Removed)]
    return {
        tokens for tokens in removed if not any(len(other) < len(tokens) and tokens[: len(other)] == other for other in removed)
    }


def _is_above(one: PageView, page: PageView) -> bool:
    assert one.tokens is not None and page.tokens is not None
    return len(one.tokens) < len(page.tokens) and page.tokens[: len(one.tokens)] == one.tokens


def _asked_from_above(m: Moment, page: PageView) -> bool:
    """Whether no one but a page that moves down can have asked for the room of a dropped page."""
    named = isinstance(m.op, ops.Evict) and m.pool(page) == _pool_of(m, m.op)
    return not named and m.pool(page) not in m.arrived


def _pool_of(m: Moment, op: ops.Evict) -> tuple[Level, str] | None:
    level = op.level.level
    if op.group is not None:
        return (level, m.before.pools.get((level, op.group), ""))
    pools = [key for key in m.before.observation.pools if key[0] is level]
    return pools[0] if len(pools) == 1 else None


@state("given up, evicted", "a page that an operation gives up and evicts")
def _given_up(m: Moment) -> bool:
    return any(move.before.owners for move in m.evicted)


@state("kept stale evicted", "a stale page that is kept for committing leaves for a colder level")
def _kept_stale_evicted(m: Moment) -> bool:
    return any(any(m.keepers_of_stale(move.after, m.after)) for move in m.evicted)


@state("completed, kept, evicted", "a block that one operation completes, makes stale, keeps and evicts")
def _completed_evicted(m: Moment) -> bool:
    return any(_completed_stale(m, ref) for move in m.evicted for ref in m.keepers_of_stale(move.after, m.after))


@state("path removed", "a subtree leaves of which a live request keeps a page")
def _path_removed(m: Moment) -> bool:
    return any(old.tokens is not None and new.tokens is None and new.refs for old, new in m.pairs)


# -- coming up ------------------------------------------------------------------------------------------------


@state("prefetch, disk to GPU", "a prefetch that brings a page from disk to the GPU")
def _prefetch_to_gpu(m: Moment) -> bool:
    return _prefetched(m, Level.GPU)


@state("prefetch, disk to host", "a prefetch that brings a page from disk to the host")
def _prefetch_to_host(m: Moment) -> bool:
    return _prefetched(m, Level.HOST)


def _prefetched(m: Moment, to: Level) -> bool:
    return m.verb == "prefetch" and any(move.before.level is Level.DISK and move.after.level is to for move in m.moved)


@state("prefetch evicts", "a prefetch that makes room by evicting")
def _prefetch_evicts(m: Moment) -> bool:
    return m.verb == "prefetch" and m.made_room


@state("prefetch, kept stale", "a prefetch of a request that keeps stale pages, which moves others")
def _prefetch_stale(m: Moment) -> bool:
    if not isinstance(m.op, ops.Prefetch) or not m.moved:
        return False
    return any(ref.request == m.op.request for page in m.before.pages for ref in m.keepers_of_stale(page, m.before))


@state("promotion", "a page comes up for a request in prefill while a decoding one has it")
def _promotion(m: Moment) -> bool:
    return any(not move.down and move.before.owners for move in m.moved)


# -- refusals -------------------------------------------------------------------------------------------------


@state("growth refused", "a copy that is refused while a request grows")
def _growth_refused(m: Moment) -> bool:
    if not m.refused:
        return False
    asked: list[tuple[str | None, int | None]] = []
    if isinstance(m.op, ops.Resize):
        asked = [(m.op.request, m.op.capacity)]
    if isinstance(m.op, ops.Iterate):
        asked = [(entry.request, entry.capacity) for entry in m.op.requests]
    if isinstance(m.op, ops.ResizeBatch) and m.op.batch in m.before.observation.batches:
        asked = list(zip(m.before.observation.batches[m.op.batch].rows, m.op.capacities or (), strict=False))
    return any(_did_not_grow(m, name, capacity) for name, capacity in asked)


def _did_not_grow(m: Moment, name: str | None, capacity: int | None) -> bool:
    was, now = (m.was(name), m.now(name)) if name is not None else (None, None)
    return was is not None and now is not None and now.capacity == was.capacity < (capacity or 0)


@state("commit's growth refused", "a copy that is refused while a commit grows the history")
def _commit_growth_refused(m: Moment) -> bool:
    if not isinstance(m.op, ops.Commit) or not m.refused:
        return False
    was, now = m.was(m.op.request), m.now(m.op.request)
    return was is not None and now is not None and was.history == now.history < was.committed + len(m.op.tokens)


@state("prefetch refused", "a copy that is refused in a prefetch")
def _prefetch_refused(m: Moment) -> bool:
    return m.verb == "prefetch" and m.refused


@state("resume refused", "a copy that is refused in a resume")
def _resume_refused(m: Moment) -> bool:
    return m.verb in ("resume", "admit_generation") and m.refused


# -- commit ---------------------------------------------------------------------------------------------------


@state("rebase, droppable dense", "a decoding request rebases onto a droppable dense page on the GPU")
def _rebase_dense(m: Moment) -> bool:
    if not isinstance(m.op, ops.Commit) or not m.decoded(m.op.request):
        return False
    return any(
        old.status is PageStatus.DROPPABLE and old.level is Level.GPU and m.is_dense(old.group) and m.op.request in new.owners
        for old, new in m.pairs
    )


def _written_stale(m: Moment) -> bool:
    """Whether a block has its first payload since this step, in which it was completed and became stale."""
    return any(
        new.payload is not None and old.payload is None and any(_completed_stale(m, ref) for ref in old.refs)
        for old, new in m.pairs
    )


def _completed_stale(m: Moment, ref: PageRef) -> bool:
    was, now = m.was(ref.request), m.now(ref.request)
    if was is None or now is None or m.complete(ref.block, was.history) or not m.complete(ref.block, now.history):
        return False
    return m.is_stale(ref.group, ref.block, now.history)


def _written_by(verb: str) -> Recognise:
    return lambda m: m.verb == verb and _written_stale(m)


for _verb in GROWING:
    state(f"stale written, {_verb}", f"a block that {_verb} completes, makes stale and writes")(_written_by(_verb))


# -- keys -----------------------------------------------------------------------------------------------------


@state("match ends at a key", "a match that ends where the tree goes on with the same numbers under other keys")
def _ends_at_key(m: Moment) -> bool:
    if not isinstance(m.op, ops.Create) or not isinstance(m.outcome.value, int) or m.outcome.error is not None:
        return False
    more = (m.op.tokens or ())[: m.outcome.value + 1]
    if len(more) == m.outcome.value:
        return False
    asked = keyed(more, m.op.key, spans=_within(m.op.spans, len(more)))
    blocks = [block.tokens[: len(more)] for block in m.before.observation.tree]
    return asked not in blocks and any(numbers(tokens) == more for tokens in blocks)


def _within(spans: Iterable[ops.Span], count: int) -> list[ops.Span]:
    return [ops.Span(start=span.start, end=min(span.end, count), key=span.key) for span in spans if span.start < count]


@state("twins by key", "a block enters the tree that differs from one there in keys alone")
def _twins(m: Moment) -> bool:
    there = {numbers(block.tokens) for block in m.before.observation.tree}
    stored = [event.tokens for event in m.after.observation.events if isinstance(event, Stored)]
    known = {block.tokens for block in m.before.observation.tree}
    return any(numbers(tokens) in there and tokens not in known for tokens in stored)


@state("rebase, keys", "a request rebases onto a block whose tokens have keys")
def _rebase_keys(m: Moment) -> bool:
    if not isinstance(m.op, ops.Commit):
        return False
    return any(
        old.tokens is not None
        and any(isinstance(token, Keyed) for token in old.tokens)
        and m.op.request in new.owners - old.owners
        for old, new in m.pairs
    )


# -- order ----------------------------------------------------------------------------------------------------


@state("seed evicts, gates", "a seed_prefix that pushes pages out by copies that a gate holds up")
def _seed_gated(m: Moment) -> bool:
    return m.verb == "seed_prefix" and m.succeeded and any(move.after.ready.pending for move in m.evicted)


@state("stale by two, gates", "a block that two requests have let go of as stale, both behind closed gates")
def _stale_by_two(m: Moment) -> bool:
    return any(len({*names, *m.trail.stale.get(key, ())}) > 1 for key, names in m.let_go.items())


@state("stale by two, leaves", "such a block leaves its slot while both gates are closed")
def _stale_by_two_leaves(m: Moment) -> bool:
    left = [*m.gone, *(move.before for move in m.moved)]
    return any(len(m.trail.stale.get((page.group, page.tokens, page.beam), ())) > 1 for page in left if page.tokens is not None)


@state("equal slots, gates", "a page takes the slot of a number that is behind a gate in another pool group or level")
def _equal_slots(m: Moment) -> bool:
    came = [*m.new, *(move.after for move in m.moved)]
    if not came:
        return False
    held = {(page.slot, m.after.pools[page.level, page.group], page.level) for page in m.before.pages if page.ready.pending}
    return any(
        page.slot == slot and (m.after.pools[page.level, page.group], page.level) != (pool, level)
        for page in came
        for slot, pool, level in held
    )


@state("close, reads to come", "a request is closed while reads that were recorded of it are behind a gate")
def _close_reads(m: Moment) -> bool:
    return m.succeeded and isinstance(m.op, ops.Close) and bool(m.trail.reads.get(m.op.request))


@state("suspend, reads to come", "a request is suspended while reads that were recorded of it are behind a gate")
def _suspend_reads(m: Moment) -> bool:
    return m.succeeded and isinstance(m.op, ops.Suspend) and bool(m.trail.reads.get(m.op.request))


@state("read after close", "a read behind a gate is recorded of a batch whose published member has been closed")
def _read_after_close(m: Moment) -> bool:
    if not isinstance(m.op, ops.RecordRead) or m.op.batch is None or not m.succeeded:
        return False
    streams = m.before.observation.streams
    return m.op.stream in streams and streams[m.op.stream].pending and bool(m.trail.closed.get(m.op.batch))


# -- states ---------------------------------------------------------------------------------------------------


@state("running state written", "the state of a request is written when its block 0 is history")
def _state_written(m: Moment) -> bool:
    if not isinstance(m.op, ops.Write) or 0 not in m.op.blocks or m.op.groups is None:
        return False
    view = m.was(m.op.request)
    if view is None or view.status is not RequestStatus.ACTIVE or not m.complete(0, view.history):
        return False
    return any(group in m.after.observation.groups and m.is_state(group) for group in m.op.groups)


@state("running state evicted", "the state of a suspended request with history is evicted")
def _state_evicted(m: Moment) -> bool:
    return any(_is_running(m, move.before) for move in m.evicted)


@state("running state back", "the state of a request with history comes back to the GPU")
def _state_back(m: Moment) -> bool:
    return any(_is_running(m, move.before) and move.after.level is Level.GPU for move in m.moved)


def _is_running(m: Moment, page: PageView) -> bool:
    if page.tokens is not None or not m.is_state(page.group):
        return False
    views = [m.was(ref.request) for ref in page.refs]
    return any(view is not None and m.complete(0, view.history) for view in views)
