"""The tree and the pools from outside: seeding, evicting, clearing (R10.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kvgpu.device.api import DeviceError
from kvgpu.errors import CopyFailed, InvalidArgument, OutOfPages, OutOfRange
from kvgpu.operations.keys import Span, check_keys, marked
from kvgpu.operations.payloads import fill_buffer
from kvgpu.operations.room import NoRoom
from kvgpu.operations.state import Core
from kvgpu.operations.transaction import Transaction
from kvgpu.operations.tree_changes import drop, give_page, insert_node
from kvgpu.runs import Int32
from kvgpu.storage.copier import Side
from kvgpu.storage.fences import EMPTY, Point, Wait
from kvgpu.storage.pages import NO_NODE, NO_PAGE
from kvgpu.storage.pools import SlotPool
from kvgpu.storage.prefix_tree import Node
from kvgpu.storage.texts import Text, Tokens

Content = Callable[[tuple[int, ...], int, int], bytes]


def check_level(core: Core, level: int) -> None:
    """``InvalidArgument`` for a level that the manager does not have."""
    if not 0 <= level < len(core.pools):
        raise InvalidArgument(f"no level {level}: the manager has levels 0 to {len(core.pools) - 1}")


def seed(
    core: Core,
    tokens: Sequence[int],
    level: int,
    groups: Sequence[int] | None,
    priority: int,
    content: Content,
    key: str | None = None,
    spans: Sequence[Span] = (),
) -> None:
    """Add missing blocks and pages (R10.5). ``key``, ``spans``: of the tokens (R2.7)."""
    count = len(core.layout.groups)
    if groups is not None and any(not 0 <= group < count for group in groups):
        raise OutOfRange(f"seed_prefix: groups {list(groups)} are not all layer groups of the manager")
    check_level(core, level)
    if any(token < 0 for token in tokens):
        raise InvalidArgument(f"seed_prefix: tokens are integers from 0, got {min(tokens)}")
    check_keys("seed_prefix", len(tokens), key, spans)
    chosen = range(count) if groups is None else sorted(set(groups))
    try:
        with Transaction(core, core.scope()) as tx:
            _seed(tx, marked(tokens, key, spans), level, chosen, priority, content)
            tx.commit()
    except NoRoom as error:
        raise OutOfPages(f"seed_prefix: {error}") from error


def _seed(tx: Transaction, text: Text, level: int, groups: Sequence[int], priority: int, content: Content) -> None:
    core, size = tx.core, tx.core.layout.tokens_per_block
    chunks = [text.part(start, start + size) for start in range(0, len(text.tokens), size)]
    path: list[Node] = []
    node: Node | None = core.tree.root
    for chunk in chunks:
        node = node.children.get(chunk) if node is not None else None
        if node is not None:
            path.append(node)
    tx.room.pin_blocks(path)
    missing = [
        (block, group)
        for block in range(len(chunks))
        for group in groups
        if block >= len(path) or path[block].pages[group] == NO_PAGE
    ]
    pool_groups = {group: int(core.pool_group[group, level]) for group in groups}
    counts = {
        (level, number): sum(pool_groups[group] == number for _, group in missing) for number in sorted(set(pool_groups.values()))
    }
    tx.room.claim(counts)
    tx.copies.evict()
    slots = tx.room.take(counts)
    start = len(path)
    for block, chunk in enumerate(chunks[start:], start):
        prefix = text.part(0, block * size + len(chunk.tokens))
        path.append(insert_node(tx, path[-1] if path else core.tree.root, chunk, prefix))
    for key, taken in slots.items():
        mine = [(block, group) for block, group in missing if pool_groups[group] == key[1]]
        if mine:
            _make(tx, path, mine, key, taken, priority, content)


def _make(
    tx: Transaction,
    path: list[Node],
    wanted: list[tuple[int, int]],
    key: tuple[int, int],
    slots: Int32,
    priority: int,
    content: Content,
) -> None:
    """New pages of the tree in reserved slots, written on a lane."""
    core, fences, pool = tx.core, tx.core.fences, tx.core.pool(key)
    prefixes: dict[int, Tokens] = {}
    for block, _ in wanted:
        if block not in prefixes:
            above = prefixes.get(block - 1)
            prefixes[block] = path[block].prefix().tokens if above is None else above + path[block].tokens
    payloads = [content(prefixes[block], group, block) for block, group in wanted]
    waits = [Wait(fences.points(pool.fence[slots], pool.readers(slots)), where="R7.2 the slots that seeds take")]
    source = Side(np.arange(len(slots), dtype=np.int32), None, fill_buffer(core, payloads))
    try:
        done = core.copier.on_lane(source, Side(slots, pool), waits, "payload of seeded pages")
    except DeviceError as error:
        raise CopyFailed(f"the payloads of {len(payloads)} seeded pages were refused: {error}") from error
    tx.on_undo(lambda: _fence(core, pool, slots, done))
    tx.put_slots(pool, "fence", slots, EMPTY)
    tx.take_over_readers(pool, slots)
    ready, numbers = fences.add([done]), []
    for (block, group), slot in zip(wanted, slots.tolist(), strict=True):
        one = np.array([block], dtype=np.int32)
        page = tx.new_pages(group, one, np.zeros_like(one), key, np.array([slot], dtype=np.int32), priority)
        give_page(tx, int(page[0]), path[block])
        numbers.append(page)
    pages = np.concatenate(numbers)
    core.pages.ready[pages] = ready
    core.pages.written[pages] = True
    tx.make_evictable(pages)


def _fence(core: Core, pool: SlotPool, slots: Int32, done: Point) -> None:
    """The slots of an undone write are used again after it."""
    pool.fence[slots] = core.fences.merged(pool.fence[slots], [done])


def evict(core: Core, level: int, pool_group: int, count: int) -> None:
    """Move or drop the first evictable pages of a pool group, all or nothing (R10.5)."""
    if count < 1:
        raise InvalidArgument(f"evict of {count} pages: at least 1")
    with Transaction(core, core.scope()) as tx:
        key = (level, pool_group)
        before = tx.room.left(key)
        while (gone := tx.room.left(key) - before) < count:  # a page that goes with a removed subtree has left, too
            if not tx.room.evict_one(key):
                raise OutOfPages(f"evict of {count} pages on level {level}, pool group {pool_group}: only {gone} can leave")
        tx.copies.evict()
        tx.commit()


def clear(core: Core) -> None:
    """Drop every droppable page, hottest level first, in eviction order (R10.5)."""
    pages = core.pages
    with Transaction(core, core.scope()) as tx:
        for queues in core.queues:
            numbers = np.concatenate([queue.ordered() for queue in queues])
            keys = (pages.serial, pages.group, -pages.block.astype(np.int64), pages.stamp, pages.priority)
            for page in numbers[np.lexsort([key[numbers] for key in keys])].tolist():
                kept = pages.users[page] if core.backings is None else core.backings.kept(page)
                if pages.alive[page] and not kept and pages.node[page] != NO_NODE:
                    drop(tx, page, tx.events)
        tx.commit()
