"""Where a use brings pages: to the level where they are locked, or as copies of the request's own (R3.2-R3.4, R3.11, 5, 14)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from kvref.copies import Moves, copy_out, copy_private, count_copy, direction, move, tell_level
from kvref.layout import PoolGroup
from kvref.locations import backing, redirect
from kvref.order import NOTHING
from kvref.pages import now
from kvref.state import Key, Page, Request, State, fresh, put_page
from kvref.values import replace
from kvspec.config import Level


@dataclass(frozen=True)
class Needs:
    """What a use brings. ``moves``: pages, and where they go. ``copies``: pages to copy to the GPU, and for which blocks.

    ``fills``: of these the blocks that get a copy of a committed page (R14.4). ``backings``: copies of others of which a backing
    is made (R14.5). ``pinned``: what must stay where it is meanwhile.
    """

    moves: Moves
    copies: list[tuple[Page, Key]]
    fills: frozenset[Key]
    backings: list[tuple[Page, Key]]
    pinned: list[Page]

    def pools(self, state: State) -> list[PoolGroup]:
        """The pool groups of the slots that it takes."""
        pools = [state.layout.pool_group(to, p.group) for p, to in self.moves]
        pools += [state.layout.pool_group(Level.GPU, key[0]) for _, key in self.copies]
        return pools + [state.layout.pool_group(Level.HOST, key[0]) for _, key in self.backings]


def cold(state: State, r: Request, page: Page, decoding: bool) -> bool:
    """R3.2: whether a page is sparse complete history of a request in decode, which does not need it on the GPU."""
    return decoding and state.layout.groups[page.group].sparse and state.layout.complete(page.block, r.history)


def needs_of(
    state: State,
    r: Request,
    pages: Mapping[Key, Page],
    decoding: bool,
    level: Level | None = None,
    matched: Container[Key] = (),
) -> Needs:
    """What has to come before a request locks pages (R3.2); ``level``: what is prefetched for it to that level (R3.11, R14.9).

    ``matched``: the blocks whose pages its first resume copies (R3.4, R1.3).
    """
    moves: Moves = []
    copies = [(p, k) for k, p in pages.items() if k in matched]
    fills: list[tuple[Page, Key]] = []
    backings: list[tuple[Page, Key]] = []
    for key, p in pages.items():
        if key in matched or p.copy_of == r.name:
            continue
        history = cold(state, r, p, decoding)
        to = max(level or Level.GPU, Level.HOST if history else Level.GPU)  # R3.2, R3.11
        if p.identity is not None and to is Level.GPU:
            fills.append((p, key))  # R14.4
        elif p.copy_of is not None:
            backings += [(p, key)] if level is None else []  # R14.5: a prefetch makes none
        elif p.level > to:
            moves.append((p, to))
    pinned = [at for p in pages.values() for at in (p, backing(state, p)) if at is not None]
    return Needs(moves, [*copies, *fills], frozenset(k for _, k in fills), backings, pinned)


def adopt(state: State, r: Request, pages: Mapping[Key, Page]) -> State:
    """R14.4, R14.5: a backing on the GPU becomes the copy of the request that needs its page; nothing is copied."""
    for page in pages.values():
        if page.backing and page.level is Level.GPU:
            state = put_page(state, replace(state.pages[page.id], copy_of=r.name))
    return state


def bring(state: State, r: Request, needs: Needs) -> State:
    """R3.3, R5.1, R5.2, R14.4, R14.5: bring pages up and copy others, in the order of R7.2. Raises `Refused`.

    R5.3, R5.4: for decoding owners a page that came up is eligible at level 0, so deferred; their counts stop before it.
    """
    state = move(state, needs.moves) if needs.moves else state
    state = copy_private(state, r, needs.copies, needs.fills)
    return make_backings(state, needs.backings)


def make_backings(state: State, sources: Iterable[tuple[Page, Key]]) -> State:
    """R14.5: a backing on the host out of the copy of another request, which keeps it. Raises `Refused`."""
    state, made = copy_out(state, list(sources), Level.HOST)
    for page, key, slot, work in made:
        state, pid = fresh(state)
        back = replace(page, id=pid, level=Level.HOST, slot=slot, ready=work, move=pid, since=now(state), copy_of=None)
        state = put_page(state, replace(back, reads=NOTHING, fence=NOTHING))
        state = redirect(count_copy(state, key[0], direction(Level.GPU, Level.HOST)), back)
        state = tell_level(state, page, Level.HOST)  # R14.13: from the GPU, as it was made from a copy
    return state
