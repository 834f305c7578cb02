"""Policy `versions`: more versions than the rules ask for are harmless where that is declared, fewer never are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from kvref.system import Reference
from kvspec.harness.difference import Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.language.loader import read_bytes
from kvspec.observation import Observation, RequestView
from kvspec.ops import Operation, Publish
from kvspec.policies import USUAL, Offer, checked_offer
from kvspec.system import Outcome, Setup

TEXT = """
kvspec: 1
name: rows are published
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 6}, {kind: host, slots: 4}]
  layers: [{name: main, buffers: [{role: key, bytes: 16, sparse: true}]}]
steps:
  - create: {request: chat}
  - resume: chat
  - create: {request: other}
  - batch: {name: rows, rows: 2, blocks: 4}
  - add: {batch: rows, request: chat}
  - add: {batch: rows, request: other}
  - publish: rows
    returns: [0, 1]
  - resize: {request: chat, capacity: 12, history: 8}
    expect: {version: {chat: newer, other: same}, dirty_rows: {rows: [0]}, dirty: {other: false}}
  - publish: rows
    returns: [0]
  - enter_decode: chat
  - publish: rows
    returns: [0]
    expect: {num_blocks: {rows: [2, 0]}}
  - publish: rows
    returns: []
"""
(SCENARIO,) = read_bytes(Path("x.yaml"), TEXT.encode()).scenarios


class Eager(Reference):
    """A reference whose requests have new versions with every operation but a publication."""

    policies: ClassVar[Offer] = checked_offer({"versions": "at_least"})
    often = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.more = 0
        self.acked: dict[str, int] = {}

    def apply(self, op: Operation) -> Outcome:
        outcome = super().apply(op)
        if not isinstance(op, Publish):
            self.more += self.often
            return outcome
        seen = super().observe()
        rows = seen.batches[op.batch].rows
        assert isinstance(outcome.value, tuple)
        empty = [row for row in outcome.value if isinstance(row, int) and rows[row] is None]
        dirty = [row for row, name in enumerate(rows) if name is not None and self.acked.get(name) != self.version(seen, name)]
        self.acked.update({name: self.version(seen, name) for name in rows if name is not None})
        return Outcome(tuple(sorted([*empty, *dirty])))

    def version(self, seen: Observation, name: str) -> int:
        return seen.requests[name].version * 1000 + self.more

    def observe(self) -> Observation:
        seen = super().observe()
        requests = {name: self.view(seen, name, view) for name, view in seen.requests.items()}
        batches = {
            name: replace(
                batch,
                dirty_rows=tuple(
                    row
                    for row, member in enumerate(batch.rows)
                    if (row in batch.dirty_rows if member is None else requests[member].dirty)
                ),
            )
            for name, batch in seen.batches.items()
        }
        return replace(seen, requests=requests, batches=batches)

    def view(self, seen: Observation, name: str, view: RequestView) -> RequestView:
        version = self.version(seen, name)
        snapshots = {key: replace(one, version=version) for key, one in view.snapshots.items()}
        acked = self.acked.get(name)
        return replace(view, version=version, acknowledged=acked, dirty=acked != version, snapshots=snapshots)


class Undeclared(Eager):
    """It says nothing of it."""

    policies: ClassVar[Offer] = USUAL


class Late(Eager):
    """A manager whose version does not get newer when a request enters decode."""

    often = False
    late = 0

    def apply(self, op: Operation) -> Outcome:
        before = super(Eager, self).observe().requests
        outcome = super().apply(op)
        if op.verb == "enter_decode":
            self.late = super(Eager, self).observe().requests["chat"].version - before["chat"].version
        return outcome

    def version(self, seen: Observation, name: str) -> int:
        return super().version(seen, name) - (self.late * 1000 if name == "chat" else 0)


def played(system: type[Reference]) -> Result:
    return replay(SCENARIO, Named("mine", system), Named("kvref", Reference))


def test_what_is_newer_than_it_has_to_be_is_harmless_where_it_is_declared() -> None:
    result = played(Eager)
    assert result.failure is None or result.failure.differences == ()
    assert result.verdict is Verdict.PASSED


def test_it_is_a_difference_where_it_is_not_declared() -> None:
    result = played(Undeclared)
    assert result.verdict is Verdict.FAILED and result.failure is not None
    assert {difference.identity for difference in result.failure.differences} <= {"version", "dirty", "dirty rows", "dirty_rows"}


@pytest.mark.parametrize("offer", [USUAL, Eager.policies])
def test_what_is_not_newer_where_it_has_to_be_is_wrong_all_the_same(offer: Offer) -> None:
    class One(Late):
        """With a declaration or without."""

        policies: ClassVar[Offer] = offer

    result = played(One)
    assert result.failure is not None and result.failure.verb == "enter_decode"
    assert "version" in {difference.identity for difference in result.failure.differences}
