"""What observers see of pages and pools. An object a page: for tests and reports, not for the way of a request."""

from __future__ import annotations

from dataclasses import dataclass

from kvgpu.operations.state import Core
from kvgpu.requests.request import Request
from kvgpu.storage.fences import EMPTY, Fence
from kvgpu.storage.pages import NO_NODE
from kvspec.observation import PageStatus


@dataclass(frozen=True, slots=True)
class PageInfo:
    """A page. ``refs``: every request that locks or holds it, as which block and beam row. ``tokens``: the whole prefix that its
    tree block ends, or ``None``. ``origin``: the serial of the page that it was copied from, or -1."""

    page: int
    serial: int
    origin: int
    group: int
    block: int
    beam: int
    level: int
    slot: int
    status: PageStatus
    owners: tuple[Request, ...]
    refs: tuple[tuple[Request, int, int], ...]
    tokens: tuple[int, ...] | None
    ready: Fence
    written: bool


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool group of a level. ``fences``: of the free slots. ``evictable``: page numbers in eviction order (R10.2)."""

    slots: int
    free: int
    fences: tuple[Fence, ...]
    evictable: tuple[int, ...]


def page_infos(core: Core) -> list[PageInfo]:
    """Every page, oldest first."""
    return [_page_info(core, page) for page in core.pages.living().tolist()]


def _page_info(core: Core, page: int) -> PageInfo:
    pages = core.pages
    group = int(pages.group[page])
    block, beam, node = int(pages.block[page]), int(pages.beam[page]), int(pages.node[page])
    users = [core.by_uid[uid] for uid in sorted(pages.users_of(page))]
    kept = PageStatus.HELD if users else PageStatus.DROPPABLE
    return PageInfo(
        page,
        int(pages.serial[page]),
        int(pages.origin[page]),
        group,
        block,
        beam,
        int(pages.level[page]),
        int(pages.slot[page]),
        PageStatus.LOCKED if pages.locks[page] else kept,
        tuple(user for user in users if core.has_locked(user, page)),
        tuple((user, 0 if user.ssm[group] else block, beam) for user in users),
        None if node == NO_NODE else core.tree.nodes[node].prefix(),
        core.fences[int(pages.ready[page])],
        bool(pages.written[page]),
    )


def pool_info(core: Core, level: int, pool_group: int) -> PoolInfo:
    """A pool group as it is."""
    pool = core.pools[level][pool_group]
    free = pool.free_slots()
    fences = tuple(_joined(core, int(pool.fence[slot]), int(pool.readers[slot])) for slot in free.tolist())
    return PoolInfo(pool.spec.slots, pool.free, fences, tuple(core.queues[level][pool_group].ordered().tolist()))


def _joined(core: Core, fence: int, readers: int) -> Fence:
    first = core.fences[fence]
    return first if readers == EMPTY else Fence((*first.points, *core.fences[readers].points))
