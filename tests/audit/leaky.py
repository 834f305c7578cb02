"""The reference with mistakes in how it fails; each system agrees with itself, so that only the sweep can find them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvref.system import Reference
from kvspec import ops
from kvspec.errors import ErrorKind
from kvspec.observation import Observation
from kvspec.system import Outcome, Setup


def _failed(outcome: Outcome) -> bool:
    return outcome.value is False or outcome.error in (ErrorKind.COPY_FAILED, ErrorKind.OUT_OF_PAGES)


class LeakyGrowth(Reference):
    """A resize that fails keeps one slot."""

    def apply(self, op: ops.Operation) -> Outcome:
        outcome = super().apply(op)
        if isinstance(op, ops.Resize) and _failed(outcome):
            super().apply(ops.TakeSlots.model_validate({"level": "host", "count": 1, "as": "leaked"}))
        return outcome


class HalfDone(Reference):
    """A decode entry whose copy is refused leaves the request suspended."""

    def apply(self, op: ops.Operation) -> Outcome:
        outcome = super().apply(op)
        if isinstance(op, ops.EnterDecode) and outcome.error is ErrorKind.COPY_FAILED:
            super().apply(ops.Suspend(request=op.request))
        return outcome


class WrongKind(Reference):
    """A refused copy is reported as a full level."""

    def apply(self, op: ops.Operation) -> Outcome:
        outcome = super().apply(op)
        return Outcome.failed(ErrorKind.OUT_OF_PAGES, "full") if outcome.error is ErrorKind.COPY_FAILED else outcome


class Unrefusable(Reference):
    """No copy is ever refused."""

    def apply(self, op: ops.Operation) -> Outcome:
        return Outcome() if isinstance(op, ops.FailCopy) else super().apply(op)


class Grudge(Reference):
    """After any failure the next suspend does not happen: a leftover that only later steps show."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.hurt = False

    def apply(self, op: ops.Operation) -> Outcome:
        if isinstance(op, ops.Suspend) and self.hurt:
            return super().apply(ops.IsSparse(layer="main", role="key")) and Outcome()
        outcome = super().apply(op)
        self.hurt |= _failed(outcome)
        return outcome


class NeverAgain(Reference):
    """What failed once is refused for good."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.hurt: set[str] = set()

    def apply(self, op: ops.Operation) -> Outcome:
        if op.verb in self.hurt:
            return Outcome.failed(ErrorKind.LOGIC_ERROR, "it failed once")
        outcome = super().apply(op)
        if _failed(outcome):
            self.hurt.add(op.verb)
        return outcome


class Raises(Reference):
    """A refused copy comes out as an exception."""

    def apply(self, op: ops.Operation) -> Outcome:
        outcome = super().apply(op)
        if outcome.error is ErrorKind.COPY_FAILED:
            raise RuntimeError("copy refused")
        return outcome


class NewVersion(Reference):
    """A decode entry that is false makes the version newer all the same (R6.4)."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.more = 0

    def apply(self, op: ops.Operation) -> Outcome:
        outcome = super().apply(op)
        self.more += isinstance(op, ops.EnterDecode) and outcome.value is False
        return outcome

    def observe(self) -> Observation:
        seen: Any = super().observe()
        requests = {name: replace(view, version=view.version + 1000 * self.more) for name, view in seen.requests.items()}
        return replace(seen, requests=requests)


class _HurtByGrowth(Reference):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.hurt = False

    def apply(self, op: ops.Operation) -> Outcome:
        outcome = super().apply(op)
        self.hurt |= isinstance(op, ops.Resize) and _failed(outcome)
        return outcome


class ForgetsCached(_HurtByGrowth):
    """A resize that fails costs what is cached."""

    def observe(self) -> Observation:
        seen = super().observe()
        caches = {name: {layer: replace(view, cached=()) for layer, view in some.items()} for name, some in seen.caches.items()}
        return replace(seen, caches=caches) if self.hurt else seen


class KeepsReserved(_HurtByGrowth):
    """A resize that fails reserves a slot all the same."""

    def observe(self) -> Observation:
        seen = super().observe()
        more = {name: {group: frozenset((*some, 7)) for group, some in groups.items()} for name, groups in seen.reserved.items()}
        return replace(seen, reserved=more) if self.hurt else seen


class ForgetsFetches(_HurtByGrowth):
    """What a fetch put out changes when a resize fails."""

    def observe(self) -> Observation:
        seen = super().observe()
        fetches = {label: replace(view, found=(("hit", "hit"),)) for label, view in seen.fetches.items()}
        return replace(seen, fetches=fetches) if self.hurt else seen
