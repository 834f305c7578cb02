"""What a manager shows, in the words of an adapter, and the observation that the harness makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvspec.config import Level, ManagerConfig, group_names
from kvspec.nearest import did_you_mean
from kvspec.observation import (
    BAD,
    BatchView,
    CacheView,
    Counters,
    FetchView,
    Observation,
    Order,
    PageRef,
    PageStatus,
    PageView,
    Phase,
    PoolView,
    ReadView,
    RequestStatus,
    RequestView,
    SnapshotView,
    TableEntries,
    TreeBlockView,
    TreeEvent,
)
from kvspec.payload import Content
from kvspec.refs import fetching_layers, group_shapes, level_group, pool_groups
from kvspec.system import Setup
from kvspec.tokens import Token


class AdapterError(ValueError):
    """An adapter that cannot work, or facts that cannot be: ``str()`` of it says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Page:
    """Where a block's page is. Two blocks of one group that are in one place share the page.

    ``level``: ``gpu``, ``host`` or ``disk``. ``owners``: the active requests that have it locked, ``None``: those that show
    it. ``payload``: its contents as bytes, pool by pool, largest first (R1.6). ``tokens``: the prefix that its tree block ends.
    ``ready``: the device work after which it is valid; left out with ``order`` unobserved. ``also``: further places, as level and
    slot, where a manager of inclusive levels has the same contents at once. They are no place of the page (R2.4), and their
    slots count as free: what is there can be given up at once.
    """

    level: str
    slot: int
    owners: frozenset[str] | None = None
    payload: Content | bytes | None = None
    tokens: tuple[Token, ...] | None = None
    ready: Order | None = None
    also: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A request, closed ones included. What is by layer group may be given without, where there is only one.

    ``status``: ``suspended``, ``active`` or ``closed``. ``phase``: ``prefill`` or ``decode``; left out, it is prefill. Lengths in
    tokens.
    ``blocks``: by layer group, per block its page, ``None`` for a block that has none; a suspended request lists the
    pages that it keeps. ``kept``: by layer group and block, the stale pages that it keeps until they may be committed (R3.7);
    ``blocks`` has ``None`` there. ``eligible``: by layer group, how many leading blocks may be fetched from the host (R6.3),
    as the manager itself counts them; left out, none. ``version``, ``acknowledged``, ``dirty``: leave them out with ``versions``
    unobserved.
    """

    status: str
    phase: str = "prefill"
    capacity: int = 0
    history: int = 0
    blocks: Mapping[str, Sequence[Page | None]] | Sequence[Page | None] = field(default_factory=dict)
    eligible: Mapping[str, int] | int = field(default_factory=dict)
    committed: int = 0
    row: int | None = None
    batch: str | None = None
    version: int | None = None
    acknowledged: int | None = None
    dirty: bool | None = None
    kept: Mapping[str, Mapping[int, Page]] | Mapping[int, Page] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one layer group, of any kind that numpy can read: ``[rows, blocks]``, ``[rows]``, ``[rows, blocks]``.

    Numpy arrays given as device tables are the manager's own and no copies: their addresses must not change (R8.1).
    """

    page_table: Any
    num_blocks: Any
    page_level: Any = None


@dataclass(frozen=True, slots=True)
class Batch:
    """An open batch (section 8).

    ``rows``: the member of each row. ``dirty``: the rows that the next publication would write. ``published``: by layer group
    what was published last. ``device``: the same read back from the device, left out with ``device`` unobserved. ``upload``:
    what the last publication runs behind, left out with ``order`` unobserved.
    """

    rows: Sequence[str | None]
    blocks: int
    dirty: Iterable[int]
    published: Mapping[str, Tables] | Tables
    device: Mapping[str, Tables] | Tables | None = None
    staging: int | None = None
    upload: Order | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a manager shows after an operation.

    ``free``: free slots by ``level`` (one pool group) or ``level.group``, as scenarios write it. What is ``None`` has to
    be declared unobserved: ``counters`` and ``copy_calls``, ``events``, ``tree``, ``evictable`` (by ``level`` or
    ``level.group``, the slots in eviction order), and for ``order`` the ``streams`` and the ``fences`` of the free slots (keys
    as for ``free``). ``cached``: by layer group, the pages that only the prefix tree keeps, each with its ``tokens``; with
    ``tree`` unobserved they may be left out. ``labels`` and ``reads``: what `snapshot`, `read_page` and `read_table` keep.

    Where selected history is fetched (section 15), ``reserved``: by request and layer group, the GPU slots that it has reserved;
    ``caches``: by request and layer, what is cached in them; ``fetches``: by label, what a fetch put out. Each has to be declared
    unobserved where it is ``None``; elsewhere they are left out.
    """

    requests: Mapping[str, Request]
    free: Mapping[str, int]
    batches: Mapping[str, Batch] = field(default_factory=dict)
    counters: Counters | None = None
    since_reset: Counters | None = None
    copy_calls: Mapping[str, int] | None = None
    events: Sequence[TreeEvent] | None = None
    tree: Sequence[tuple[Token, ...]] | None = None
    evictable: Mapping[str, Sequence[int]] | None = None
    cached: Mapping[str, Sequence[Page]] | Sequence[Page] = field(default_factory=dict)
    labels: Mapping[str, SnapshotView] = field(default_factory=dict)
    reads: Mapping[str, ReadView] = field(default_factory=dict)
    streams: Mapping[str, Order] | None = None
    fences: Mapping[str, Sequence[Order]] | None = None
    faults: Sequence[str] = ()
    reserved: Mapping[str, Mapping[str, Iterable[int]] | Iterable[int]] | None = None
    caches: Mapping[str, Mapping[str, CacheView]] | None = None
    fetches: Mapping[str, FetchView] | None = None


def observation(setup: Setup, facts: Facts, unobserved: frozenset[str] = frozenset()) -> Observation:
    """An observation from facts.

    :raises AdapterError: something is missing that is not declared unobserved, or two requests contradict each other.
    """
    manager = setup.manager
    groups = group_names(manager)

    def given(value: Any, what: str, aspect: str, default: Any) -> Any:
        if value is None and aspect not in unobserved:
            raise AdapterError(f"{what}: missing; give it, or declare {aspect!r} unobserved")
        return default if value is None else value

    def of_fetches(value: Any, what: str) -> Any:
        return given(value, what, what, {}) if fetching_layers(manager) else value or {}

    nothing = Counters({})
    counters = given(facts.counters, "counters", "counters", nothing)
    pages = _pages(facts, groups, manager.tokens_per_block, given)
    streams = given(facts.streams, "streams", "order", dict.fromkeys(setup.streams, Order()))
    return Observation(
        groups=groups,
        requests={name: _request(name, view, groups, given) for name, view in facts.requests.items()},
        pages=tuple(pages.values()),
        tree=tuple(TreeBlockView(tuple(tokens)) for tokens in given(facts.tree, "tree", "tree", ())),
        pools=_pools(manager, facts, list(pages), _copies(facts, groups, pages), given),
        batches={name: _batch(name, view, groups, given) for name, view in facts.batches.items()},
        lifetime=counters,
        since_reset=facts.since_reset if facts.since_reset is not None else counters,
        copy_calls=given(facts.copy_calls, "copy_calls", "counters", {}),
        events=tuple(given(facts.events, "events", "events", ())),
        labels=dict(facts.labels),
        reads=dict(facts.reads),
        streams=streams,
        faults=tuple(facts.faults),
        reserved=_reserved(of_fetches(facts.reserved, "reserved"), groups),
        caches=of_fetches(facts.caches, "caches"),
        fetches=of_fetches(facts.fetches, "fetches"),
    )


def _reserved(reserved: Mapping[str, Any], groups: Sequence[str]) -> dict[str, dict[str, frozenset[int]]]:
    """By request and layer group, the slots; without those that have none."""
    named = {name: _by_group(slots, f"reserved of {name}", groups) for name, slots in reserved.items()}
    found = {name: {group: frozenset(map(int, some)) for group, some in held.items()} for name, held in named.items()}
    some = {name: {group: slots for group, slots in held.items() if slots} for name, held in found.items()}
    return {name: held for name, held in some.items() if held}


_Place = tuple[str, Level, int]


def _by_group(value: Any, what: str, groups: Sequence[str]) -> Mapping[str, Any]:
    """What was given by layer group, or for the only one."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        if len(groups) > 1:
            raise AdapterError(f"{what}: there are the layer groups {', '.join(groups)}: expected a mapping by their names")
        return {groups[0]: value}
    for name in value:
        if name not in groups:
            hint = did_you_mean(name, groups)
            raise AdapterError(f"{what}: there is no layer group {name!r}.{hint} There are: {', '.join(groups)}")
    return value


def _copies(facts: Facts, groups: Sequence[str], pages: Mapping[_Place, PageView]) -> Counter[tuple[Level, str]]:
    """How many further places of pages there are, by level and layer group. Raises `AdapterError` for one where a page is."""
    shown = {
        (group, Level.of(page.level), page.slot): page
        for name, request in facts.requests.items()
        for group, blocks in _by_group(request.blocks, f"blocks of {name}", groups).items()
        for page in blocks
        if page is not None
    }
    for group, some in _by_group(facts.cached, "cached", groups).items():
        shown.update({(group, Level.of(page.level), page.slot): page for page in some})
    found: set[_Place] = set()
    for (group, _, _), page in shown.items():
        for level, slot in page.also:
            place = (group, Level.of(level), slot)
            if place in pages or place in found:
                raise AdapterError(f"a further place of a page of {group} is {level} slot {slot}, where another page is")
            found.add(place)
    return Counter((level, group) for group, level, _ in found)


_Given = Callable[[Any, str, str, Any], Any]


def _pages(facts: Facts, groups: Sequence[str], size: int, given: _Given) -> dict[_Place, PageView]:
    """One page for each place that some request, or the prefix tree alone, shows, by group, level and slot."""
    shown: dict[_Place, list[tuple[PageRef, Page, bool]]] = {}
    for name, request in facts.requests.items():
        blocks = _by_group(request.blocks, f"blocks of {name}", groups)
        kept = _by_group(request.kept, f"kept of {name}", groups)
        for group in {*blocks, *kept}:
            mapped = [(block, page) for block, page in enumerate(blocks.get(group, ())) if page is not None]
            for block, page, active in (
                *((block, page, request.status == "active") for block, page in mapped),
                *((block, page, False) for block, page in kept.get(group, {}).items()),
            ):
                place = (group, Level.of(page.level), page.slot)
                shown.setdefault(place, []).append((PageRef(name, group, block), page, active))
    views: dict[_Place, PageView] = {}
    for (group, level, slot), uses in shown.items():
        first = uses[0][1]
        if any(page != first for _, page, _ in uses):
            refs = ", ".join(str(ref) for ref, _, _ in uses)
            raise AdapterError(f"{refs} are all at {level.label} slot {slot} but their pages differ in owners, payload or tokens")
        owners = first.owners if first.owners is not None else frozenset(ref.request for ref, _, active in uses if active)
        refs_ = frozenset(ref for ref, _, _ in uses)
        status = PageStatus.LOCKED if owners else PageStatus.HELD
        views[group, level, slot] = _page(group, first, uses[0][0].block, refs_, owners, status, str(uses[0][0]), given)
    for group, pages in _by_group(facts.cached, "cached", groups).items():
        for page in pages:
            where = f"cached page of {group} at {page.level} slot {page.slot}"
            if not page.tokens:
                raise AdapterError(f"{where}: it has no tokens; expected the prefix that its tree block ends")
            place = (group, Level.of(page.level), page.slot)
            if place in views:
                refs = ", ".join(str(ref) for ref in sorted(views[place].refs)) or "another"
                raise AdapterError(f"{where}: {refs} is there; expected pages that only the prefix tree keeps")
            block = (len(page.tokens) - 1) // size
            views[place] = _page(group, page, block, frozenset(), frozenset(), PageStatus.DROPPABLE, where, given)
    return views


def _page(
    group: str,
    page: Page,
    block: int,
    refs: frozenset[PageRef],
    owners: frozenset[str],
    status: PageStatus,
    title: str,
    given: _Given,
) -> PageView:
    ready = given(page.ready, f"ready of {title}", "order", Order())
    level = Level.of(page.level)
    return PageView(group, block, 0, refs, page.tokens, level, page.slot, status, owners, ready, page.payload)


def _request(name: str, view: Request, groups: Sequence[str], given: _Given) -> RequestView:
    version = given(view.version, f"version of {name}", "versions", 0)
    snapshots: dict[tuple[str, int], SnapshotView] = {}
    for group in groups if view.status != "closed" else ():
        blocks = _by_group(view.blocks, f"blocks of {name}", groups).get(group, ())
        # A request that is not active shows no places (R6.2).
        seen = [page if view.status == "active" else None for page in blocks]
        snapshots[group, 0] = SnapshotView(
            indices=tuple(BAD if page is None else int(page.slot) for page in seen),
            levels=tuple(None if page is None else Level.of(page.level) for page in seen),
            eligible=int(_by_group(view.eligible, f"eligible of {name}", groups).get(group, 0)),
            ready=tuple(None if page is None else page.ready or Order() for page in seen),
            row=view.row,
            version=version,
        )
    return RequestView(
        status=RequestStatus(view.status),
        phase=Phase(view.phase),
        capacity=int(view.capacity),
        history=int(view.history),
        committed=int(view.committed),
        row=view.row,
        batch=view.batch,
        beam_width=1,
        version=version,
        acknowledged=view.acknowledged,
        dirty=given(view.dirty, f"dirty of {name}", "versions", False),
        snapshots=snapshots,
    )


def _pools(
    manager: ManagerConfig, facts: Facts, places: Sequence[_Place], copies: Mapping[tuple[Level, str], int], given: _Given
) -> dict[tuple[Level, str], PoolView]:
    pools = pool_groups(manager)
    shapes = group_shapes(manager)
    free = {level_group(key, pools): int(count) for key, count in facts.free.items()}
    orders = given(facts.evictable, "evictable", "eviction", {})
    evictable = {level_group(key, pools): slots for key, slots in orders.items()}
    known = given(facts.fences, "fences", "order", None)
    fences = None if known is None else {level_group(key, pools): tuple(orders) for key, orders in known.items()}
    views: dict[tuple[Level, str], PoolView] = {}
    for config in manager.levels:
        level = config.kind.level
        per_slot = sum(shapes[served[0]].page_bytes for served in pools[level])
        slots = config.slots if config.slots is not None else (config.bytes or 0) // per_slot  # R1.2
        for served in pools[level]:
            key = level, served[0]
            if key not in free:
                raise AdapterError(f"free: no count for {level.label}.{served[0]}: there are {', '.join(facts.free) or 'none'}")
            numbers = {slot: n for n, (group, at, slot) in enumerate(places) if at is level and group in served}
            order = tuple(numbers.get(slot, -1) for slot in evictable.get(key, ()))
            more = sum(copies.get((level, group), 0) for group in served)
            behind = (Order(),) * free[key] if fences is None else fences.get(key, ())
            views[key] = PoolView(served, slots, free[key] + more, (*behind, *(Order(),) * more), order)
    return views


def _batch(name: str, view: Batch, groups: Sequence[str], given: _Given) -> BatchView:
    published = _by_group(view.published, f"published of batch {name}", groups)
    back = None if view.device is None else _by_group(view.device, f"device tables of batch {name}", groups)
    device = given(back, f"device tables of batch {name}", "device", published)
    return BatchView(
        rows=tuple(view.rows),
        blocks=view.blocks,
        dirty_rows=tuple(sorted(view.dirty)),
        published={group: _words(tables) for group, tables in published.items()},
        device={group: _words(tables) for group, tables in device.items()},
        upload=given(view.upload, f"upload of batch {name}", "order", Order()),
        staging=given(view.staging, f"staging of batch {name}", "staging", 0),
        address={group: found for group, tables in (back or {}).items() if (found := _address(tables))},
    )


def _words(tables: Tables) -> TableEntries:
    def rows(array: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(row) for row in np.asarray(array).tolist())

    levels = None if tables.page_level is None else rows(tables.page_level)
    return TableEntries(rows(tables.page_table), tuple(np.asarray(tables.num_blocks).tolist()), levels)


def _address(tables: Tables) -> tuple[int, ...]:
    """Where the arrays are, so that it can be seen that they stay (R8.1); nothing for lists and the like."""
    arrays = [one for one in (tables.page_table, tables.num_blocks, tables.page_level) if one is not None]
    if not all(isinstance(one, np.ndarray) for one in arrays):
        return ()
    return tuple(int(one.ctypes.data) for one in arrays)
