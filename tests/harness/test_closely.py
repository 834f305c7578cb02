"""Looking closely at what has changed leaves nothing out: a lie where nothing has changed is found, however it is told."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kvspec.harness import closely as looking
from kvspec.harness import compare, naming
from kvspec.harness.closely import Closely
from kvspec.harness.naming import LONG, _by_identity, prefix_of
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system, setup_for
from kvspec.language import load_file
from kvspec.observation import Observation, PageRef, PageStatus, PageView
from kvspec.scenario import Scenario
from kvspec.system import Outcome
from tests.harness.scripted import Scripted
from tests.harness.tamper import tamperings

EXAMPLE = Path(__file__).parent.parent / "corpora" / "valid_pass" / "everything.yaml"
Script = list[tuple[Outcome, Observation]]


@pytest.fixture(autouse=True)
def also_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example has few pages, which are all looked at otherwise."""
    monkeypatch.setattr(naming, "FEW", 0)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    (found,) = load_file(EXAMPLE)
    return found


@pytest.fixture(scope="module")
def script(scenario: Scenario) -> Script:
    system = find_system("kvref.system:Reference")(setup_for(scenario, {}))
    return [(system.apply(one.op), system.observe()) for one in scenario.steps]


def _failed_at(scenario: Scenario, script: Script, tested: Script) -> tuple[int, tuple[Any, ...]] | None:
    result = replay(scenario, Named("tested", Scripted(tested)), Named("kvref", Scripted(script)))
    return None if result.failure is None else (result.failure.step, result.failure.differences)


def _unchanged(script: Script, at: int) -> Iterator[tuple[int, PageView]]:
    """The pages that a step has not changed, each with its place in the observation."""
    before = {(page.group, page.level, page.slot): page for page in script[at - 1][1].pages}
    for number, page in enumerate(script[at][1].pages):
        if before.get((page.group, page.level, page.slot)) == page:
            yield number, page


def _lies(script: Script, every: int) -> Iterator[tuple[int, str, Script]]:
    """Scripts with one lie each, about a page that the step has not changed: the step, what is said, and the script."""
    for at in range(1, len(script)):
        outcome, seen = script[at]
        for number, page in _unchanged(script, at):
            for where, lie in islice(tamperings(page), at % every, None, every):
                pages = (*seen.pages[:number], lie, *seen.pages[number + 1 :])
                yield at, "/".join(where), [*script[:at], (outcome, replace(seen, pages=pages)), *script[at + 1 :]]


def test_a_lie_about_a_page_that_has_not_changed_is_found_at_its_step(scenario: Scenario, script: Script) -> None:
    tried, survivors = 0, []
    for at, where, tested in _lies(script, 23):
        tried += 1
        failed = _failed_at(scenario, script, tested)
        if failed is None or failed[0] != at:
            survivors.append((at, where))
    assert tried > 100
    assert survivors == []


def test_looking_closely_finds_what_looking_at_everything_finds(
    scenario: Scenario, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = [tested for _, _, tested in _lies(script, 61)]
    for at in range(len(script)):
        for _, lie in islice(tamperings(script[at][1]), at % 89, None, 89):
            tests.append([*script[:at], (script[at][0], lie), *script[at + 1 :]])
    close = [_failed_at(scenario, script, tested) for tested in tests]
    looked: list[Closely | None] = []

    def everything(*_: object) -> None:
        looked.append(None)

    monkeypatch.setattr(compare, "closely", everything)
    assert [_failed_at(scenario, script, tested) for tested in tests] == close
    assert looked and len(tests) > 100


def test_most_pages_are_not_looked_at_closely_once_they_stay(
    scenario: Scenario, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[int, int]] = []
    found = looking.closely

    def noted(*args: Any) -> Closely | None:
        seen = found(*args)
        looked.append((len(args[1].pairs), len(args[1].pairs) if seen is None else len(seen.pages)))
        return seen

    monkeypatch.setattr(compare, "closely", noted)
    assert _failed_at(scenario, script, copy.deepcopy(script)) is None
    assert sum(close for _, close in looked) < sum(pairs for pairs, _ in looked) // 2


@dataclass
class Changing(Scripted):
    """From a step on, something that it has shown before is another."""

    since: int = 0
    change: Callable[[], object] = lambda: None

    def observe(self) -> Observation:
        if self.at == self.since:
            self.change()
        return super().observe()


def _shown_twice(script: Script, at: int, number: int, page: PageView, one: PageView) -> Script:
    """A script in which one object stands for a page at a step and at the one before."""
    before = next(n for n, old in enumerate(script[at - 1][1].pages) if old == page)
    tested = list(script)
    for step, place in ((at - 1, before), (at, number)):
        outcome, seen = script[step]
        tested[step] = outcome, replace(seen, pages=(*seen.pages[:place], one, *seen.pages[place + 1 :]))
    return tested


def _found(
    scenario: Scenario, script: Script, tested: Script, at: int, change: Callable[[], object]
) -> tuple[int, set[str]] | None:
    """Where a change of something that was shown before is found, and as what."""
    result = replay(scenario, Named("tested", Changing(tested, since=at, change=change)), Named("kvref", Scripted(script)))
    if result.failure is None:
        return None
    return result.failure.step, {difference.identity for difference in result.failure.differences}


def test_a_mapping_that_is_changed_in_place_is_found(scenario: Scenario, script: Script) -> None:
    tried = 0
    for at in range(1, len(script)):
        for number, page in [(number, page) for number, page in _unchanged(script, at) if page.ready.after][:1]:
            tried += 1
            mapping = dict(page.ready.after or {})
            one = replace(page, ready=replace(page.ready, after=mapping))
            tested = _shown_twice(script, at, number, page, one)
            assert _found(scenario, script, tested, at, mapping.clear) == (at, {"ready"})
    assert tried > 3


@pytest.mark.parametrize(("field", "identity"), [("owners", "owners"), ("refs", "references")])
def test_a_set_that_is_changed_in_place_is_found(scenario: Scenario, script: Script, field: str, identity: str) -> None:
    """A page of which something can change by itself is never taken for what it was."""
    tried = 0
    for at in range(1, len(script)):
        owned = [(number, page) for number, page in _unchanged(script, at) if len(page.refs) == len(page.owners) == 1]
        for number, page in owned[:1]:
            tried += 1
            values = set(getattr(page, field))
            tested = _shown_twice(script, at, number, page, replace(page, **{field: values}))  # type: ignore[arg-type]
            more = "another" if field == "owners" else replace(next(iter(page.refs)), block=77)
            found = _found(scenario, script, tested, at, lambda values=values, more=more: values.add(more))  # type: ignore[misc]
            assert found is not None and found[0] == at and identity in found[1]
    assert tried > 3


LIES: list[tuple[str, Any]] = [
    ("block", 77),
    ("beam", 1),
    ("status", PageStatus.HELD),
    ("owners", frozenset({"another"})),
    ("refs", frozenset({PageRef("another", "main", 0)})),
]


@pytest.mark.parametrize(("field", "lie"), LIES)
def test_a_page_that_is_changed_by_force_is_found_by_the_digest(
    scenario: Scenario, script: Script, field: str, lie: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is taken to be as before, and is not: the digest tells, and nothing else."""
    for digest in (True, False):
        if not digest:
            monkeypatch.setattr(naming.Index, "_digest", lambda index: 0)
        tried, found = 0, 0
        for at in range(1, len(script)):
            for number, page in [(number, page) for number, page in _unchanged(script, at) if getattr(page, field) != lie][:1]:
                tried += 1
                one = replace(page)
                tested = _shown_twice(script, at, number, page, one)
                tested[at + 1 :] = [(outcome, copy.deepcopy(seen)) for outcome, seen in tested[at + 1 :]]
                failed = _found(scenario, script, tested, at, lambda one=one: object.__setattr__(one, field, lie))  # type: ignore[misc]
                found += failed is not None and failed[0] == at
        assert tried > 3 and (found == tried) if digest else found < tried


def test_equal_long_prefixes_are_one_object_and_go_when_nobody_has_them() -> None:
    one = tuple(range(2 * LONG))
    two = one[:1] + one[1:]
    assert one is not two
    first = prefix_of(one)
    assert prefix_of(two) is first and prefix_of(one[:-1]) is not first
    assert pickle.loads(pickle.dumps(first)) is first and repr(first) == repr(one)
    assert prefix_of(one[: LONG - 1]) == one[: LONG - 1]
    known = {id(one), id(two)}
    assert known <= _by_identity.keys()
    for number in range(20):
        assert prefix_of(one[:1] + one[1:]) is first, number
    assert len([True for reference in _by_identity.values() if reference() is first]) <= 4
    del first
    gc.collect()
    assert not known & _by_identity.keys()
