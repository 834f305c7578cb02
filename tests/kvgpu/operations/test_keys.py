"""Keys from Python: what is no key or no span is refused, and what a closed request keeps (R2.7, section 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvgpu.errors import InvalidArgument
from kvgpu.manager import Manager
from kvgpu.storage.texts import Text
from tests.kvgpu.build import Bench, bench, configuration, layer

BAD: tuple[Any, ...] = ("", 7, b"red", ("red",), True)


@pytest.fixture
def made() -> Bench:
    return bench(configuration(layer("a", 64)))


def calls(made: Bench, key: Any) -> dict[str, Callable[[], object]]:
    manager = made.manager
    request = manager.create("r")
    return {
        "create": lambda: manager.create("s", [1, 2], key=key),
        "a span of create": lambda: manager.create("s", [1, 2], spans=[(0, 1, key)]),
        "commit": lambda: manager.commit(request, [], key=key),
        "seed_prefix": lambda: seed(manager, key=key),
        "a span of seed_prefix": lambda: seed(manager, spans=[(0, 1, key)]),
    }


def seed(manager: Manager, **more: Any) -> None:
    manager.seed_prefix([1, 2, 3, 4], 0, content=lambda prefix, group, block: bytes(64), **more)


@pytest.mark.parametrize("key", BAD, ids=repr)
def test_what_is_no_text_is_no_key(made: Bench, key: Any) -> None:
    for name, call in calls(made, key).items():
        before = made.state()
        with pytest.raises(InvalidArgument, match=r"a key is a text with at least a letter, got .*\(R2\.7\)"):
            call()
        assert made.state() == before, name


def test_a_span_has_a_key(made: Bench) -> None:
    spans: Any = [(0, 1, None)]
    with pytest.raises(InvalidArgument, match=r"the span \[0, 1\) has no key"):
        made.manager.create("s", [1, 2], spans=spans)


@pytest.mark.parametrize("spans", [[(0, 0)], [(1, 0)], [(0, 3)], [(-1, 1)], [(0, 2), (1, 2)], [(1, 2), (0, 1)]], ids=repr)
def test_spans_follow_one_another_within_the_tokens(made: Bench, spans: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidArgument, match=r"is empty, begins before .* or is beyond the 2 tokens"):
        made.manager.create("s", [1, 2], spans=[(first, end, "cat") for first, end in spans])


def test_a_seed_and_a_request_meet_under_their_keys(made: Bench) -> None:
    manager = made.manager
    seed(manager, key="red", spans=[(1, 3, "cat")])
    assert manager.tree_blocks() == [Text((1, 2, 3, 4), (("red", None), ("red", "cat"), ("red", "cat"), ("red", None)))]
    assert manager.create("a", [1, 2, 3, 4], key="red", spans=[(1, 3, "cat")]).history == 4
    assert manager.create("b", [1, 2, 3, 4], key="red").history == 1


def test_a_closed_request_keeps_no_key(made: Bench) -> None:
    request = made.manager.create("r", key="red")
    assert made.manager.resume(request, made.stream) and made.manager.resize(request, 4)
    made.manager.commit(request, [1, 2], key="cat")
    made.manager.close(request)
    assert (request.key, request.keys, request.committed) == (None, [], 2)
