"""What an adapter can say: by group or for the only one, further places of a page, what it cannot do; and slips in names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvref.system import Reference
from kvspec.adapter import AdapterError, Batch, Facts, Page, Request, Tables, adapter
from kvspec.config import Level, ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.facts import observation
from kvspec.harness.difference import Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import lacking
from kvspec.language.loader import read_bytes
from kvspec.observation import Observation, Phase
from kvspec.scenario import Scenario
from kvspec.system import DeviceLimit, Setup, Unsupported

ALL = frozenset({"payloads", "order", "tree", "eviction", "counters", "events", "versions", "device", "staging"})


def config(*names: str) -> ManagerConfig:
    layers = [{"name": name, "buffers": [{"role": "k", "bytes": 16 * (n + 1)}]} for n, name in enumerate(names)]
    for n, layer in enumerate(layers[1:]):
        layer["sliding_window"] = 4 + n
    levels = [{"kind": "gpu", "slots": 4}, {"kind": "host", "slots": 4}]
    return ManagerConfig.model_validate({"tokens_per_block": 4, "levels": levels, "layers": layers})


def seen(facts: Facts, *groups: str, unobserved: frozenset[str] = ALL) -> Observation:
    return observation(Setup(config(*(groups or ("main",)))), facts, unobserved)


FREE = {"gpu": 2, "host": 4}


def test_the_only_group_need_not_be_named() -> None:
    page = Page("gpu", 0, tokens=(1, 1, 1, 1))
    plain = Facts(
        {"a": Request("active", capacity=8, history=4, blocks=[None, Page("gpu", 1)], kept={0: page}, eligible=0)},
        FREE,
        {"rows": Batch(["a"], 1, [], Tables([[1]], [0]))},
        cached=[Page("host", 2, tokens=(2, 2, 2, 2))],
    )
    named = Facts(
        {
            "a": Request(
                "active", "prefill", 8, 4, {"main": [None, Page("gpu", 1)]}, kept={"main": {0: page}}, eligible={"main": 0}
            )
        },
        FREE,
        {"rows": Batch(["a"], 1, [], {"main": Tables([[1]], [0])})},
        cached={"main": [Page("host", 2, tokens=(2, 2, 2, 2))]},
    )
    assert seen(plain) == seen(named)
    assert seen(plain).requests["a"].phase is Phase.PREFILL
    assert {(page.level, page.slot) for page in seen(plain).pages} == {(Level.GPU, 0), (Level.GPU, 1), (Level.HOST, 2)}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            Facts({"a": Request("active", blocks=[Page("gpu", 0)])}, FREE),
            "blocks of a: there are the layer groups main, near: expected a mapping by their names",
        ),
        (
            Facts({"a": Request("active", blocks={"mian": [Page("gpu", 0)]})}, FREE),
            "blocks of a: there is no layer group 'mian'. Did you mean 'main'? There are: main, near",
        ),
        (Facts({"a": Request("active", eligible=1)}, FREE), "eligible of a: there are the layer groups main, near"),
        (Facts({}, FREE, cached=[Page("gpu", 0, tokens=(1,))]), "cached: there are the layer groups main, near"),
    ],
)
def test_a_group_has_to_be_named_where_there_are_several(facts: Facts, said: str) -> None:
    with pytest.raises(AdapterError) as error:
        seen(facts, "main", "near")
    assert str(error.value).startswith(said)


def test_further_places_of_a_page_count_as_free() -> None:
    page = Page("gpu", 1, also=[("host", 3)])
    both = {name: Request("active", capacity=4, blocks=[page]) for name in ("a", "b")}
    shown = seen(Facts(both, {"gpu": 3, "host": 3}, cached=[Page("gpu", 2, tokens=(1,), also=[("host", 0)])]))
    assert shown.pools[Level.HOST, "main"].free == 5
    assert shown.pools[Level.GPU, "main"].free == 3
    assert len(shown.pools[Level.HOST, "main"].fences) == 5
    assert [(one.level, one.slot) for one in shown.pages] == [(Level.GPU, 1), (Level.GPU, 2)]


def test_a_further_place_is_nobody_elses() -> None:
    for other in (Page("host", 3), Page("gpu", 2, also=[("host", 3)])):
        facts = Facts({"a": Request("active", capacity=8, blocks=[Page("gpu", 1, also=[("host", 3)]), other])}, FREE)
        with pytest.raises(AdapterError, match="a further place of a page of main is host slot 3, where another page is"):
            seen(facts)


def test_what_only_the_cache_keeps_stands_in_the_order_of_eviction() -> None:
    facts = Facts(
        {"a": Request("active", capacity=8, blocks=[None, Page("gpu", 1)], kept={0: Page("gpu", 3)})},
        FREE,
        cached=[Page("gpu", 0, tokens=(5,)), Page("gpu", 2, tokens=(5,))],
        evictable={"gpu": [2, 3, 0]},
    )
    shown = seen(facts, unobserved=ALL - {"eviction"})
    assert [shown.pages[n].slot for n in shown.pools[Level.GPU, "main"].evictable] == [2, 3, 0]


class Half:
    """A manager that can open a request, and grow one by whole blocks."""

    def __init__(self, setup: Setup) -> None:
        self.system = Reference(setup)
        self.capacity: dict[str, int] = {}

    def create(self, request: str) -> int:
        self.capacity[request] = 0
        return 0

    def resume(self, request: str) -> bool:
        return True

    def resize(self, request: str, capacity: int | None) -> bool:
        if capacity is not None and capacity % 4:
            raise Unsupported("a capacity inside a block")
        if capacity == 400:
            raise DeviceLimit("the card is too small: take another")
        return True

    def observe(self) -> Facts:
        return Facts({name: Request("suspended") for name in self.capacity}, {"gpu": 4})


HALF = adapter(errors={KeyError: ErrorKind.OUT_OF_RANGE}, unobserved=ALL)(Half)


def scenario(steps: str) -> Scenario:
    text = (
        "kvspec: 1\nname: one\nmanager:\n  tokens_per_block: 4\n  levels: [{kind: gpu, slots: 4}]\n"
        "  layers: [{name: main, buffers: [{role: key, bytes: 16}]}]\nsteps:\n" + steps
    )
    loaded = read_bytes(Path("x.yaml"), text.encode())
    assert loaded.problems == ()
    return loaded.scenarios[0]


def played(steps: str, system: Any = HALF) -> Result:
    return replay(scenario(steps), Named("mine", system), Named("kvref", Reference))


def test_what_cannot_be_done_is_known_when_it_is_asked() -> None:
    result = played("  - create: {request: a}\n  - resize: {request: a, capacity: 5}\n    raises: logic_error\n", UNTOLD)
    assert (result.verdict, result.lacks) == (Verdict.SKIPPED, ("a capacity inside a block",))
    assert result.reason == "mine lacks a capacity inside a block (from step 1, resize, on)"
    limit = played("  - create: {request: a}\n  - resize: {request: a, capacity: 400}\n    raises: logic_error\n", UNTOLD)
    assert (limit.verdict, limit.lacks) == (Verdict.SKIPPED, ())
    assert limit.reason == "from step 1, resize, on: the card is too small: take another"


UNTOLD = adapter(errors={Exception: ErrorKind.LOGIC_ERROR}, unobserved=ALL)(Half)


def test_what_cannot_be_built_is_no_failure() -> None:
    class Unbuilt(Half):
        """A manager that cannot have so few slots."""

        def __init__(self, setup: Setup) -> None:
            raise Unsupported("so few slots")

    result = played("  - create: {request: a}\n", adapter(errors={}, unobserved=ALL)(Unbuilt))
    assert (result.verdict, result.lacks, result.steps) == (Verdict.SKIPPED, ("so few slots",), 0)


def test_an_error_is_a_capability() -> None:
    asked = scenario("  - create: {request: a}\n  - create: {request: a}\n    raises: logic_error\n")
    assert lacking(asked, HALF) == ("raises logic_error",)
    assert lacking(asked, UNTOLD) == ()
    assert lacking(asked, Reference) == ()
    assert HALF.raises == {ErrorKind.OUT_OF_RANGE}


def named(name: str, with_observe: bool = True) -> Callable[[Setup], Any]:
    body: dict[str, Any] = {"__init__": lambda self, setup: None, "create": lambda self, request: 0, name: lambda self: None}
    if with_observe:
        body["observe"] = lambda self: Facts({}, {"gpu": 4})
    return type("Mine", (), body)


@pytest.mark.parametrize(
    ("name", "meant"), [("resise", "resize"), ("enterdecode", "enter_decode"), ("observes", "observe"), ("teardown", "tear_down")]
)
def test_a_method_with_a_slip_in_its_name_is_refused(name: str, meant: str) -> None:
    with pytest.raises(AdapterError) as error:
        adapter(errors={})(named(name))
    assert str(error.value).startswith(f"Mine.{name}: there is no verb {name!r}. Did you mean {meant!r}?")


def test_helpers_of_any_other_name_are_no_slips() -> None:
    for name in ("_resise", "pages_of", "grow", "lines"):
        assert "create" in adapter(errors={})(named(name)).capabilities


def test_a_class_that_shows_nothing_is_refused() -> None:
    with pytest.raises(AdapterError, match="Mine has no method observe: expected one that takes nothing and returns Facts"):
        adapter(errors={})(named("grow", with_observe=False))
