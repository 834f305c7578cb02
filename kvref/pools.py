"""Operations on the pools and on the tree itself: seed, evict, clear, take and give slots (R10.5)."""

from __future__ import annotations

from kvref.all_or_nothing import must_fit
from kvref.eviction import clear, evict, make_room
from kvref.failure import Failure, invalid, logic, out_of_range
from kvref.layout import PoolGroup
from kvref.lookup import group_indices, need_key, need_level, need_spans, need_tokens, pool_group
from kvref.order import Work, join
from kvref.pages import free_slot, new_page, take_slot
from kvref.policies.clear_event import cleared
from kvref.policies.partial_blocks import enters
from kvref.state import State, put_page
from kvref.tree import add_node, child, page_at, prefix
from kvref.values import replace
from kvspec import ops
from kvspec.config import Level
from kvspec.errors import ErrorKind
from kvspec.payload import seed_content
from kvspec.tokens import keyed


def seed_prefix(state: State, op: ops.SeedPrefix) -> tuple[State, None]:
    """R10.5: add the missing blocks and pages of a prefix at a level, evicting if need be; a remainder is a partial block."""
    groups = group_indices(state, op.groups)
    level = op.level.level
    need_level(state, level)
    need_tokens(op.tokens)
    need_key(op.key)
    need_spans(op.spans, len(op.tokens))
    return must_fit(state, lambda s: seed(s, op, level, groups)), None


def seed(state: State, op: ops.SeedPrefix, level: Level, groups: tuple[int, ...]) -> State:
    """R10.5: the acting part; the blocks on the way are pinned. Raises `NoRoom`, `Refused`."""
    tpb = state.layout.tpb
    text = keyed(op.tokens, op.key, spans=op.spans)  # R2.7
    blocks = [own for i in range(0, len(text), tpb) if enters(state, own := text[i : i + tpb])]
    way: list[int] = []
    for tokens in blocks:
        node = child(state, way[-1] if way else None, tokens)
        if node is None:
            break
        way.append(node.id)
    missing = [(b, g) for b in range(len(blocks)) for g in groups if b >= len(way) or page_at(state, way[b], g) is None]
    pinned = [p for p in state.pages.values() if p.node in way]
    state = make_room(state, [state.layout.pool_group(level, g) for _, g in missing], pinned)
    for block, tokens in enumerate(blocks):
        if block >= len(way) or state.nodes[way[block]].gone:
            state, added = add_node(state, way[block - 1] if block else None, tokens)
            way[block : block + 1] = [added]
    made: dict[PoolGroup, list[tuple[int, Work]]] = {}
    for block, group in missing:
        state, page, fence = new_page(state, (group, block, 0), level, op.priority)
        content = seed_content(prefix(state, way[block]), state.layout.groups[group].name, block)
        identity = page.id if state.layout.copied(group) else None  # R14.1: a seeded page is a backing
        seeded = replace(page, content=content, written=True, node=way[block], entered=page.id, identity=identity)
        state = put_page(state, seeded)
        made.setdefault(state.layout.pool_group(level, group), []).append((page.id, fence))
    for pages in made.values():
        # R7.2: the next use of the slots is the write of the payloads, which makes the pages ready, all of a pool group at once.
        written = join(*(fence for _, fence in pages))
        for pid, _ in pages:
            state = put_page(state, replace(state.pages[pid], ready=written))
    return state


def evict_pages(state: State, op: ops.Evict) -> tuple[State, None]:
    """R10.5: move or drop the first evictable pages of a pool group."""
    pool = pool_group(state, op.level.level, op.group)
    if op.pages < 1:
        raise invalid(f"evict {op.pages} pages: expected 1 or more")
    return must_fit(state, lambda s: evict(s, pool, op.pages)), None


def clear_reusable(state: State, op: ops.ClearReusable) -> tuple[State, None]:
    """R10.5: drop every droppable page."""
    return cleared(clear(state)), None


def take_slots(state: State, op: ops.TakeSlots) -> tuple[State, None]:
    """R10.5: take free slots, and only free ones, out of a pool group."""
    pool = pool_group(state, op.level.level, op.group)
    free = len(state.free[pool])
    count = free if op.count == "all" else op.count
    if count < (op.count != "all"):
        raise invalid(f"take {count} slots: expected 1 or more")
    if op.as_ in state.taken:
        raise logic(f"slots {op.as_!r} are taken already: give them back first, or choose another label")
    if count > free:
        raise Failure(ErrorKind.OUT_OF_PAGES, f"{count} slots wanted, {free} free at level {op.level.value}: take fewer")
    slots = []
    for _ in range(count):
        state, slot = take_slot(state, pool)
        slots.append(slot)
    return replace(state, taken=state.taken.set(op.as_, (pool, tuple(slots)))), None


def give_slots(state: State, op: ops.GiveSlots) -> tuple[State, None]:
    """R10.5: give taken slots back, with their fences."""
    if op.as_ not in state.taken:
        raise out_of_range(f"no taken slots {op.as_!r}: take them first")
    pool, slots = state.taken[op.as_]
    for slot in slots:
        state = free_slot(state, pool, slot.number, slot.fence)
    return replace(state, taken=state.taken.without(op.as_)), None
