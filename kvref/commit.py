"""Commit: tokens enter the prefix tree, by an own page or by a rebase (R3.9)."""

from __future__ import annotations

from functools import partial

from kvref.all_or_nothing import must_fit
from kvref.eviction import act
from kvref.failure import invalid, logic
from kvref.growth import check_ended, check_values, resized
from kvref.locations import backing, redirect
from kvref.lookup import live, need_active, need_key, need_tokens
from kvref.maps import Map
from kvref.needs import bring, needs_of
from kvref.offload import Offload, offload, offload_of, plan_offload
from kvref.pages import behind, delete, follow, let_go, let_go_stale, renew
from kvref.policies.dedupe import rebases
from kvref.policies.partial_blocks import enters
from kvref.policies.room import plan_after
from kvref.state import Key, Page, Request, State, can_commit, mark_newer, put_page, put_request, stale
from kvref.tree import add_node, child, children, enter, page_at
from kvref.values import replace
from kvspec import ops
from kvspec.config import Level
from kvspec.tokens import Token, keyed


def commit(state: State, op: ops.Commit) -> tuple[State, None]:
    """R3.9: append tokens; history grows to cover them; full blocks enter the tree, one after the other; `end` is terminal."""
    r = live(state, op.request)
    need_tokens(op.tokens)
    need_key(op.key)
    total = len(r.tokens) + len(op.tokens)
    if total > r.capacity:
        raise invalid(f"{total} committed tokens of request {r.name!r} exceed its capacity {r.capacity}: grow that first")
    history = max(r.history, total)
    check_values(state, r, None, history)
    need_active(r)
    if r.width > 1:
        raise logic(f"request {r.name!r} has beam width {r.width}: only beam width 1 commits")
    if op.tokens and not can_commit(state, r):
        raise logic(f"request {r.name!r} has ended its commits: nothing can be added")
    check_ended(state, r, None, history)

    if history > r.history:
        way = [p for p in state.pages.values() if p.node in r.path]
        state = renew(state, must_fit(state, lambda s: resized(s, r, None, history, way)))
    tokens = r.tokens + keyed(op.tokens, r.key, op.key)  # R2.7
    for block in range(len(r.path), len(tokens) // state.layout.tpb) if op.tokens else ():
        state = renew(state, must_fit(state, partial(commit_block, name=r.name, block=block, tokens=tokens)))
    r = state.requests[r.name]
    if op.tokens:
        state = put_request(state, replace(r, tokens=tokens))
    if op.end:
        state = finish(state, state.requests[r.name], enter_rest=True)
        state = put_request(state, replace(state.requests[r.name], terminal=True))
    return state, None


def commit_block(state: State, name: str, block: int, tokens: tuple[Token, ...]) -> State:
    """R3.9: one full block enters the tree, or is rebased if the tree has it. Raises `NoRoom`, `Refused`."""
    r, tpb = state.requests[name], state.layout.tpb
    parent = r.path[-1] if r.path else None
    own = tokens[block * tpb : (block + 1) * tpb]
    node = child(state, parent, own)
    keys = [(g.index, block, 0) for g in state.layout.attention]
    theirs: dict[Key, Page] = {}
    if node is None or node.gone:
        state, nid = add_node(state, parent, own)
    else:
        nid = node.id
    if node is not None and not node.gone and rebases(state):
        theirs = {k: p for k in keys if (p := page_at(state, nid, k[0]))}
        state = rebase(state, r, theirs)
        r = state.requests[r.name]
    for key in keys:
        if key not in theirs and key in r.pages:  # the tree lacks it: the request's page turns committed where it is
            state = enter(state, r, state.pages[r.pages[key]], nid)
    state = put_request(state, replace(r, path=(*r.path, nid), tokens=tokens[: (block + 1) * tpb]))
    state = let_go_stale(state, r)  # R3.7: when its block is committed, the request lets go of a stale page
    return mark_newer(state, [r.name])


def rebase(state: State, r: Request, theirs: dict[Key, Page]) -> State:
    """R3.9: give up own pages, or R14.7 make them the tree's, and lock these under R3.2; offload those that are eligible.

    Raises `NoRoom`, `Refused`.

    The own pages count as given up (R3.14). The path's blocks are pinned, like the pages that are about to be locked.
    """
    before = state
    state = let_go(state, r, [k for k in theirs if k in r.pages and not state.layout.copied(k[0])])
    for key, page in theirs.items():
        state = join_page(state, state.requests[r.name], key, page) if state.layout.copied(key[0]) else state
    r = state.requests[r.name]
    wanted = {k: state.pages[r.pages.get(k, p.id)] for k, p in theirs.items() if not stale(state, r, k)}
    locked = replace(r, pages=Map({**r.pages, **{k: p.id for k, p in wanted.items()}}))
    needs = needs_of(state, r, wanted, r.decoding)
    eligible = offload_of(put_request(state, locked), locked, None).must
    work = Offload(tuple(p for p in eligible if p.key in wanted))  # no older deferred pages: history does not grow here
    own = [state.pages[pid] for key, pid in r.pages.items() if key[1] == len(r.path)]
    pinned = [*own, *needs.pinned, *theirs.values(), *(p for p in state.pages.values() if p.node in r.path)]
    plan, chosen = plan_offload(state, plan_after(before, state, pinned), work, needs.pools(state))
    state = bring(act(state, plan), r, needs)
    pages = {**{k: p.id for k, p in wanted.items()}, **{k: state.requests[r.name].pages[k] for k in needs.fills}}
    state = put_request(state, replace(r, pages=Map({**r.pages, **pages})))
    after = behind(state.pages[pid] for pid in pages.values())
    return follow(offload(state, chosen), r.stream, after)  # R7.9: neither waits for the other


def join_page(state: State, r: Request, key: Key, theirs: Page) -> State:
    """R14.7: the request's own page becomes its copy of the tree's page, or the backing, or is released where there is one."""
    page, old = state.pages[r.pages[key]], backing(state, theirs)
    if page.level is not Level.GPU and old is not None and old.level is Level.HOST:
        return let_go(state, r, [key])
    assert theirs.node is not None  # it is a page of the tree
    state = enter(state, r, page, theirs.node)
    state = put_page(state, replace(state.pages[page.id], identity=theirs.identity, entered=theirs.entered))
    if old is not None and (page.level is not Level.GPU or old.level is Level.GPU):
        state = redirect(delete(state, old), old)  # R14.1: one backing, and none on the GPU while an active request uses the page
    return redirect(state, theirs)


def finish(state: State, r: Request, *, enter_rest: bool) -> State:
    """R3.9: end committing. ``enter_rest``: a last, partial block enters the tree, unless some child covers its tokens.

    R3.7: the stale pages that were kept for committing are released.
    """
    rest = r.tokens[len(r.path) * state.layout.tpb :]
    parent = r.path[-1] if r.path else None
    covered = not enters(state, rest) or any(n.tokens[: len(rest)] == rest and not n.gone for n in children(state, parent))
    pages = [r.pages[key] for g in state.layout.attention if (key := (g.index, len(r.path), 0)) in r.pages]
    if enter_rest and can_commit(state, r) and rest and not covered and pages:  # nothing can follow it, so it is no link
        state, node = add_node(state, parent, rest)
        for pid in pages:
            if state.pages[pid].node is None:
                state = enter(state, r, state.pages[pid], node)
        state = mark_newer(state, [r.name])
    state = put_request(state, replace(r, ended=True))
    return let_go_stale(state, r)


def stop_committing(state: State, op: ops.StopCommitting) -> tuple[State, None]:
    """R3.9: end committing without adding anything, also while suspended."""
    return finish(state, live(state, op.request), enter_rest=False), None
