"""Reached states of fetches: what selections, reservations, replays and gates come to (section 15 of the rules)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from kvspec import ops
from kvspec.audit.moment import Moment
from kvspec.audit.states.registry import state
from kvspec.config import Level
from kvspec.errors import ErrorKind
from kvspec.observation import BAD, CacheView, FetchView, Observation, RequestStatus

HIT, MISS, NEITHER = "hit", "miss", "-"
Key = tuple[str, str]
"""A request and a layer."""


def _caches(seen: Observation) -> dict[Key, CacheView]:
    return {(name, layer): view for name, layers in seen.caches.items() for layer, view in layers.items()}


def _cached(view: CacheView | None) -> dict[int, int]:
    """By number, the entry where it is cached."""
    return {one.number: one.entry for one in (view.cached if view is not None else None) or ()}


def _select(m: Moment) -> dict[str, tuple[int, ...]]:
    return dict(getattr(m.op, "select", None) or {})


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a fetch that has run in the step. ``selected``: what was selected; ``found``: what came of each number.

    ``was``, ``now``: by number, what was cached of the layer before and after. The latter is ``None`` where more than one fetch
    of the layer has run in the step.
    """

    request: str
    layer: str
    selected: tuple[int, ...]
    found: tuple[str, ...]
    was: dict[int, int]
    now: dict[int, int] | None


def _rows(m: Moment) -> Iterator[Row]:
    """The rows of the fetches that the operation itself has run."""
    if not isinstance(m.op, ops.Fetch | ops.Replay) or not m.succeeded:
        return
    old, new = m.before.observation, m.after.observation
    before, after = _caches(old), _caches(new)
    done = [view for label, view in new.fetches.items() if view.entries is not None and _is_new(old.fetches.get(label), view)]
    for view in done:
        alone = sum(other.layer == view.layer for other in done) == 1
        for name, found in zip(view.requests, view.found or (), strict=True):
            if name is not None:
                key, selected = (name, view.layer), _select(m).get(name, ())
                now = _cached(after.get(key)) if alone else None
                yield Row(name, view.layer, selected, found, _cached(before.get(key)), now)


def _is_new(before: FetchView | None, now: FetchView) -> bool:
    return before is None or before != now


# -- hits and misses ------------------------------------------------------------------------------------------


@state("fetch, hit and miss", "a fetch with a hit and a miss in one row")
def _hit_and_miss(m: Moment) -> bool:
    return any(HIT in row.found and MISS in row.found for row in _rows(m))


@state("fetch evicts", "a fetch that evicts some of what is cached, and keeps some that is not selected")
def _evicts(m: Moment) -> bool:
    return any(
        row.now is not None and row.was.keys() - row.now.keys() and row.was.keys() & row.now.keys() - set(row.selected)
        for row in _rows(m)
    )


@state("fetch evicts all", "a fetch that evicts all that is cached")
def _evicts_all(m: Moment) -> bool:
    return any(row.now is not None and row.was and not row.was.keys() & row.now.keys() for row in _rows(m))


@state("fetch, twice", "a block is selected twice in a row, and is fetched once")
def _twice(m: Moment) -> bool:
    kinds = [[number for number, kind in zip(row.selected, row.found, strict=False) if kind == MISS] for row in _rows(m)]
    return any(len(set(missed)) < len(missed) for missed in kinds)


@state("fetch, at the count", "the first block that may not be asked for is selected beside one that may")
def _at_the_count(m: Moment) -> bool:
    return any(
        number == _count(m, row) and kind == NEITHER and {HIT, MISS} & set(row.found)
        for row in _rows(m)
        for number, kind in zip(row.selected, row.found, strict=False)
    )


def _count(m: Moment, row: Row) -> int:
    """How many numbers may be asked for, by what was published last of the row."""
    group, units = m.fetching[row.layer]
    view = m.now(row.request)
    batch = None if view is None or view.batch is None else m.after.observation.batches.get(view.batch)
    if view is None or batch is None or view.row is None:
        return BAD
    return batch.published[group].num_blocks[view.row] * units


@state("fetch, cached and bad", "a cached block is selected that may not be asked for any more")
def _cached_and_bad(m: Moment) -> bool:
    return any(
        number in row.was and kind == NEITHER for row in _rows(m) for number, kind in zip(row.selected, row.found, strict=False)
    )


@state("two blocks in a slot", "a reserved slot has different blocks for two layers of its group")
def _two_in_a_slot(m: Moment) -> bool:
    if not isinstance(m.op, ops.Fetch | ops.Replay):
        return False
    for layers in m.after.observation.caches.values():
        for one, two in combinations(layers, 2):
            if m.fetching[one] == m.fetching[two]:
                first, second = ({entry: number for number, entry in _cached(layers[layer]).items()} for layer in (one, two))
                if any(entry in second and second[entry] != number for entry, number in first.items()):
                    return True
    return False


@state("cached leaves the host", "a page leaves the host while it is cached")
def _cached_leaves(m: Moment) -> bool:
    caches = _caches(m.before.observation)
    for move in m.moved:
        if move.before.level is Level.HOST and move.after.level is Level.GPU:
            for ref in move.before.refs:
                for layer, (group, units) in m.fetching.items():
                    mine = {number // units for number in _cached(caches.get((ref.request, layer)))}
                    if group == ref.group and ref.block in mine:
                        return True
    return False


@state("fetch refused", "a fetch of a batch of which something is not published")
def _unpublished(m: Moment) -> bool:
    if not isinstance(m.op, ops.Fetch) or m.outcome.error is not ErrorKind.LOGIC_ERROR:
        return False
    batch = m.before.observation.batches.get(m.op.batch)
    return batch is not None and bool(batch.dirty_rows)


# -- reservations ---------------------------------------------------------------------------------------------


def _reserved(seen: Observation) -> dict[Key, frozenset[int]]:
    """By request and group, the slots."""
    return {(name, group): frozenset(slots) for name, groups in seen.reserved.items() for group, slots in groups.items()}


@state("reservation grows", "a request that has reserved slots reserves more, and keeps what is cached")
def _grows(m: Moment) -> bool:
    was, now = _reserved(m.before.observation), _reserved(m.after.observation)
    caches = _caches(m.after.observation)
    grown = [key for key in was.keys() & now.keys() if was[key] < now[key]]
    return any(caches[name, layer].cached for name, group in grown for layer, (of, _) in m.fetching.items() if of == group)


@state("no room to reserve", "an operation fails as the slots to reserve are not to be had")
def _no_room(m: Moment) -> bool:
    if m.outcome.error not in (None, ErrorKind.OUT_OF_PAGES) or m.succeeded:
        return False
    return any(_lacks_slots(m, name) for name in m.actors)


def _lacks_slots(m: Moment, name: str) -> bool:
    """Whether a request would have to reserve more than there is, of a history that it had before already."""
    view, seen = m.was(name), m.before.observation
    entering = isinstance(m.op, ops.EnterDecode | ops.AdmitGeneration) or getattr(m.op, "decode", None) is True
    if view is None or view.status is RequestStatus.CLOSED or view.beam_width != 1 or not (m.decoded(name) or entering):
        return False
    history = getattr(m.op, "history", None) or view.history
    wanted: dict[str, int] = {}
    for group, reserve in m.reserving.items():
        held = len(seen.reserved.get(name, {}).get(group, ()))
        pool = m.before.pools[Level.GPU, group]
        wanted[pool] = wanted.get(pool, 0) + min(reserve, history // m.manager.tokens_per_block) - held
    pools = {pool: seen.pools[Level.GPU, pool] for pool in wanted}
    return any(count > pools[pool].free + len(pools[pool].evictable) for pool, count in wanted.items())


@state("given back, gates", "reserved slots are given back while a fetch into them is behind a gate")
def _given_back_gated(m: Moment) -> bool:
    if not m.succeeded or not isinstance(m.op, ops.Suspend | ops.Close):
        return False
    return any(view.order.pending for view in m.before.observation.caches.get(m.op.request, {}).values())


@state("given back, reads to come", "reserved slots are given back while reads that were recorded of them are behind a gate")
def _given_back_reads(m: Moment) -> bool:
    if not m.succeeded or not isinstance(m.op, ops.Suspend | ops.Close) or not m.trail.reads.get(m.op.request):
        return False
    return any(view.cached for view in m.before.observation.caches.get(m.op.request, {}).values())


@state("given back, taken", "a slot that was given back behind a gate is taken while the gate is closed")
def _taken_again(m: Moment) -> bool:
    given = m.trail.given
    if not given:
        return False
    came = {(m.after.pools[page.level, page.group], page.slot) for page in m.new if page.level is Level.GPU}
    came |= {(m.after.pools[Level.GPU, move.after.group], move.after.slot) for move in m.moved if move.after.level is Level.GPU}
    was, now = _reserved(m.before.observation), _reserved(m.after.observation)
    for key, slots in now.items():
        came |= {(m.after.pools[Level.GPU, key[1]], slot) for slot in slots - was.get(key, frozenset())}
    return bool(came & given.keys())


# -- gates and replays ----------------------------------------------------------------------------------------


@state("fetch, gates", "a fetch that is behind a closed gate")
def _gated(m: Moment) -> bool:
    return isinstance(m.op, ops.Fetch) and m.succeeded and any(view.order.pending for view in _new_fetches(m))


def _new_fetches(m: Moment) -> list[FetchView]:
    old = m.before.observation.fetches
    return [view for label, view in m.after.observation.fetches.items() if _is_new(old.get(label), view)]


@state("fetch behind a fetch", "a fetch on a stream without gates that is behind an earlier one, and its gate")
def _behind(m: Moment) -> bool:
    if not isinstance(m.op, ops.Fetch) or not m.succeeded or m.op.stream not in m.before.observation.streams:
        return False
    held = {gate for view in m.before.observation.fetches.values() for gate in view.order.gates}
    free = not m.before.observation.streams[m.op.stream].gates
    return free and any(view.order.gates & held for view in _new_fetches(m))


@state("fetch behind reads", "a fetch on a stream without gates that is behind recorded reads of the slots, and their gate")
def _behind_reads(m: Moment) -> bool:
    if not isinstance(m.op, ops.Fetch) or not m.succeeded or m.op.stream not in m.before.observation.streams:
        return False
    fetched = {gate for view in m.before.observation.fetches.values() for gate in view.order.gates}
    reads = {gate for name in _select(m) for gate in m.trail.reads.get(name, ())} - fetched
    free = not m.before.observation.streams[m.op.stream].gates
    return free and any(view.order.gates & reads for view in _new_fetches(m))


@state("replay fetches", "a replay with a hit or a miss")
def _replay(m: Moment) -> bool:
    return isinstance(m.op, ops.Replay) and any({HIT, MISS} & set(row.found) for row in _rows(m))


@state("replay, two fetches", "a replay of a graph with two fetches of one layer")
def _replay_two(m: Moment) -> bool:
    views = _new_fetches(m) if isinstance(m.op, ops.Replay) and m.succeeded else []
    return any(one.layer == two.layer for one, two in combinations(views, 2))


def _unserved(m: Moment) -> Iterator[Row]:
    """Rows of a replay for which something is selected that may be asked for by what was published, and nothing is fetched."""
    if isinstance(m.op, ops.Replay):
        for row in _rows(m):
            if row.selected and set(row.found) == {NEITHER} and any(number >= 0 for number in row.selected):
                yield row


@state("replay, row removed", "a replay for a row whose request has been removed since")
def _row_removed(m: Moment) -> bool:
    return any(
        (view := m.now(row.request)) is not None and view.status is RequestStatus.ACTIVE and view.batch is None
        for row in _unserved(m)
    )


@state("replay, row suspended", "a replay for a row whose request has been suspended since")
def _row_suspended(m: Moment) -> bool:
    return any((view := m.now(row.request)) is not None and view.status is RequestStatus.SUSPENDED for row in _unserved(m))


@state("replay, row closed", "a replay for a row whose request has been closed since")
def _row_closed(m: Moment) -> bool:
    return any((view := m.now(row.request)) is not None and view.status is RequestStatus.CLOSED for row in _unserved(m))


@state("replay, row of another", "a replay for a row that has been given to another request since")
def _row_of_another(m: Moment) -> bool:
    views = _new_fetches(m) if isinstance(m.op, ops.Replay) and m.succeeded else []
    batches = m.after.observation.batches.values()
    for view in views:
        for row, name in enumerate(view.requests):
            here = [batch for batch in batches if row < len(batch.rows) and batch.rows[row] not in (None, name)]
            if name is not None and any(len(batch.rows) == len(view.requests) and row in batch.dirty_rows for batch in here):
                return True
    return False
