"""Observations: everything that can be seen, read back from the device where it lies there."""

from __future__ import annotations

from collections.abc import Mapping

from kvgpu.adapter.counters import counters
from kvgpu.adapter.fetches import cache_views, fetch_view, reserved_view
from kvgpu.adapter.order import Orders
from kvgpu.adapter.reads import Read
from kvgpu.adapter.run import OrderValue, Run
from kvgpu.adapter.tables import batch_view
from kvgpu.adapter.tokens import shown
from kvgpu.adapter.tree import TreeLog
from kvgpu.operations.inspection import PageInfo
from kvgpu.requests.request import Request, Snapshot
from kvgpu.storage.fences import Fence
from kvspec.config import Level
from kvspec.observation import (
    Observation,
    Order,
    PageRef,
    PageView,
    PoolView,
    ReadView,
    RequestView,
    SnapshotView,
    TreeBlockView,
)


def observe(run: Run, tree: TreeLog) -> Observation:
    """Everything that the harness compares. The device must have settled."""
    look = _Look(run)
    manager = run.manager
    infos = manager.page_infos(run.infos)
    return Observation(
        groups=run.names.groups,
        requests={request.name: look.request(request) for request in manager.requests()},
        pages=look.pages(infos),
        tree=tuple(TreeBlockView(shown(text)) for text in manager.tree_blocks()),
        pools=look.pools(infos),
        batches={name: batch_view(run, look.orders, batch) for name, batch in run.names.batches.items() if batch.open},
        lifetime=counters(run.names.groups, manager.lifetime_counters()),
        since_reset=counters(run.names.groups, manager.counters()),
        copy_calls=manager.copy_calls(),
        events=tree.events,
        labels={label: look.snapshot(snapshot) for label, snapshot in run.names.snapshots.items()},
        reads={label: look.read(read) for label, read in run.names.reads.items()},
        streams={name: look.orders.of(run.manager.live(stream)) for name, stream in run.names.streams.items()},
        faults=run.device.faults(),
        reserved=reserved_view(manager),
        caches=cache_views(manager, run.fetcher, look.orders),
        fetches={label: fetch_view(done, look.orders.at(done.position)) for label, done in run.fetcher.labels.items()},
    )


LEVELS = {-1: None, **{int(level): level for level in Level}}


class _Fences(dict[Fence, Order]):
    """The order of work behind each fence, as it stands now; many pages share one."""

    def __init__(self, orders: Orders, known: dict[OrderValue, Order]) -> None:
        super().__init__()
        self._orders = orders
        self._before = known.copy()
        self._known = known
        known.clear()

    def __missing__(self, fence: Fence) -> Order:
        order = self._orders.all_of([point.event for point in fence.points])
        value = order.gates, None if order.after is None else frozenset(order.after.items())
        self[fence] = self._known[value] = order = self._known.get(value) or self._before.get(value, order)
        return order


class _Look:
    """Views of the parts of one run, as they are now."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._manager = run.manager
        self._groups = run.names.groups
        self.orders = Orders(run.device, run.gates, run.marks)
        self._fences = _Fences(self.orders, run.orders)

    def snapshot(self, snapshot: Snapshot) -> SnapshotView:
        """A snapshot, as taken; its readiness as it stands now."""
        return SnapshotView(
            indices=tuple(snapshot.indices.tolist()),
            levels=tuple(map(LEVELS.__getitem__, snapshot.levels.tolist())),
            eligible=snapshot.eligible,
            ready=tuple([None if fence is None else self._fences[fence] for fence in snapshot.ready]),
            row=snapshot.row,
            version=snapshot.version,
        )

    def request(self, request: Request) -> RequestView:
        """A request, closed or not."""
        snapshots: dict[tuple[str, int], SnapshotView] = {}
        if not request.closed:
            for number, group in enumerate(self._groups):
                for beam in range(request.beam_width):
                    snapshots[group, beam] = self.snapshot(self._manager.snapshot(request, number, beam))
        return RequestView(
            status=request.status,
            phase=request.phase,
            capacity=request.capacity,
            history=request.history,
            committed=request.committed,
            row=request.row,
            batch=None if request.batch is None else request.batch.name,
            beam_width=request.beam_width,
            version=request.version,
            acknowledged=request.acknowledged,
            dirty=request.dirty,
            snapshots=snapshots,
        )

    def pages(self, infos: list[PageInfo]) -> tuple[PageView, ...]:
        """Every page, with its bytes unless a closed gate holds up what puts them there."""
        served = [group.pool_groups for group in self._manager.layout.groups]
        ready = list(map(self._fences.__getitem__, [info.ready for info in infos]))
        pools: dict[tuple[int, int], list[PageInfo]] = {}
        for info, order in zip(infos, ready, strict=True):
            if not order.gates:
                pools.setdefault((info.level, served[info.group][info.level]), []).append(info)
        payloads: dict[int, bytes] = {}
        for (level, pool_group), there in pools.items():
            found = self._manager.payloads_now(level, pool_group, [info.slot for info in there])
            payloads.update(zip([info.page for info in there], found, strict=True))
        before, now = self._run.seen.copy(), self._run.seen
        now.clear()
        for read in zip(infos, [payloads.get(info.page) for info in infos], ready, strict=True):
            page = read[0].page
            known = before.get(page)
            now[page] = known if known is not None and known[0] == read else (read, self._page(*read))
        return tuple([view for _, view in now.values()])

    def _page(self, info: PageInfo, payload: bytes | None, ready: Order) -> PageView:
        group = self._groups[info.group]
        return PageView(
            group=group,
            block=info.block,
            beam=info.beam,
            refs=frozenset([PageRef(request.name, group, block, beam) for request, block, beam in info.refs]),
            tokens=None if info.text is None else shown(info.text),
            level=Level(info.level),
            slot=info.slot,
            status=info.status,
            owners=frozenset([request.name for request in info.owners]),
            ready=ready,
            payload=payload,
            copy_of=info.copy_of,
            others=frozenset([(Level(level), slot) for level, slot in info.others]),
        )

    def pools(self, infos: list[PageInfo]) -> Mapping[tuple[Level, str], PoolView]:
        """Every pool group of every level."""
        number_of = {info.page: number for number, info in enumerate(infos)}
        views = {}
        for level, pool_groups in enumerate(self._manager.layout.levels):
            for pool_group in pool_groups:
                info = self._manager.pool_info(level, pool_group.number)
                served = tuple(self._groups[group] for group in pool_group.groups)
                views[Level(level), served[0]] = PoolView(
                    groups=served,
                    slots=info.slots,
                    free=info.free,
                    fences=tuple(map(self._fences.__getitem__, info.fences)),
                    evictable=tuple(map(number_of.__getitem__, info.evictable)),
                )
        return views

    def read(self, read: Read) -> ReadView:
        """A labelled read: what it returned, unless a closed gate holds it up."""
        order = self.orders.at(read.position)
        if order.pending:
            return ReadView(order)
        return ReadView(
            order,
            None if read.table is None else read.table.entries(),
            None if read.page is None else read.page.payload(),
        )
