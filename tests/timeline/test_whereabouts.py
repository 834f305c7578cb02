"""Why a page is where it is: who, by which rule, what would move it; and what there is to say of every page of the suite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvspec.harness.naming import Index
from kvspec.harness.systems import find_system
from kvspec.harness.timeline.record import Recorder, Seen, walk
from kvspec.harness.timeline.whereabouts import _order, story, whereabouts
from kvspec.language import load_file
from kvspec.language.loader import read_bytes
from kvspec.observation import PageRef
from kvspec.rules import rule_ids
from kvspec.scenario import Scenario, Step
from tests.timeline.scenes import GAP, LEVELS, ROOT

SSM = """\
kvspec: 1
name: a state
rules: [R1.3]
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 8}, {kind: host, slots: 2}]
  layers:
    - {name: main, buffers: [{role: key, bytes: 64, sparse: true}]}
    - {name: state, kind: ssm, buffers: [{role: s, bytes: 64}]}
steps:
  - create: {request: a}
  - resume: a
  - resize: {request: a, capacity: 12, history: 12}
  - offload: {request: a, blocks: [0]}
  - enter_decode: a
    returns: false
  - suspend: a
  - close: a
"""


def walked(scenario: Scenario, until: int) -> tuple[list[tuple[Step, Index]], Recorder]:
    steps: list[tuple[Step, Index]] = []

    def take(seen: Seen) -> None:
        steps.append((seen.step, seen.now))

    recorder = Recorder(scenario.manager, take)
    assert walk(replace(scenario, steps=scenario.steps[: until + 1]), "kvref", find_system("kvref"), {}, recorder) == ""
    return steps, recorder


def said(scenario: Scenario, step: int, request: str, group: str, block: int) -> dict[str, list[str]]:
    """By title, what is said of a page after a step, each with its rules."""
    steps, recorder = walked(scenario, step)
    assert recorder.memory is not None
    found: dict[str, list[str]] = {}
    for one in whereabouts(scenario.manager, steps[-1][1], recorder.memory, PageRef(request, group, block), recorder.turns):
        found.setdefault(one.title, []).append(f"{one.text} {', '.join(one.rules)}")
    return found


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path = tmp_path_factory.mktemp("levels") / "levels.yaml"
    path.write_text(LEVELS)
    return load_file(path)[0]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path = tmp_path_factory.mktemp("state") / "state.yaml"
    path.write_text(SSM)
    return load_file(path)[0]


def test_a_deferred_page_names_the_owner_the_rule_and_what_would_move_it() -> None:
    gap = load_file(GAP)[0]
    found = said(gap, 8, "decoder", "main", 0)
    assert found["where"] == ["gpu, slot 0 R2.4"]
    assert found["locked by"] == ["decoder (decode, history 8), prefill (prefill, history 4) R2.3"]
    assert found["why"] == ["deferred by prefill, in prefill R4.2"]
    assert found["would move it"][:2] == [
        "enter_decode of prefill, which takes it along R3.8, R4.3",
        "suspend or close of prefill, and then the next retry: enter_decode, resize or resume of decoder, publish of rows R4.3",
    ]
    assert said(gap, 10, "decoder", "main", 0)["why"] == ["deferred, and nobody objects: the next retry may take it R4.3"]
    after = said(gap, 11, "decoder", "main", 0)
    assert after["where"] == ["host, slot 1 R2.4"]
    assert after["why"] == ["it is complete history of decoder, decoding: offloaded, and read from there R4.6, R3.2"]
    assert after["in the table"] == ["row 0 of rows, published in step 11: slot 1, counted as eligible; up to date R8.4, R8.5"]
    told = list(story(walked(gap, 11)[0], PageRef("decoder", "main", 0)))
    assert [(step.number, text) for step, text in told] == [
        (0, "new at gpu"),
        (3, "locked by decoder"),
        (4, "locked by decoder and prefill"),
        (10, "locked by decoder"),
        (11, "gpu -> host"),
    ]


def test_pages_that_are_not_moved_yet_say_from_when_on() -> None:
    gap = load_file(GAP)[0]
    assert "that of decoder is 8 R4.1" in said(gap, 8, "decoder", "main", 2)["why"][0]
    assert (
        said(gap, 8, "decoder", "main", 2)["would move it"][0]
        == "a resize or commit that takes the history to 12 tokens R3.6, R4.7"
    )
    prefill = said(gap, 5, "decoder", "main", 2)
    assert prefill["why"] == ["pages of a request in prefill stay on the GPU: decoder R3.2, R4.1"]
    assert "a history of 12 tokens: decoder has less" in prefill["would move it"][0]
    assert said(gap, 8, "decoder", "index", 0)["why"][0].startswith("a dense page is at level 0 while it is locked")


def test_held_droppable_and_pending_pages(levels: Scenario) -> None:
    held = said(levels, 16, "bob", "near", 0)
    assert held["held by"] == ["bob (suspended), carol (suspended) R2.2"]
    assert held["would move it"] == [
        "an eviction, in which it is 2 of 2 in gpu.near: to the host, where 2 slots are free;"
        " a held page is never dropped R10.1, R10.2",
        "resume of bob locks it where it is R3.2",
        "resume of carol locks it where it is R3.2",
    ]
    assert said(levels, 16, "alice", "main", 2)["pending"] == ["its payload is valid there once slow has opened R2.4"]
    gone = said(levels, 19, "alice", "near", 0)
    assert gone["no page"] == ["the block is stale at history 18, with a window of 8 tokens: it was let go R1.8, R3.7"]
    assert gone["the page it had"] == ["is in the tree still, bob.near.0 R3.7"]


ORDER = """\
kvspec: 1
name: who goes first
rules: [R10.2]
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 8}, {kind: host, slots: 1}]
  layers:
    - {name: main, buffers: [{role: key, bytes: 64, sparse: true}]}
    - {name: more, buffers: [{role: key, bytes: 64}]}
steps:
  - seed_prefix: {tokens: [0, 1, 2, 3, 4, 5, 6, 7], level: gpu, groups: [main]}
  - seed_prefix: {tokens: [9, 9, 9, 9], level: gpu, groups: [main], priority: 20}
  - create: {request: a, tokens: [], priority: 40}
  - resume: a
  - resize: {request: a, capacity: 4, history: 4}
  - seed_prefix: {tokens: [8, 8, 8, 8], level: gpu, groups: [main, more], priority: 20}
  - create: {request: cheap, tokens: [9, 9, 9, 9]}
"""


def test_the_order_of_eviction_says_priority_turn_and_who_goes_before() -> None:
    scenario = read_bytes(Path("order.yaml"), ORDER.encode()).scenarios[0]
    assert said(scenario, 4, "a", "main", 0)["its turn"] == [
        "priority 40; it gets its turn in the order when it leaves LOCKED R10.2"
    ]
    steps, recorder = walked(scenario, 5)
    now = steps[-1][1]
    assert recorder.memory is not None
    found = {}
    for place, page in enumerate(now.pages):
        if page.tokens is not None and page.group == "main":
            (found[page.tokens],) = _order(now, page, place, recorder.turns)
    assert {tokens: one.text for tokens, one in found.items()} == {
        (9,) * 4: "priority 20, waiting since step 1; no page goes before it",
        (8,) * 4: "priority 20, waiting since step 5; goes after main[9, 9, 9, 9], waiting since step 1",
        tuple(range(8)): "priority 35, waiting since step 0; goes after main[8, 8, 8, 8], of priority 20",
        tuple(range(4)): "priority 35, waiting since step 0; goes after main[0..7], of the same step, a higher block",
    }


def test_no_page_and_why(levels: Scenario, state: Scenario) -> None:
    assert said(levels, 2, "alice", "main", 9)["no page"] == ["alice has 2 blocks in main (capacity 8) R1.1"]
    assert said(state, 0, "a", "state", 0)["no page"] == ["the state of a begins at its first resume R1.3"]
    assert "a state is its block 0 alone" in said(state, 1, "a", "state", 3)["no page"][0]
    assert said(state, 6, "a", "main", 0)["no page"] == ["a is closed: it has released everything R3.10"]


def test_a_bare_offload_and_a_state(state: Scenario) -> None:
    assert said(state, 3, "a", "main", 0)["why"] == ["a bare offload took it, although a is in prefill R4.9"]
    assert said(state, 3, "a", "state", 0)["why"][0].startswith("a state is at level 0 while it is locked")
    suspended = said(state, 5, "a", "main", 0)
    assert "resume of a locks it to level 0 R3.2" not in suspended["would move it"]
    assert "resume of a brings it to level 0 R3.2" in suspended["would move it"]


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "scenarios").iterdir()))
def test_of_every_page_of_the_suite_there_is_a_reason(folder: str) -> None:
    """After each step, of every block that a request has: where, who keeps it, why, what would move it; and rules that exist."""
    count = 0
    for path in sorted(Path(ROOT / "scenarios" / folder).rglob("*.yaml")):
        scenario = load_file(path)[0]
        shown: list[Index] = []
        recorder = Recorder(scenario.manager, lambda seen, shown=shown: shown.append(seen.now))  # type: ignore[misc]
        assert walk(scenario, "kvref", find_system("kvref"), {}, recorder) == ""
        assert recorder.memory is not None
        for pool in shown[-1].observation.pools.values() if shown else ():
            turns = [recorder.turns[place] for place in pool.evictable]
            assert turns == sorted(turns, key=lambda one: (one.priority, one.since)), "R10.2"
        for number, now in enumerate(shown):
            for ref in now.by_ref:
                found = list(whereabouts(scenario.manager, now, recorder.memory, ref))
                titles = {one.title for one in found}
                assert {"where", "why", "would move it"} <= titles, f"{ref} after step {number}: {found}"
                assert {rule for one in found for rule in one.rules} <= set(rule_ids())
                count += 1
    assert count or folder == "config"
