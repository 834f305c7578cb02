"""An adapter of a manager that fetches shows what it has reserved, cached and fetched, or says that it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvref.system import Reference
from kvspec import ops
from kvspec.adapter import AdapterError, Facts, Page, Request, Tables, adapter, observation
from kvspec.adapter import Batch as BatchFacts
from kvspec.errors import ErrorKind
from kvspec.harness.difference import Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.language import load_file
from kvspec.observation import Observation, RequestStatus
from kvspec.system import Setup

OTHERS = {"payloads", "order", "tree", "eviction", "counters", "events", "versions", "device", "staging"}
(STORY,) = load_file(Path(__file__).parents[1] / "audit" / "fetch_story.yaml")


class Fetching:
    """The reference in the words of an adapter: as much of it as the story needs."""

    def __init__(self, setup: Setup) -> None:
        self.system = Reference(setup)

    def create(self, request: str) -> Any:
        return self.system.apply(ops.Create(request=request)).value

    def resume(self, request: str, decode: bool | None) -> Any:
        return self.system.apply(ops.Resume(request=request, decode=decode)).value

    def resize(self, request: str, capacity: int | None, history: int | None) -> Any:
        return self.system.apply(ops.Resize(request=request, capacity=capacity, history=history)).value

    def batch(self, name: str, rows: int, blocks: int) -> None:
        self.system.apply(ops.MakeBatch(name=name, rows=rows, blocks=blocks))

    def add(self, batch: str, request: str) -> Any:
        return self.system.apply(ops.Add(batch=batch, request=request)).value

    def publish(self, batch: str) -> Any:
        return self.system.apply(ops.Publish(batch=batch)).value

    def fetch(self, batch: str, layer: str, select: Any, as_: str) -> None:
        self.system.apply(ops.Fetch.model_validate({"batch": batch, "layer": layer, "select": select, "as": as_}))

    def observe(self) -> Facts:
        seen = self.system.observe()
        return Facts(
            {name: _request(seen, name) for name in seen.requests},
            {f"{level.label}.{group}": pool.free for (level, group), pool in seen.pools.items()},
            {
                name: BatchFacts(
                    view.rows,
                    view.blocks,
                    view.dirty_rows,
                    {g: Tables(t.page_table, t.num_blocks) for g, t in view.published.items()},
                )
                for name, view in seen.batches.items()
            },
            **self._fetched(seen),
        )

    def _fetched(self, seen: Observation) -> dict[str, Any]:
        return {"reserved": seen.reserved, "caches": seen.caches, "fetches": seen.fetches}


def _request(seen: Observation, name: str) -> Request:
    view = seen.requests[name]
    snapshot = view.snapshots["main", 0]
    active = view.status is RequestStatus.ACTIVE
    blocks = [
        None if level is None else Page(level.label, slot) for level, slot in zip(snapshot.levels, snapshot.indices, strict=True)
    ]
    return Request(
        view.status,
        view.phase,
        view.capacity,
        view.history,
        blocks if active else [],
        snapshot.eligible,
        row=view.row,
        batch=view.batch,
    )


class Silent(Fetching):
    """It keeps to itself what it has reserved and fetched."""

    def _fetched(self, seen: Observation) -> dict[str, Any]:
        return {}


class Wrong(Fetching):
    """It tells a hit as a miss, forgets the order of what is cached, and reserves too much."""

    def _fetched(self, seen: Observation) -> dict[str, Any]:
        found = tuple(("miss", "miss") for _ in range(1))
        fetches = {label: replace(view, found=found) for label, view in seen.fetches.items()}
        caches = {
            name: {layer: replace(view, cached=(view.cached or ())[::-1]) for layer, view in layers.items()}
            for name, layers in seen.caches.items()
        }
        return {
            "reserved": {name: {"main": {*some["main"], 7}} for name, some in seen.reserved.items()},
            "caches": caches,
            "fetches": fetches,
        }


def played(system: type[Fetching], unobserved: set[str]) -> Result:
    made = adapter(errors={KeyError: ErrorKind.OUT_OF_RANGE}, unobserved=OTHERS | unobserved)(system)
    return replay(STORY, Named("mine", made), Named("kvref", Reference))


def test_what_an_adapter_shows_of_fetches_is_compared() -> None:
    assert played(Fetching, set()).verdict is Verdict.PASSED
    failure = played(Wrong, set()).failure
    assert failure is not None and "reserved" in {one.identity for one in failure.differences}
    failure = played(Wrong, {"reserved"}).failure
    assert failure is not None and {one.identity for one in failure.differences} == {"fetched", "fetch"}
    failure = played(Wrong, {"reserved", "fetches"}).failure
    assert failure is not None and {one.identity for one in failure.differences} == {"cache"}
    assert played(Wrong, {"reserved", "fetches", "caches"}).verdict is Verdict.PASSED


def test_what_is_not_shown_has_to_be_declared() -> None:
    failure = played(Silent, set()).failure
    assert failure is not None
    assert "reserved: missing; give it, or declare 'reserved' unobserved" in str(failure.differences[0])
    assert played(Silent, {"reserved", "caches", "fetches"}).verdict is Verdict.PASSED


def test_a_manager_that_fetches_nothing_says_nothing_of_it() -> None:
    manager = STORY.manager.model_copy(
        update={
            "layers": tuple(
                layer.model_copy(
                    update={
                        "buffers": tuple(
                            buffer.model_copy(update={"selected": None, "reserve": None}) for buffer in layer.buffers
                        )
                    }
                )
                for layer in STORY.manager.layers
            )
        }
    )
    seen = observation(Setup(manager), Facts({}, {"gpu": 8, "host": 6}), frozenset(OTHERS))
    assert (seen.reserved, seen.caches, seen.fetches) == ({}, {}, {})


def test_slots_are_reserved_of_a_group_that_there_is() -> None:
    facts = Facts({}, {"gpu": 8, "host": 6}, reserved={"a": {"mian": [1]}}, caches={}, fetches={})
    with pytest.raises(AdapterError, match=r"there is no layer group .mian.\. Did you mean .main."):
        observation(Setup(STORY.manager), facts, frozenset(OTHERS))
    plain = replace(facts, reserved={"a": [1, 2], "b": []})
    assert observation(Setup(STORY.manager), plain, frozenset(OTHERS)).reserved == {"a": {"main": frozenset({1, 2})}}
