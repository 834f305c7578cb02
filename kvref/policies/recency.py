"""Policy ``recency``: what makes a page young in the order of eviction (R10.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kvref.maps import Map
from kvref.state import Key, Page, State, active, blocks_of, is_locked, kept, locked_backings, locks, needed, users


def renewed(before: State, state: State) -> Iterator[Page]:
    """The pages, as they now are, that have become young since ``before``, new ones aside."""
    return RENEWED[state.layout.policies.recency](before, state)


NOTHING: Map[Key, int] = Map()


def _left(before: State, state: State) -> Iterator[Page]:
    """``release``: those that have left LOCKED."""
    for was in active(before.requests):
        r = state.requests[was.name]
        had = needed(was.pages, before.layout, was.history)
        has = needed(r.pages, state.layout, r.history) if r.active else NOTHING
        still = has.items()
        for pid in [entry[1] for entry in had.items() if entry not in still] if has is not had else ():
            page = state.pages.get(pid)
            if page is not None and locks(before, was, page) and not is_locked(state, page):
                yield page
    for pid in sorted(locked_backings(before) - locked_backings(state)):  # R14.10: a copy and the backing each have their place
        if pid in state.pages and not is_locked(state, state.pages[pid]):
            yield state.pages[pid]


def _used(before: State, state: State) -> Iterator[Page]:
    """``access``: those that a request has locked, and those that have entered the tree."""
    found: dict[int, None] = {}
    for r in active(state.requests):
        was = before.requests.get(r.name)
        had = blocks_of(before, was) if was is not None and was.active and was.uid == r.uid else {}
        has = blocks_of(state, r)
        found.update(dict.fromkeys(pid for key, pid in has.items() if had.get(key) != pid) if has is not had else {})
    if state.pages is not before.pages:
        entered = (p.id for p in state.pages.values() if p.node is not None and _apart(before.pages.get(p.id)))
        found.update(dict.fromkeys(entered))
    yield from (state.pages[pid] for pid in found)


def _apart(page: Page | None) -> bool:
    return page is None or page.node is None


def _let_go(before: State, state: State) -> Iterator[Page]:
    """``let_go``: those that a request kept, active or not, and none does any more."""
    yield from (state.pages[pid] for pid in sorted(_kept(before) - _kept(state)) if pid in state.pages)


def _kept(state: State) -> frozenset[int]:
    backings = (p.id for p in state.pages.values() if p.backing and users(state, p)) if state.layout.private else ()  # R14.10
    return frozenset(kept(state)).union(backings)


RENEWED: Mapping[str, Callable[[State, State], Iterator[Page]]] = {"release": _left, "access": _used, "let_go": _let_go}
