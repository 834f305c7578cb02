"""Observations: everything that can be seen, read back from the device where it lies there."""

from __future__ import annotations

from collections.abc import Mapping

from kvgpu.adapter.counters import counters
from kvgpu.adapter.order import Orders
from kvgpu.adapter.reads import Read
from kvgpu.adapter.run import Run
from kvgpu.adapter.tables import batch_view
from kvgpu.adapter.tree import TreeLog
from kvgpu.operations.inspection import PageInfo
from kvgpu.requests.request import Request, Snapshot
from kvgpu.storage.fences import Fence
from kvspec.config import Level
from kvspec.observation import (
    Observation,
    Order,
    PageRef,
    PageStatus,
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
    infos = manager.page_infos()
    return Observation(
        groups=run.names.groups,
        requests={request.name: look.request(request) for request in manager.requests()},
        pages=tuple(look.page(info) for info in infos),
        tree=tuple(TreeBlockView(tokens) for tokens in manager.tree_blocks()),
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
    )


class _Look:
    """Views of the parts of one run, as they are now."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._manager = run.manager
        self._groups = run.names.groups
        self.orders = Orders(run.device, run.gates, run.marks)
        self._fences: dict[Fence, Order] = {}

    def fence(self, fence: Fence) -> Order:
        """The order of work behind a fence; many pages share one."""
        if fence not in self._fences:
            self._fences[fence] = self.orders.all_of([point.event for point in fence.points])
        return self._fences[fence]

    def snapshot(self, snapshot: Snapshot) -> SnapshotView:
        """A snapshot, as taken; its readiness as it stands now."""
        return SnapshotView(
            indices=tuple(snapshot.indices.tolist()),
            levels=tuple(None if level < 0 else Level(level) for level in snapshot.levels.tolist()),
            eligible=snapshot.eligible,
            ready=tuple(None if fence is None else self.fence(fence) for fence in snapshot.ready),
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

    def page(self, info: PageInfo) -> PageView:
        """A page, with its bytes unless a closed gate holds up what puts them there."""
        group = self._groups[info.group]
        ready = self.fence(info.ready)
        return PageView(
            group=group,
            block=info.block,
            beam=info.beam,
            refs=frozenset(PageRef(request.name, group, block, beam) for request, block, beam in info.refs),
            tokens=info.tokens,
            level=Level(info.level),
            slot=info.slot,
            status=PageStatus(info.status),
            owners=frozenset(request.name for request in info.owners),
            ready=ready,
            payload=None if ready.pending else self._manager.payload_now(info.page),
        )

    def pools(self, infos: list[PageInfo]) -> Mapping[tuple[Level, str], PoolView]:
        """Every pool group of every level."""
        place = {info.page: number for number, info in enumerate(infos)}
        views = {}
        for level, pool_groups in enumerate(self._manager.layout.levels):
            for pool_group in pool_groups:
                info = self._manager.pool_info(level, pool_group.number)
                served = tuple(self._groups[group] for group in pool_group.groups)
                views[Level(level), served[0]] = PoolView(
                    groups=served,
                    slots=info.slots,
                    free=info.free,
                    fences=tuple(self.fence(fence) for fence in info.fences),
                    evictable=tuple(place[page] for page in info.evictable),
                )
        return views

    def read(self, read: Read) -> ReadView:
        """A labelled read: what it returned, unless a closed gate holds it up."""
        order = self.orders.at(read.position)
        if order.pending:
            return ReadView(order)
        return ReadView(
            order,
            None if read.table is None else read.table.words(),
            None if read.page is None else read.page.payload(),
        )
