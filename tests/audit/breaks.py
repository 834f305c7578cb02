"""Ways to break the reference, and the invariant that each of them breaks: a guard that is gone, a step that is forgotten."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kvref.values import replace
from kvspec.observation import Phase

Breaking = Callable[[Any], Any]
"""What takes the place of a function, given that."""


@dataclass(frozen=True)
class Break:
    """A function of the reference, what takes its place, and which invariant does not hold any more.

    ``model``, ``ownership``: of the small model that comes to it; ``depth``: how deep at most.
    """

    invariant: str
    function: str
    breaking: Breaking
    model: str = "standard"
    ownership: str = "shared"
    depth: int = 4

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Break the reference for a test."""
        module, _, name = self.function.rpartition(".")
        home = importlib.import_module(module)
        monkeypatch.setattr(home, name, self.breaking(getattr(home, name)))


def always(value: Any) -> Breaking:
    """A function that always returns this."""
    return lambda _: lambda *args, **kwargs: value


def forgotten(_: Any) -> Any:
    """A change of the state that does not happen."""
    return lambda state, *args, **kwargs: state


def without_last(function: Any) -> Any:
    """All but the last of what a function returns."""
    return lambda *args: function(*args)[:-1]


def nobody(function: Any) -> Any:
    """What a row shows, as if it had no member."""
    return lambda state, r, blocks: function(state, None, blocks)


def into_prefill(function: Any) -> Any:
    """A suspend that forgets the phase."""

    def suspended(state: Any, r: Any) -> Any:
        state = function(state, r)
        back = replace(state.requests[r.name], phase=Phase.PREFILL)
        return replace(state, requests=state.requests.set(r.name, back))

    return suspended


BREAKS = (
    Break("slots are conserved", "kvref.pages.free_slot", forgotten),
    Break("a page is in one place", "kvref.commit.rebases", always(False)),
    Break("a copy is of one request", "kvref.requests.adopt", forgotten, ownership="private"),
    Break("a page is kept", "kvref.pages.free_unkept", forgotten),
    Break("an owner is active", "kvref.state.stale", always(False)),
    Break("lengths are in order", "kvref.commit.keyed", lambda f: lambda tokens, *keys: f(tokens, *keys) * 2),
    Break("a request has its blocks", "kvref.growth.keys_of", always([])),
    Break("history is on the host, all else on the GPU", "kvref.requests.bring", forgotten),
    Break("counts are prefixes", "kvref.invariants.states.eligible_count", lambda f: lambda *args: f(*args) + 1),
    Break("counts in tables are prefixes", "kvref.state.eligible_count", lambda f: lambda *args: f(*args) + 1),
    Break("a dirty row explains every difference", "kvref.publication.entries_of", nobody),
    Break("a member has one row", "kvref.requests.batch_of", always(None)),
    Break("the tree is one", "kvref.tree.alone", always(True)),
    Break("what is reserved hangs on the history", "kvref.requests.give_back", forgotten, model="fetch"),
    Break("a failed operation changed nothing", "kvref.all_or_nothing.undo", lambda _: lambda base, reached: reached),
    Break("nothing leaves while it is locked", "kvref.offload.movable", always(True)),
    Break("what is deferred has a reason", "kvref.offload.eligible", always([])),
    Break("a version tells of what is shown", "kvref.step.settle", forgotten),
    Break("a publication leaves no row dirty", "kvref.publication.dirty_rows", without_last),
    Break("what is committed stays", "kvref.requests.suspended", into_prefill),
)
