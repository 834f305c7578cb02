"""Tokens with keys as scenarios write them and observations show them (R2.7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system, setup_for
from kvspec.harness.timeline.wording import folded
from kvspec.language.loader import read_bytes
from kvspec.observation import Observation, PageView, Stored, TreeBlockView
from kvspec.ops import Span
from kvspec.scenario import Scenario
from kvspec.system import Outcome
from kvspec.tokens import Keyed, Token, keyed, numbers, written
from tests.adapter.growing import Growing
from tests.harness.scripted import Scripted

NUMBERS = st.lists(st.integers(0, 3), max_size=8)


@given(NUMBERS, st.sampled_from([None, "red"]), st.lists(st.sampled_from([None, None, "cat", "dog"]), min_size=8, max_size=8))
def test_what_is_written_is_read_again(tokens: list[int], request: str | None, own: list[str | None]) -> None:
    spans = [Span(start=place, end=place + 1, key=key) for place, key in enumerate(own[: len(tokens)]) if key is not None]
    text = keyed(tokens, request, spans=spans)
    assert numbers(text) == tuple(tokens)
    said = written(text)
    again = keyed(said["tokens"], said.get("key"), spans=[Span(**span) for span in said.get("spans", ())])
    assert again == text
    assert all(
        isinstance(token, Keyed) == (request is not None or key is not None) for token, key in zip(text, own, strict=False)
    )


def test_neighbours_with_one_key_are_one_span() -> None:
    text = (*keyed([1, 1], None, "cat"), *keyed([1], None, "cat"), *keyed([1]), *keyed([1], None, "dog"))
    assert written(text)["spans"] == [{"start": 0, "end": 3, "key": "cat"}, {"start": 4, "end": 5, "key": "dog"}]


def test_tokens_are_shown_with_their_keys_and_have_an_order() -> None:
    shown = [str(token) for token in keyed([7], "red") + keyed([7], None, "cat") + keyed([7], "red", "cat")]
    assert shown == ["7@red", "7@/cat", "7@red/cat"]
    mixed: list[tuple[Token, ...]] = [keyed([2], "red"), (1,), keyed([1], "red"), (2,), keyed([1], None, "cat")]
    assert sorted(mixed) == [(1,), (Keyed(1, None, "cat"),), (Keyed(1, "red"),), (2,), (Keyed(2, "red"),)]
    assert folded(keyed(range(40), "red")) == "[0@red..39@red]"


TEXT = """
kvspec: 1
name: keys
manager:
  tokens_per_block: 2
  levels: [{kind: gpu, slots: 4}]
  layers: [{name: main, buffers: [{role: key, bytes: 64}]}]
steps:
  - seed_prefix: {tokens: [1, 2], level: gpu, key: red}
  - create: {request: a, tokens: [1, 2], key: red}
    returns: 2
"""


@pytest.fixture
def scenario() -> Scenario:
    (found,) = read_bytes(Path("keys.yaml"), TEXT.encode()).scenarios
    return found


def shown(scenario: Scenario) -> list[tuple[Outcome, Observation]]:
    system = find_system("kvref")(setup_for(scenario, {}))
    steps = []
    for step in scenario.steps:
        outcome = system.apply(step.op)
        steps.append((outcome, system.observe()))
    return steps


def without_keys(what: str, seen: Observation) -> Observation:
    def plain(view: PageView) -> PageView:
        return view if view.tokens is None else replace(view, tokens=numbers(view.tokens))

    if what == "pages":
        return replace(seen, pages=tuple(plain(page) for page in seen.pages))
    if what == "tree":
        return replace(seen, tree=tuple(TreeBlockView(numbers(block.tokens)) for block in seen.tree))
    return replace(seen, events=tuple(Stored(numbers(event.tokens)) for event in seen.events))


@pytest.mark.parametrize("what", ["pages", "tree", "events"])
def test_a_system_that_shows_no_keys_differs(scenario: Scenario, what: str) -> None:
    script = shown(scenario)
    lying = [(outcome, without_keys(what, seen)) for outcome, seen in script]
    result = replay(scenario, Named("tested", Scripted(lying)), Named("kvref", Scripted(script)))
    assert result.failure is not None and result.failure.step == 0
    assert any("red" in str(difference) for difference in result.failure.differences)
    same = replay(scenario, Named("tested", Scripted(script)), Named("kvref", Scripted(script)))
    assert same.failure is None


def test_a_system_without_keys_is_asked_for_none(scenario: Scenario) -> None:
    class Bare:
        capabilities = frozenset({"create", "seed_prefix"})

    result = replay(scenario, Named("bare", Bare), Named("kvref", find_system("kvref")))  # type: ignore[arg-type]
    assert result.reason.endswith("capability keys")
    result = replay(scenario, Named("growing", Growing), Named("kvref", find_system("kvref")))
    assert "key of create" in result.lacks
