"""Values of the reference: mappings that hand their entries on stay what they were, and nothing known is copied along."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvref.maps import LARGE, Map
from kvref.values import memoised, replace

Step = tuple[str, int, int, int]
WHAT = ["set", "without", "look", "go through"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "without", "look", "go through"]), st.integers(0, 9), st.integers(0, 3 * LARGE), st.integers()
    ),
    max_size=40,
)


@given(STEPS)
def test_every_version_of_a_mapping_stays_what_it_was(steps: list[Step]) -> None:
    made = [(Map({n: n for n in range(2 * LARGE)}), {n: n for n in range(2 * LARGE)})]
    for what, which, key, value in steps:
        mapping, plain = made[-1 - which % len(made)]
        if what == "set":
            made.append((mapping.set(key, value), {**plain, key: value}))
        elif what == "without":
            made.append((mapping.without(key), {k: v for k, v in plain.items() if k != key}))
        elif what == "look":
            assert mapping.get(key) == plain.get(key)
            assert (key in mapping) == (key in plain)
        else:
            assert list(mapping.items()) == list(plain.items())
    for mapping, plain in made:
        assert list(mapping.items()) == list(plain.items())
        assert mapping == Map(plain)
        assert hash(mapping) == hash(Map(plain))


@pytest.mark.parametrize("view", [Map.keys, Map.values, Map.items, iter])
def test_a_mapping_may_change_while_it_is_gone_through(view: Callable[[Map[int, int]], Iterable[object]]) -> None:
    whole = newer = Map({n: n for n in range(2 * LARGE)})
    for key, _ in enumerate(view(whole)):
        newer = newer.set(key, key + 1).set(-1 - key, 0)
    assert list(whole.values()) == list(range(2 * LARGE))
    assert len(newer) == 4 * LARGE


@dataclass(frozen=True)
class Value:
    one: int
    two: int = 0


calls: list[Any] = []


@memoised
def total(value: Value, more: int) -> int:
    calls.append((value, more))
    return value.one + value.two + more


def test_what_is_known_of_a_value_is_worked_out_once_and_stays_with_it() -> None:
    calls.clear()
    value = Value(1)
    assert (total(value, 0), total(value, 0), total(value, 1)) == (1, 1, 2)
    assert len(calls) == 2
    changed = replace(value, two=5)
    assert changed == Value(1, 5) and hash(changed) == hash(Value(1, 5))
    assert (total(changed, 0), total(value, 0)) == (6, 1)
    assert value == Value(1)


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="Value has no field three"):
        replace(Value(1), three=3)  # type: ignore[call-arg]
