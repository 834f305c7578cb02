"""What an active request does: resize, enter decode, the bare offload, beam rows, writes (R2.1, R3.6-R3.8, R3.12, R4.9)."""

from __future__ import annotations

from collections.abc import Iterable

from kvref.all_or_nothing import fits, must_fit
from kvref.eviction import act, make_room, reserve_all
from kvref.failure import invalid, logic
from kvref.locations import attaches
from kvref.lookup import group_indices, live, need_active, need_blocks
from kvref.offload import host, move_history, offload, offload_of, plan_offload
from kvref.pages import add_page, let_go, let_go_stale, renew, unkept_stale, unlock, write_history, write_of
from kvref.policies.room import plan_after
from kvref.reserving import reserve, reserved_pools
from kvref.state import Key, Page, Request, State, batch_of, mapped, put_request, stale
from kvref.values import replace
from kvspec import ops
from kvspec.config import Level
from kvspec.observation import Phase


def rows(r: Request, block: int, tpb: int) -> range:
    """R3.12: the beam rows of a block: one in the prompt, as many as beams after it."""
    return range(1 if (block + 1) * tpb <= r.prompt else r.width)


def keys_of(state: State, r: Request, blocks: Iterable[int]) -> list[Key]:
    """The pages that blocks of a request consist of at its history: every attention group and beam row that is not stale."""
    tpb = state.layout.tpb
    keys = [(g.index, b, beam) for b in blocks for g in state.layout.attention for beam in rows(r, b, tpb)]
    return [k for k in keys if not stale(state, r, k)]


def resize(state: State, op: ops.Resize) -> tuple[State, bool]:
    """R3.6: set capacity and history; false when slots run out. Nothing given keeps both and retries (R4.3)."""
    r = live(state, op.request)
    check_values(state, r, op.capacity, op.history)
    need_active(r)
    check_ended(state, r, op.capacity, op.history)
    return fits(state, r.name, lambda s: resized(s, r, op.capacity, op.history))


def check_values(state: State, r: Request, capacity: int | None, history: int | None) -> None:
    """R3.6: values that can never be right, for this request as it is."""
    for name, value in (("capacity", capacity), ("history", history)):
        if value is not None and value < 0:
            raise invalid(f"{name} {value} of request {r.name!r} is negative")
    new_capacity = r.capacity if capacity is None else capacity
    new_history = r.history if history is None else history
    if new_history < r.history:
        raise invalid(f"history {new_history} of request {r.name!r}: it is {r.history} already and never shrinks")
    if new_capacity < new_history:
        raise invalid(f"capacity {new_capacity} of request {r.name!r} is below its history {new_history}")
    if r.decoding and any(g.sparse for g in state.layout.groups) and new_history > r.capacity:
        raise invalid(
            f"history {new_history} of decoding request {r.name!r} exceeds its old capacity {r.capacity}: grow that first"
        )


def check_ended(state: State, r: Request, capacity: int | None, history: int | None) -> None:
    """R3.9: `end` is terminal: no growth afterwards."""
    if r.terminal and ((capacity or 0) > r.capacity or (history or 0) > r.history):
        raise logic(f"request {r.name!r} has ended its commits with end: it cannot grow any more")


def resized(state: State, r: Request, capacity: int | None, history: int | None, pinned: Iterable[Page] = ()) -> State:
    """R3.6: the acting part of a resize. ``pinned``: pages that it must not evict, besides its own. Raises `NoRoom`, `Refused`.

    What it gives up (shrunk tail, stale blocks: R3.7) is free for what it takes (R3.14). Newly completed blocks must fit on the
    host, older deferred pages may (R4.7).
    """
    before, tpb, old = state, state.layout.tpb, r
    r = replace(r, capacity=r.capacity if capacity is None else capacity, history=r.history if history is None else history)
    locked = mapped(state, old)
    state = put_request(state, r)
    tail = [k for k in r.pages if not state.layout.groups[k[0]].ssm and k[1] >= state.layout.blocks(r.capacity)]
    state = let_go(state, r, (*tail, *unkept_stale(state, r)))
    r = state.requests[r.name]
    kept = [page for key, page in locked.items() if key in r.pages and stale(state, r, key)]
    state = unlock(state, r, *kept)  # R3.7: not locked any more
    state = renew(before, state)  # R10.1: what it gives up and somebody keeps is evictable for this operation

    new = keys_of(state, r, range(state.layout.blocks(old.capacity), state.layout.blocks(r.capacity)))
    work = offload_of(state, r, range(old.history // tpb, r.history // tpb))
    plan = plan_after(before, state, (*mapped(state, r).values(), *pinned))
    pools = [*(state.layout.pool_group(Level.GPU, key[0]) for key in new), *reserved_pools(state, r)]
    plan, chosen = plan_offload(state, plan, work, pools)
    # R3.14: a block that goes stale as it completes, and that this operation evicts, goes with its payload.
    state = write_history(state, r, old.history, r.history, plan.at.keys() - plan.dropped)
    state = reserve(act(state, plan), r)
    for key in new:
        state = add_page(state, r, key)
    state = write_history(state, state.requests[r.name], old.history, r.history)
    return offload(state, chosen)


def enter_decode(state: State, op: ops.EnterDecode) -> tuple[State, bool]:
    """R3.8: offload every eligible page of the complete history; false, still prefill, when host slots run out.

    On a decoding request it retries deferred pages (R4.3).
    """
    r = live(state, op.request)
    need_active(r)

    def acting(s: State) -> State:
        s = put_request(s, replace(r, phase=Phase.DECODE))
        return move_history(s, s.requests[r.name], () if r.decoding else None)

    return fits(state, r.name, acting)


def bare_offload(state: State, op: ops.Offload) -> tuple[State, None]:
    """R4.9: offload blocks without phase and owner check: the caller vouches."""
    r = live(state, op.request)
    groups = group_indices(state, op.groups)
    if op.groups is None:
        groups = tuple(g for g in groups if state.layout.groups[g].sparse)
    need_blocks(op.blocks)
    need_active(r)
    chosen: list[Page] = []
    for block in sorted(set(op.blocks)):  # in order of block, then group, as in R4.7
        for group in groups:
            name = f"{r.name}.{state.layout.groups[group].name}.{block}"
            pages = [p for k, p in mapped(state, r).items() if k[:2] == (group, block)]
            if not state.layout.groups[group].sparse:
                raise logic(f"{name} is dense: only pages of sparse groups are offloaded")
            if not pages:
                raise logic(f"{name} is absent: the request has {state.layout.blocks(r.capacity)} blocks")
            if not state.layout.complete(block, r.history):
                raise logic(f"{name} is not complete history (history {r.history}): offload it when it is")
            chosen += [p for p in pages if p.level is Level.GPU]
    pools = [host(state, p) for p in chosen if not attaches(state, p)]
    return must_fit(state, lambda s: offload(make_room(s, pools, mapped(s, r).values()), chosen)), None


def set_beam_width(state: State, op: ops.SetBeamWidth) -> tuple[State, bool]:
    """R3.12: blocks after the prompt get a row for each beam; false when slots run out."""
    r = live(state, op.request)
    if op.width < 1:
        raise invalid(f"beam width {op.width}: expected 1 or more")
    need_active(r)
    if r.beams:
        raise logic(f"request {r.name!r} has its beam width already")
    if r.decoding:
        raise logic(f"request {r.name!r} is decoding: set its beam width in prefill")
    if r.history > r.prompt:
        raise logic(f"history {r.history} of request {r.name!r} is past its prompt of {r.prompt} tokens")
    if batch_of(state, r) is not None:
        raise logic(f"request {r.name!r} is a member of a batch, whose beam width is 1")
    wide = replace(r, width=op.width, beams=True)
    new = [k for k in keys_of(state, wide, range(state.layout.blocks(r.capacity))) if k not in r.pages]

    def acting(before: State) -> State:
        s = let_go_stale(put_request(before, wide), wide)
        plan = plan_after(before, s, mapped(s, r).values())
        s = act(s, reserve_all(s, plan, [s.layout.pool_group(Level.GPU, key[0]) for key in new]))
        for key in new:
            s = add_page(s, r, key)
        return s

    return fits(state, r.name, acting)


def write(state: State, op: ops.Write) -> tuple[State, None]:
    """R2.1: write payloads on the request's stream, in the part of its pages that is not history."""
    r = live(state, op.request)
    groups = group_indices(state, op.groups)
    need_blocks(op.blocks)
    need_active(r)
    pages: list[Page] = []
    for block in dict.fromkeys(op.blocks):
        for group in groups:
            g = state.layout.groups[group]
            if op.groups is None and (state.layout.stale(group, block, r.history) or (g.ssm and block > 0)):
                continue  # groups in which the block is stale, or that have no such block, are passed over
            pages += writable(state, r, group, block)
    for page in pages:
        state = write_of(state, r, state.pages[page.id])
    return state, None


def writable(state: State, r: Request, group: int, block: int) -> list[Page]:
    """R2.1: the pages of a block, all beam rows, if the request may write to them."""
    name = f"{r.name}.{state.layout.groups[group].name}.{block}"
    pages = [p for k, p in mapped(state, r).items() if k[:2] == (group, block)]
    if not pages:
        raise logic(f"{name} is stale or absent: nothing can be written there")
    if state.layout.complete(block, r.history) and not state.layout.groups[group].ssm:  # R1.3: a state changes at every step
        raise logic(f"{name} is wholly history: history is never written")
    if any(p.node is not None for p in pages):
        raise logic(f"{name} is committed: committed pages are immutable")
    if any(p.level is not Level.GPU for p in pages):
        raise logic(f"{name} is not in GPU memory")
    return pages
