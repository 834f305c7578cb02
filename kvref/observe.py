"""What can be seen of a state (`kvspec.observation`): every view is computed from the state."""

from __future__ import annotations

from operator import is_

from kvref.batch import dirty_rows
from kvref.cached import Cache, Fetched, Reservation
from kvref.eviction import evictable
from kvref.fetch import raw
from kvref.layout import Group
from kvref.locations import locations
from kvref.maps import Map
from kvref.order import Stream, Work, observed, pending
from kvref.queries import since_reset
from kvref.state import Batch, Key, Node, Page, Read, Request, Snapshot, State, Upload, batch_of, kept, locked, snapshot, status
from kvref.tree import prefix
from kvref.values import memo_of, memoised
from kvspec.config import Level
from kvspec.observation import (
    BatchView,
    CachedView,
    CacheView,
    FetchView,
    Observation,
    Order,
    PageRef,
    PageStatus,
    PageView,
    PoolView,
    ReadView,
    RequestStatus,
    RequestView,
    SnapshotView,
    TableEntries,
    TreeBlockView,
)
from kvspec.payload import Content, Part


def observe(state: State) -> Observation:
    """Everything that the harness compares."""
    number = {pid: i for i, pid in enumerate(state.pages)}
    groups = state.layout.groups
    return Observation(
        groups=tuple(g.name for g in groups),
        requests={name: request_view(state, r) for name, r in state.requests.items()},
        pages=page_views(state),
        tree=tree_view(state.nodes),
        pools={
            (pool[0], served[0].name): PoolView(
                tuple(g.name for g in served),
                state.layout.slots[pool[0]][pool[1]],
                len(state.free[pool]),
                tuple(orders(state, [slot.fence for slot in state.free[pool]])),
                tuple([number[p.id] for p in evictable(state, pool)]),
            )
            for pool in state.layout.pool_groups()
            for served in (state.layout.served(pool),)
        },
        batches={b.name: batch_view(state, b) for b in state.batches.values() if b.open},
        lifetime=state.counters,
        since_reset=since_reset(state),
        copy_calls={kind: state.calls.get(kind, 0) for kind in ("offload", "onboard", "copy")},
        events=state.trace.events,
        labels={label: snapshot_view(state, s) for label, s in state.labels.items()},
        reads={label: read_view(state, read) for label, read in state.reads.items()},
        streams={name: order(state, s.last) for name, s in state.streams.items()},
        reserved=reserved_view(state),
        caches=cache_views(state),
        fetches={label: fetch_view(state, done) for label, done in state.fetches.items()},
    )


def reserved_view(state: State) -> dict[str, dict[str, frozenset[int]]]:
    """R15.2: by request and group, the slots reserved."""
    found: dict[str, dict[str, frozenset[int]]] = {}
    for one in state.reservations.values():
        if one.held and one.slots:
            group = state.layout.groups[one.group].name
            found.setdefault(one.request, {})[group] = frozenset(slot.number for slot in one.slots)
    return found


def cache_views(state: State) -> dict[str, dict[str, CacheView]]:
    """R15.3: by request and layer, what is cached."""
    found: dict[str, dict[str, CacheView]] = {}
    for one in state.reservations.values():
        group = state.layout.groups[one.group]
        for layer in group.layers if one.held and one.slots else ():
            found.setdefault(one.request, {})[layer] = cache_view(state, one, group, layer)
    return found


def cache_view(state: State, one: Reservation, group: Group, layer: str) -> CacheView:
    """The cache of a request and layer; nothing is known of it while its last fetch is pending."""
    cache = one.caches.get(layer, Cache())
    if pending(cache.work, state.gates):
        return CacheView(order(state, cache.work))
    views = [
        CachedView(
            c.number, raw(one, c.entry, group.units), None if c.content is None else part_of(group, layer, c.number, c.content)
        )
        for c in cache.cached
    ]
    return CacheView(order(state, cache.work), tuple(views))


def part_of(group: Group, layer: str, number: int, content: Content) -> Part:
    """R15.11: what a block, or a unit of one, has of a layer's buffers."""
    at = number % group.units
    own = [b for b in group.buffers if b.layer == layer]
    lengths = [b.length // group.units for b in own]
    return Part(content, tuple((b.start + at * n, b.start + (at + 1) * n) for b, n in zip(own, lengths, strict=True)))


def fetch_view(state: State, done: Fetched) -> FetchView:
    """A fetch; it has put out nothing while it is pending."""
    if pending(done.work, state.gates):
        return FetchView(order(state, done.work), done.layer, done.requests)
    return FetchView(order(state, done.work), done.layer, done.requests, done.entries, done.found)


def order(state: State, work: Work) -> Order:
    """A piece of device work as it is observed. It looks the same until a gate opens or closes, or work is submitted."""
    memo, logs = memo_of(work), logs_of(state.streams)
    known = memo.get(order)
    if known is None or known[0] is not state.gates or not (known[1] is logs or all(map(is_, known[1], logs))):
        seen = observed(work, state.gates, state.streams)
        memo[order] = known = state.gates, logs, seen if known is None or known[2] != seen else known[2]
    found: Order = known[2]
    return found


def orders(state: State, works: list[Work]) -> list[Order]:
    """Several pieces of work as they are observed; mostly they are few, each of many times."""
    each = {id(work): work for work in works}
    seen = {at: order(state, work) for at, work in each.items()}
    return [seen[id(work)] for work in works]


@memoised
def logs_of(streams: Map[str, Stream]) -> tuple[tuple[int, ...], ...]:
    """The logs of the streams."""
    return tuple([stream.log for stream in streams.values()])


def snapshot_view(state: State, s: Snapshot) -> SnapshotView:
    """A snapshot; the readiness is what holds it up now."""
    known = iter(orders(state, [work for work in s.ready if work is not None]))
    ready = tuple([None if work is None else next(known) for work in s.ready])
    return SnapshotView(s.indices, s.levels, s.eligible, ready, s.row, s.version)


def request_view(state: State, r: Request) -> RequestView:
    """A request, with a snapshot of each group and beam; none of a closed one (R3.10)."""
    batch = batch_of(state, r)
    closed = r.status is RequestStatus.CLOSED
    views = {
        (g.name, beam): snapshot_view(state, snapshot(state, r, g.index, beam))
        for g in state.layout.groups
        for beam in range(r.width)
        if not closed
    }
    return RequestView(
        status=r.status,
        phase=r.phase,
        capacity=r.capacity,
        history=r.history,
        committed=r.committed,
        row=r.row,
        batch=batch.name if batch else None,
        beam_width=r.width,
        version=r.version,
        acknowledged=r.acknowledged,
        dirty=r.version != r.acknowledged,  # R6.5
        snapshots=views,
    )


@memoised
def tree_view(nodes: Map[int, Node]) -> tuple[TreeBlockView, ...]:
    """The blocks of the prefix tree."""
    return tuple([TreeBlockView(node.prefix) for node in nodes.values() if not node.gone])


def page_views(state: State) -> tuple[PageView, ...]:
    """All pages."""
    pages, keep, owned = list(state.pages.values()), kept(state), locked(state)
    ready = orders(state, [page.ready for page in pages])
    return tuple([page_view(state, p, keep.get(p.id, []), owned.get(p.id, []), at) for p, at in zip(pages, ready, strict=True)])


def page_view(state: State, page: Page, keep: list[tuple[str, Key]], owned: list[Request], ready: Order) -> PageView:
    """A page, with all who keep it, as which block, and who has it locked."""
    memo = memo_of(page)
    shown = (keep, [r.name for r in owned], ready, None if page.identity is None else elsewhere(state, page))
    if memo.get(page_view, (None,))[0] != shown:
        memo[page_view] = shown, _page_view(state, page, *shown)
    found: PageView = memo[page_view][1]
    return found


Elsewhere = tuple[PageStatus, frozenset[tuple[Level, int]]]
"""R14.8, R14.1: the status of a location of a page that has several, and where the others are."""


def elsewhere(state: State, page: Page) -> Elsewhere:
    """What of a location hangs on the page's other locations, and on who refers to these."""
    return status(state, page), frozenset((p.level, p.slot) for p in locations(state, page) if p.id != page.id)


def _page_view(
    state: State, page: Page, keep: list[tuple[str, Key]], names: list[str], ready: Order, several: Elsewhere | None
) -> PageView:
    group = state.layout.groups[page.group].name
    alone = PageStatus.LOCKED if names else PageStatus.HELD if keep else PageStatus.DROPPABLE  # R2.2
    kind, others = several or (alone, frozenset())
    return PageView(
        group=group,
        block=page.block,
        beam=page.beam,
        refs=frozenset([PageRef(name, group, block, beam) for name, (_, block, beam) in keep]),
        tokens=None if page.node is None else prefix(state, page.node),
        level=page.level,
        slot=page.slot,
        status=kind,
        owners=frozenset(names),
        ready=ready,
        payload=page.content,
        copy_of=page.copy_of,
        others=others,
    )


def read_view(state: State, read: Read) -> ReadView:
    """A read; it has returned nothing while it is pending."""
    if pending(read.work, state.gates):
        return ReadView(order(state, read.work))
    return ReadView(order(state, read.work), read.entries, read.payload)


def table_entries(state: State, batch: Batch, upload: Upload) -> dict[str, TableEntries]:
    """R8.1: the tables after an upload, by group; levels where the batch has them."""
    memo = memo_of(upload)
    if table_entries in memo:
        found: dict[str, TableEntries] = memo[table_entries]
        return found
    memo[table_entries] = entries = _table_entries(state, batch, upload)
    return entries


def _table_entries(state: State, batch: Batch, upload: Upload) -> dict[str, TableEntries]:
    entries: dict[str, TableEntries] = {}
    for i, g in enumerate(state.layout.attention):
        levels = tuple(tuple(-1 if at is None else int(at) for at in row[i].levels) for row in upload.rows)
        indices = tuple(row[i].indices for row in upload.rows)
        entries[g.name] = TableEntries(indices, tuple(row[i].eligible for row in upload.rows), levels if batch.levels else None)
    return entries


def batch_view(state: State, batch: Batch) -> BatchView:
    """An open batch. The device shows the last upload that has run; it runs after those before it (R7.5)."""
    run = [u for u in batch.uploads if not pending(u.work, state.gates)]
    return BatchView(
        rows=batch.rows,
        blocks=batch.blocks,
        dirty_rows=dirty_rows(state, batch),
        published=table_entries(state, batch, batch.uploads[-1]),
        device=table_entries(state, batch, run[-1]),
        upload=order(state, batch.uploads[-1].work),
        staging=batch.staging,
    )
