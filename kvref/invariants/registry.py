"""Invariants by name, and the words that they are said with: from what a state has, not by calling what they are to check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kvref.state import Key, Page, Request, State
from kvspec.config import Level
from kvspec.observation import RequestStatus

Owned: TypeAlias = dict[int, list[Request]]
"""By page number, the active requests that have it locked."""
Check: TypeAlias = Callable[..., Iterator[str]]
"""What finds where an invariant does not hold, a text each."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """An invariant: its name and rules, what it says, and its check."""

    name: str
    rules: str
    text: str
    check: Check


def invariant(known: list[Invariant], name: str, rules: str) -> Callable[[Check], Check]:
    """Add a check to those that are known; what it says is its docstring."""

    def add(check: Check) -> Check:
        known.append(Invariant(name, rules, " ".join((check.__doc__ or "").split()), check))
        return check

    return add


def live(state: State) -> list[Request]:
    """The requests that are not closed."""
    return [r for r in state.requests.values() if r.status is not RequestStatus.CLOSED]


def shown(state: State, r: Request) -> dict[Key, Page]:
    """The pages that an active request has locked, by block: those of blocks that are not stale (R3.2, R3.7)."""
    if r.status is not RequestStatus.ACTIVE:
        return {}
    return {key: state.pages[pid] for key, pid in r.pages.items() if not state.layout.stale(key[0], key[1], r.history)}


def owned(state: State) -> Owned:
    """R2.3, R14.2: who has which page locked; a copy only its request, and a matched snapshot of a state nobody."""
    found: Owned = {}
    for r in live(state):
        for key, page in shown(state, r).items():
            if page.key == key and page.copy_of in (None, r.name):
                found.setdefault(page.id, []).append(r)
    return found


def history(state: State, r: Request, key: Key) -> bool:
    """Whether a block is complete history of a sparse group (R4.1)."""
    return state.layout.groups[key[0]].sparse and (key[1] + 1) * state.layout.tpb <= r.history


def name_of(state: State, page: Page) -> str:
    """A page, for the reader."""
    return f"page {page.id} ({state.layout.groups[page.group].name}.{page.block})"


def pool_of(state: State, page: Page) -> tuple[Level, int]:
    """The pool group that a page lies in."""
    return page.level, state.layout.groups[page.group].pools[page.level]
