"""What counts as another ending: device tables, payloads and what reads returned, of either system."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvspec.audit.ending import Ending, SideEnding, ending_differences
from kvspec.observation import PageRef
from kvspec.payload import Content, Part

KEY = ("kv", PageRef("a", "kv", 0), 0)
WHOLE = Part(Content("a", "kv", 1), ((0, 64),))
SIDE = SideEnding(
    tables={("rows", "kv"): ((("a.0", "-"),), (1,), None)},
    payloads={KEY: ("a.kv.0", Content("a", "kv", 0))},
    reads={"page": Content("a", "kv", 0), "table": frozenset({(("a.0", "-"),), (("b.0", "-"),)})},
    cached={("a", "kv"): ((1, WHOLE), (0, None))},
    fetched={"f": (("a", ("miss", "-")),)},
)


def _said(change: dict[str, Any], side: int) -> list[str]:
    sides = [SIDE, SIDE]
    sides[side] = replace(SIDE, **change)
    return list(ending_differences(Ending((SIDE, SIDE)), Ending((sides[0], sides[1])), ("ref", "impl")))


@pytest.mark.parametrize(("side", "name"), [(0, "ref"), (1, "impl")])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tables": {("rows", "kv"): ((("a.1", "-"),), (1,), None)}}, "[['a.0', '-']], num_blocks [1], then [['a.1', '-']]"),
        ({"tables": {("rows", "kv"): ((("a.0", "-"),), (0,), None)}}, "then [['a.0', '-']], num_blocks [0]"),
        ({"tables": {}}, "device tables of rows.kv"),
        ({"payloads": {KEY: ("a.kv.0", Content("b", "kv", 0))}}, "payload of a.kv.0: what a wrote"),
        ({"payloads": {}}, "page a.kv.0 is there in only one of the two orders"),
        ({"reads": {**SIDE.reads, "page": Content("b", "kv", 0)}}, "page read page: what a wrote"),
        ({"reads": {**SIDE.reads, "table": frozenset({(("c.0", "-"),)})}}, "then [['c.0', '-']]"),
        ({"reads": {**SIDE.reads, "table": frozenset()}}, "then never published"),
        ({"cached": {("a", "kv"): ((0, None), (1, WHOLE))}}, "cached of a.kv: [1, 0], then [0, 1]"),
        ({"cached": {}}, "cached of a.kv: [1, 0], then []"),
        ({"cached": {("a", "kv"): ((1, b"x"), (0, None))}}, "what is cached of a.kv: numbers [1] are not the same"),
        ({"fetched": {"f": (("a", ("hit", "-")),)}}, "fetch f: (('a', ('miss', '-')),), then (('a', ('hit', '-')),)"),
        ({"fetched": {}}, "fetch f: (('a', ('miss', '-')),), then nothing"),
        ({"reads": {"page": SIDE.reads["page"]}}, "read table has a result in only one of the two orders"),
    ],
)
def test_every_difference_is_found(change: dict[str, Any], said: str, side: int, name: str) -> None:
    (text,) = _said(change, side)
    assert text.startswith(f"{name}: ")
    assert said in text


def test_the_same_ending_has_none_and_one_common_reading_is_enough() -> None:
    assert _said({}, 0) == []
    assert _said({"reads": {**SIDE.reads, "table": frozenset({(("b.0", "-"),), (("d.0", "-"),)})}}, 1) == []
