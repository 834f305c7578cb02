"""What can be seen of a state (`kvspec.observation`): every view is computed from the state."""

from __future__ import annotations

from kvref.batch import dirty_rows
from kvref.eviction import evictable
from kvref.order import Work as Node
from kvref.order import pending, view
from kvref.queries import since_reset
from kvref.state import Batch, Page, Read, Request, Snapshot, State, Upload, batch_of, keepers, owners, snapshot, status
from kvref.tree import prefix
from kvspec.observation import (
    BatchView,
    Observation,
    Order,
    PageRef,
    PageView,
    PoolView,
    ReadView,
    RequestStatus,
    RequestView,
    SnapshotView,
    TableWords,
    TreeBlockView,
)


def observe(state: State) -> Observation:
    """Everything that the harness compares."""
    pages = tuple(state.pages.values())
    number = {p.id: i for i, p in enumerate(pages)}
    groups = state.layout.groups
    return Observation(
        groups=tuple(g.name for g in groups),
        requests={name: request_view(state, r) for name, r in state.requests.items()},
        pages=tuple(page_view(state, p) for p in pages),
        tree=tuple(TreeBlockView(prefix(state, node)) for node in state.nodes),
        pools={
            (place[0], served[0].name): PoolView(
                tuple(g.name for g in served),
                state.layout.slots[place[0]][place[1]],
                len(state.free[place]),
                tuple(order(state, slot.fence) for slot in state.free[place]),
                tuple(number[p.id] for p in evictable(state, place)),
            )
            for place in state.layout.places()
            for served in (state.layout.served(place),)
        },
        batches={b.name: batch_view(state, b) for b in state.batches.values() if b.open},
        lifetime=state.counters,
        since_reset=since_reset(state),
        copy_calls={kind: state.calls.get(kind, 0) for kind in ("offload", "onboard", "copy")},
        events=state.trace.events,
        labels={label: snapshot_view(state, s) for label, s in state.labels.items()},
        reads={label: read_view(state, read) for label, read in state.reads.items()},
        streams={name: order(state, s.last) for name, s in state.streams.items()},
    )


def order(state: State, work: Node) -> Order:
    """A piece of device work as it is observed."""
    return view(work, state.gates, state.streams)


def snapshot_view(state: State, s: Snapshot) -> SnapshotView:
    """A snapshot; the readiness is what holds it up now."""
    ready = tuple(None if work is None else order(state, work) for work in s.ready)
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
        committed=len(r.tokens),
        row=r.row,
        batch=batch.name if batch else None,
        beam_width=r.width,
        version=r.version,
        acknowledged=r.acknowledged,
        dirty=r.version != r.acknowledged,  # R6.5
        snapshots=views,
    )


def page_view(state: State, page: Page) -> PageView:
    """A page, with all who keep it."""
    group = state.layout.groups[page.group].name
    return PageView(
        group=group,
        block=page.block,
        beam=page.beam,
        refs=frozenset(PageRef(r.name, group, block, beam) for r, (_, block, beam) in keepers(state, page)),
        tokens=None if page.node is None else prefix(state, page.node),
        level=page.level,
        slot=page.slot,
        status=status(state, page),
        owners=frozenset(r.name for r in owners(state, page)),
        ready=order(state, page.ready),
        payload=page.content,
    )


def read_view(state: State, read: Read) -> ReadView:
    """A read; it has returned nothing while it is pending."""
    if pending(read.work, state.gates):
        return ReadView(order(state, read.work))
    return ReadView(order(state, read.work), read.words, read.payload)


def table_words(state: State, batch: Batch, upload: Upload) -> dict[str, TableWords]:
    """R8.1: the tables after an upload, by group; levels where the batch has them."""
    words: dict[str, TableWords] = {}
    for i, g in enumerate(state.layout.attention):
        levels = tuple(tuple(-1 if at is None else int(at) for at in row[i].levels) for row in upload.rows)
        indices = tuple(row[i].indices for row in upload.rows)
        words[g.name] = TableWords(indices, tuple(row[i].eligible for row in upload.rows), levels if batch.levels else None)
    return words


def batch_view(state: State, batch: Batch) -> BatchView:
    """An open batch. The device shows the last upload that has run; it runs after those before it (R7.5)."""
    run = [u for u in batch.uploads if not pending(u.work, state.gates)]
    return BatchView(
        rows=batch.rows,
        blocks=batch.blocks,
        dirty_rows=dirty_rows(state, batch),
        published=table_words(state, batch, batch.uploads[-1]),
        device=table_words(state, batch, run[-1]),
        upload=order(state, batch.uploads[-1].work),
        staging=batch.staging,
    )
