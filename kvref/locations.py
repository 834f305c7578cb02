"""The locations of a page that has a backing and copies, and which of them a request refers to (R14.1, R14.2)."""

from __future__ import annotations

from kvref.maps import Map
from kvref.state import Page, State, put_request
from kvref.values import memoised, replace
from kvspec.config import Level


@memoised
def by_identity(pages: Map[int, Page]) -> dict[int, list[Page]]:
    """The locations of every page that may have several, the one that was made first before the others."""
    found: dict[int, list[Page]] = {}
    for p in pages.values():  # the state has them in the order in which they were made
        if p.identity is not None:
            found.setdefault(p.identity, []).append(p)
    return found


def locations(state: State, page: Page) -> list[Page]:
    """R14.1: all locations that a page has now, by whichever of them it is given, which may be gone."""
    if page.identity is None:
        return [state.pages[page.id]] if page.id in state.pages else []
    return by_identity(state.pages).get(page.identity, [])


def backing(state: State, page: Page) -> Page | None:
    """R14.1: the location that every request may refer to, if there is one."""
    return next((p for p in locations(state, page) if p.backing), None)


def source(state: State, page: Page) -> Page | None:
    """R14.4: where a copy is filled from: the backing, or the oldest copy; None if the page is nowhere."""
    return backing(state, page) or next(iter(locations(state, page)), None)


def attaches(state: State, page: Page) -> bool:
    """R14.6: whether the offload of a copy attaches its request to a backing on the host, without a transfer."""
    at = backing(state, page) if page.copy_of is not None else None
    return at is not None and at.level is Level.HOST


def redirect(state: State, page: Page) -> State:
    """R14.2: requests without a copy of the page refer to its backing, or else to the oldest copy. ``page``: may be gone."""
    at = source(state, page)
    if at is None:
        return state
    known = {page.id, *(p.id for p in locations(state, page))}
    for r in state.requests.values():
        now = r.pages.get(page.key)
        if now in known and now != at.id and (now not in state.pages or state.pages[now].copy_of != r.name):
            state = put_request(state, replace(r, pages=r.pages.set(page.key, at.id)))
    return state
