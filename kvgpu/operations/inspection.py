"""What observers see of pages and pools. An object a page: for tests and reports, not for the way of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kvgpu.operations.state import Core
from kvgpu.requests.request import Request
from kvgpu.storage.fences import EMPTY, Fence
from kvgpu.storage.pages import NO_NODE, NOBODY
from kvgpu.storage.prefix_tree import Node
from kvgpu.storage.texts import Text
from kvspec.observation import PageStatus


class PageInfo(NamedTuple):
    """A page. ``refs``: every request that locks or holds it, as which block and beam row. ``text``: the whole prefix that its
    tree block ends, or ``None``. ``origin``: the serial of the page whose payload it has a copy of, or -1.

    ``copy_of``: the request whose copy it is; ``others``: level and slot of the other places of the page (R14.1).
    """

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
    text: Text | None
    ready: Fence
    written: bool
    copy_of: str | None
    others: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool group of a level. ``fences``: of the free slots. ``evictable``: page numbers in eviction order (R10.2)."""

    slots: int
    free: int
    fences: tuple[Fence, ...]
    evictable: tuple[int, ...]


COLUMNS = ("serial", "origin", "group", "block", "beam", "level", "slot", "locks", "written", "users", "user", "node", "ready")

SeenInfos: TypeAlias = dict[int, tuple[tuple[object, ...], PageInfo]]
"""By page number, what was read of a page last, and what an observer sees of it: the same as long as it reads the same."""


def page_infos(core: Core, seen: SeenInfos | None = None) -> list[PageInfo]:
    """All pages, those that only the tree keeps included, oldest first. ``seen``: of the look before; brought up to date."""
    numbers = core.pages.living()
    *columns, counts, user, node, ready = [getattr(core.pages, name)[numbers].tolist() for name in COLUMNS]
    pages = numbers.tolist()
    shared = core.pages.shared
    users = [
        tuple(sorted(shared[page])) if count > 1 else (one,) if count else ()
        for page, count, one in zip(pages, counts, user, strict=True)
    ]
    nodes = [None if number == NO_NODE else core.tree.node(number) for number in node]
    fences = {number: core.fences[number] for number in set(ready)}
    owners = _owners(core)
    shown = map(fences.get, ready), map(owners.get, pages), _places(core, pages)
    rows = zip(pages, *columns, users, nodes, *shown, strict=True)
    before, now = seen or {}, {}
    for row in rows:
        known = before.get(row[0])
        now[row[0]] = known if known is not None and known[0] == row else (row, _page_info(core, *row))
    if seen is not None:
        seen.clear()
        seen.update(now)
    return [info for _, info in now.values()]


Places: TypeAlias = tuple[str | None, frozenset[tuple[int, int]], bool]
"""Whose copy a page is, where the other places of it are, and whether somebody keeps it without being a user of this place."""

ALONE: Places = (None, frozenset(), False)


def _places(core: Core, numbers: list[int]) -> list[Places]:
    """Of each page what there is beside it, with private ownership (R14.1)."""
    if core.backings is None:
        return [ALONE] * len(numbers)
    found, pages, backings = [], core.pages, core.backings
    for page in numbers:
        uid = int(pages.copy_of[page])
        others = frozenset((int(pages.level[other]), int(pages.slot[other])) for other in backings.others(page))
        kept = uid == NOBODY and backings.kept(page)
        found.append((None if uid == NOBODY else core.by_uid[uid].name, others, kept))
    return found


def _owners(core: Core) -> dict[int, tuple[Request, ...]]:
    """The requests that have each page locked."""
    owners: dict[int, tuple[Request, ...]] = {}
    for request in core.by_uid.values():
        for group in range(request.group_count):
            mine: dict[int, tuple[Request, ...]] = dict.fromkeys(request.locked_pages(group).tolist(), (request,))
            for page in owners.keys() & mine.keys():
                mine[page] = (*owners[page], request)
            owners.update(mine)
    return owners


def _page_info(
    core: Core,
    page: int,
    serial: int,
    origin: int,
    group: int,
    block: int,
    beam: int,
    level: int,
    slot: int,
    locks: int,
    written: bool,
    uids: tuple[int, ...],
    node: Node | None,
    ready: Fence,
    owners: tuple[Request, ...] | None,
    places: Places,
) -> PageInfo:
    users = [core.by_uid[uid] for uid in uids]
    kept = PageStatus.HELD if users or places[2] else PageStatus.DROPPABLE
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
        owners or (),
        tuple([(user, 0 if user.ssm[group] else block, beam) for user in users]),
        None if node is None else node.kept_prefix(),
        ready,
        written,
        *places[:2],
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
