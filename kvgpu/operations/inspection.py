"""What observers see of pages and pools. An object a page: for tests and reports, not for the way of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvgpu.operations.state import Core
from kvgpu.requests.request import Request
from kvgpu.storage.fences import EMPTY, Fence
from kvgpu.storage.pages import NO_NODE
from kvspec.observation import PageStatus


class PageInfo(NamedTuple):
    """A page. ``refs``: every request that locks or holds it, as which block and beam row. ``tokens``: the whole prefix that its
    tree block ends, or ``None``. ``origin``: the serial of the page whose payload it has a copy of, or -1."""

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


COLUMNS = ("serial", "origin", "group", "block", "beam", "level", "slot", "locks", "users", "user", "node", "ready", "written")


def page_infos(core: Core) -> list[PageInfo]:
    """All pages, those that only the tree keeps included, oldest first."""
    numbers = core.pages.living()
    columns = [getattr(core.pages, name)[numbers].tolist() for name in COLUMNS]
    owners: dict[int, list[Request]] = {}
    for request in core.by_uid.values():
        for group in range(request.group_count):
            for page in request.locked_pages(group).tolist():
                owners.setdefault(page, []).append(request)
    return [
        _page_info(core, page, tuple(owners.get(page, ())), *row) for page, *row in zip(numbers.tolist(), *columns, strict=True)
    ]


def _page_info(
    core: Core,
    page: int,
    owners: tuple[Request, ...],
    serial: int,
    origin: int,
    group: int,
    block: int,
    beam: int,
    level: int,
    slot: int,
    locks: int,
    count: int,
    user: int,
    node: int,
    ready: int,
    written: bool,
) -> PageInfo:
    uids = sorted(core.pages.shared[page]) if count > 1 else (user,) if count else ()
    users = [core.by_uid[uid] for uid in uids]
    kept = PageStatus.HELD if users else PageStatus.DROPPABLE
    return PageInfo(
        page,
        serial,
        origin,
        group,
        block,
        beam,
        level,
        slot,
        PageStatus.LOCKED if locks else kept,
        owners,
        tuple([(user, 0 if user.ssm[group] else block, beam) for user in users]),
        None if node == NO_NODE else core.tree.node(node).kept_prefix(),
        core.fences[ready],
        written,
    )


def pool_info(core: Core, level: int, pool_group: int) -> PoolInfo:
    """The slots, fences and evictable pages of a pool group, as they are now (R7.2, R10.2)."""
    pool = core.pools[level][pool_group]
    free = pool.free_slots()
    both = {}
    fences = []
    for pair in zip(pool.fence[free].tolist(), pool.readers_seen(free).tolist(), strict=True):
        if pair not in both:
            both[pair] = _joined(core, *pair)
        fences.append(both[pair])
    return PoolInfo(pool.spec.slots, pool.free, tuple(fences), tuple(core.queues[level][pool_group].ordered().tolist()))


def _joined(core: Core, fence: int, readers: int) -> Fence:
    first = core.fences[fence]
    return first if readers == EMPTY else Fence((*first.points, *core.fences[readers].points))
