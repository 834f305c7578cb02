"""The reference as something that can be explored (`kvspec.exploring`): its states are values, and its operations functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from kvref.canonical import digest
from kvref.invariants import broken_by, broken_in
from kvref.invariants.registry import history, owned, shown
from kvref.state import Page, Request, State
from kvref.step import initial, step
from kvspec.config import Level
from kvspec.exploring import Broken, Facts, RequestFacts
from kvspec.observation import Phase, RequestStatus, Stored
from kvspec.ops import Direction, Operation
from kvspec.system import Outcome, Setup

_LASTING = tuple(field.name for field in fields(State) if field.name not in ("step", "trace", "serial"))


class Explored:
    """What `kvspec explore` asks of the reference model."""

    def initial(self, setup: Setup) -> State:
        """The state of a new manager."""
        return initial(setup)

    def step(self, state: State, op: Operation) -> tuple[State, Outcome]:
        """The next state, and the outcome."""
        return step(state, op)

    def key(self, state: State) -> bytes:
        """A digest of the canonical form."""
        return digest(state)

    def same(self, before: State, after: State) -> bool:
        """Whether every part of a state is the very part of the other, but for what says which operation was the last."""
        return all(getattr(before, name) is getattr(after, name) for name in _LASTING)

    def facts(self, state: State) -> Facts:
        """What the next operations are chosen by."""
        members = {name for b in state.batches.values() if b.open for name in b.rows if name is not None}
        requests = {r.name: _facts(r, r.name in members) for r in state.requests.values()}
        return Facts(requests, frozenset(state.gates), frozenset(state.taken))

    def submitted(self, before: State, op: Operation, after: State) -> Mapping[Direction, int]:
        """How many copies and uploads an operation has submitted."""
        if before.calls is after.calls and before.batches is after.batches:
            return {}
        copies = {kind: after.calls.get(kind.value, 0) - before.calls.get(kind.value, 0) for kind in Direction}
        copies[Direction.UPLOAD] = sum(
            b.uploads[-1:] != before.batches[uid].uploads[-1:] for uid, b in after.batches.items() if uid in before.batches
        )
        return {kind: count for kind, count in copies.items() if count}

    def kind(self, before: State, op: Operation, outcome: Outcome, after: State) -> tuple[str, str]:
        """What kind of state a transition begins in, and what happens in it."""
        return ", ".join(_situation(before, op)), ", ".join(_events(before, after))

    def broken_by(self, before: State, op: Operation, outcome: Outcome, after: State) -> list[Broken]:
        """The invariants of operations that do not hold of one."""
        return broken_by(before, op, outcome, after)

    def broken_in(self, state: State) -> list[Broken]:
        """The invariants of states that do not hold of one."""
        return broken_in(state)


def _facts(r: Request, member: bool) -> RequestFacts:
    if r.status is RequestStatus.CLOSED:  # what it still answers decides nothing
        return RequestFacts(r.status, Phase.PREFILL, 0, 0, 0, False)
    return RequestFacts(r.status, r.phase, r.capacity, r.history, r.committed, member)


def _situation(state: State, op: Operation) -> Iterator[str]:
    """The kind of state that an operation begins in, in words: its request, whether that shares or waits, and a full level."""
    name = getattr(op, "request", None)
    r = state.requests.get(name or "")
    if name is not None:
        yield from _of_request(state, r)
    elif any(_deferred(state, one) for one in state.requests.values()):
        yield "pages are deferred"
    if not all(state.free.values()):
        yield "a level is full"


def _of_request(state: State, r: Request | None) -> Iterator[str]:
    if r is None or r.status is RequestStatus.CLOSED:
        yield "unknown" if r is None else "closed"
        return
    yield f"{r.status.value} in {r.phase.value}" if r.resumed else "never resumed"
    if any(one is not r and set(one.pages.values()) & set(r.pages.values()) for one in state.requests.values()):
        yield "sharing"
    if _deferred(state, r):
        yield "its pages are deferred"


def _deferred(state: State, r: Request) -> bool:
    return r.decoding and any(p.level is Level.GPU and history(state, r, key) for key, p in shown(state, r).items())


def _events(before: State, after: State) -> Iterator[str]:
    """What has happened to pages and blocks, in words."""
    if before.pages is after.pages:
        return
    had, has = owned(before), owned(after)
    found: set[str] = set()
    for pid, page in before.pages.items():
        now = after.pages.get(pid)
        if now is not None and now.level is not page.level:
            found.add(_move(page, now, pid in had or pid in has))
    names = {name: (one, after.counters.groups[name]) for name, one in before.counters.groups.items()}
    for field, word in (("copy_pages", "copies"), ("drop_pages", "drops"), ("attach_pages", "attaches")):
        if any(getattr(was, field) != getattr(now, field) for was, now in names.values()):
            found.add(word)
    if any(isinstance(event, Stored) for event in after.trace.events):
        found.add("stores")
    yield from sorted(found)


def _move(page: Page, now: Page, locked: bool) -> str:
    if now.level < page.level:
        return "brings up" if now.level is Level.GPU else "brings to the host"
    return "offloads" if locked else f"evicts to the {now.level.label}"
