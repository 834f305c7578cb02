"""What makes adapters short: dispatch by method name, outcomes from exceptions, observations from facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvspec.adapter import AdapterError, Batch, Facts, Page, Request, Tables, adapter, observation, plain
from kvspec.config import Level, ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system
from kvspec.language import load_file
from kvspec.observation import BAD, Order, PageStatus
from kvspec.ops import Create, Resize, Sync
from kvspec.scenario import Scenario
from kvspec.system import Setup
from tests.toys.adapters import UNOBSERVED, UNSEEN, with_bug

CONFIG = ManagerConfig.model_validate(
    {
        "tokens_per_block": 4,
        "levels": [{"kind": "gpu", "slots": 4}, {"kind": "host", "bytes": 1000}],
        "layers": [{"name": "main", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]}],
    }
)
ALL = frozenset({"payloads", "order", "tree", "eviction", "counters", "events", "versions", "device", "staging"})
BARE = Request("active", "decode", 8, 4, eligible={"main": 1})


class Small:
    """A class with two verbs."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.torn = False

    def create(self, request: str, tokens: tuple[int, ...] | None) -> object:
        if request == "unknown":
            raise KeyError("no", request)
        if request == "bug":
            raise ZeroDivisionError
        return np.int64(len(tokens or ()))

    def resize(self, request: str, capacity: int | None, history: int | None) -> object:
        return [np.bool_(True), None]

    def observe(self) -> Facts:
        return Facts({}, {"gpu": 4, "host": 15})

    def tear_down(self) -> None:
        self.torn = True


SMALL = adapter(errors={KeyError: ErrorKind.OUT_OF_RANGE}, unobserved=ALL, features={"async"})(Small)


def facts(*blocks: Page | None, **fields: object) -> Facts:
    request = Request(**{**{f: getattr(BARE, f) for f in BARE.__slots__}, "blocks": {"main": blocks}, **fields})
    return Facts({"a": request}, {"gpu": 4, "host": 15})


def scenario(tmp_path: Path, steps: str) -> Scenario:
    path = tmp_path / "one.yaml"
    manager = "{tokens_per_block: 4, levels: [{kind: gpu, slots: 4}], layers: [{name: main, buffers: [{role: key, bytes: 64}]}]}"
    path.write_text(f"kvspec: 1\nname: one\nrules: [R3.1]\nmanager: {manager}\nsteps:\n{steps}")
    return load_file(path)[0]


def test_capabilities_are_the_methods_that_are_named_like_verbs() -> None:
    assert SMALL.capabilities == {"create", "resize", "async"}


def test_arguments_go_by_name_and_values_come_back_plain() -> None:
    system = SMALL(Setup(CONFIG))
    outcome = system.apply(Create(request="a", tokens=(1, 2)))
    assert (outcome.value, type(outcome.value)) == (2, int)
    assert system.apply(Resize(request="a")).value == (True, None)


def test_exceptions_of_known_kinds_are_outcomes_and_others_are_not() -> None:
    system = SMALL(Setup(CONFIG))
    outcome = system.apply(Create(request="unknown"))
    assert (outcome.error, outcome.message) == (ErrorKind.OUT_OF_RANGE, "no unknown")
    with pytest.raises(ZeroDivisionError):
        system.apply(Create(request="bug"))
    with pytest.raises(AdapterError, match="Small has no method sync"):
        system.apply(Sync())


def test_closing_tears_down() -> None:
    made: list[Small] = []

    def build(setup: Setup) -> Small:
        made.append(Small(setup))
        return made[0]

    adapter(errors={})(build)(Setup(CONFIG)).close()
    assert made[0].torn


def test_a_method_with_an_argument_that_its_verb_does_not_have_is_refused() -> None:
    class Wrong(Small):
        def resize(self, request: str, capactiy: int) -> object:  # type: ignore[override]
            return None

    with pytest.raises(AdapterError, match=r"Wrong.resize takes 'capactiy'.* Did you mean 'capacity'\? It has: request, cap"):
        adapter(errors={})(Wrong)


def test_a_method_without_an_argument_that_every_use_has_is_refused() -> None:
    class Wrong(Small):
        def create(self, tokens: tuple[int, ...] | None) -> object:  # type: ignore[override]
            return None

    with pytest.raises(AdapterError, match=r"Wrong.create must take request"):
        adapter(errors={})(Wrong)


def test_an_aspect_that_there_is_not_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"unobserved has 'payload'. Did you mean 'payloads'\?"):
        adapter(errors={}, unobserved={"payload"})(Small)


def test_scenarios_that_use_what_no_method_takes_are_lacking(tmp_path: Path) -> None:
    one = scenario(tmp_path, "  - create: a\n  - create: {request: b, priority: 3, tokens: [1]}\n")
    assert SMALL.lacks(one) == ("priority of create",)
    fussy = adapter(errors={}, unfit=lambda manager: [f"{len(manager.levels)} levels"])(Small)
    assert fussy.lacks(one) == ("priority of create", "1 levels")
    assert SMALL.lacks(scenario(tmp_path, "  - create: {request: b, priority: 35, tokens: [1]}\n")) == ()


def test_pages_that_are_in_one_place_are_one_page() -> None:
    page = Page("host", 3)
    others = {name: Request(status, "decode", 4, 4, {"main": [page]}) for name, status in (("b", "active"), ("c", "suspended"))}
    seen = observation(
        Setup(CONFIG), Facts({**facts(page, None, Page("gpu", 1)).requests, **others}, {"gpu": 3, "host": 14}), ALL
    )
    shared, own = seen.pages
    assert shared.owners == {"a", "b"}
    assert (shared.status, shared.level, shared.slot) == (PageStatus.LOCKED, Level.HOST, 3)
    assert sorted(map(str, shared.refs)) == ["a.main.0", "b.main.0", "c.main.0"]
    assert own.owners == {"a"}
    assert seen.requests["a"].snapshots["main", 0].indices == (3, BAD, 1)
    assert seen.requests["a"].snapshots["main", 0].levels == (Level.HOST, None, Level.GPU)
    assert seen.requests["c"].snapshots["main", 0].indices == (BAD,), "a suspended request shows no places (R6.2)"


def test_owners_that_the_manager_knows_are_those_that_count() -> None:
    (page,) = observation(Setup(CONFIG), facts(Page("gpu", 0, owners=frozenset())), ALL).pages
    assert (page.owners, page.status) == (frozenset(), PageStatus.HELD)


def test_requests_that_contradict_each_other_are_refused() -> None:
    other = Request("active", "decode", 4, 4, {"main": [Page("gpu", 0, owners=frozenset("b"))]})
    with pytest.raises(AdapterError, match=r"a.main.0, b.main.0 are all at gpu slot 0 but their pages differ"):
        observation(Setup(CONFIG), Facts({**facts(Page("gpu", 0)).requests, "b": other}, {"gpu": 3, "host": 15}), ALL)


@pytest.mark.parametrize("aspect", ["counters", "events", "tree", "eviction", "versions", "order"])
def test_what_is_missing_has_to_be_declared(aspect: str) -> None:
    with pytest.raises(AdapterError, match=f"missing; give it, or declare '{aspect}' unobserved"):
        observation(Setup(CONFIG), facts(), ALL - {aspect})


@pytest.mark.parametrize("missing", ["streams", "fences", "ready of a.main.0", "upload of batch rows"])
def test_no_part_of_the_order_is_left_out_in_silence(missing: str) -> None:
    done = Order(frozenset(), {})
    page = Page("gpu", 0, ready=None if missing.startswith("ready") else done)
    batch = Batch([None], 1, [0], {"main": Tables([[-1]], [0])}, upload=None if missing.startswith("upload") else done)
    shown = replace(
        facts(page),
        batches={"rows": batch},
        streams=None if missing == "streams" else {"exec": done},
        fences=None if missing == "fences" else {"gpu": [done] * 3, "host": [done] * 15},
    )
    with pytest.raises(AdapterError, match=f"^{missing}: missing; give it, or declare 'order' unobserved"):
        observation(Setup(CONFIG), shown, ALL - {"order"})


def test_an_order_that_is_given_is_shown() -> None:
    held = Order(frozenset({"gate"}), {"exec": 3})
    fences = {"gpu": [held, held, held], "host": [held] * 15}
    shown = replace(facts(Page("gpu", 0, ready=held)), free={"gpu": 3, "host": 15}, streams={"exec": held}, fences=fences)
    seen = observation(Setup(CONFIG), shown, ALL - {"order"})
    assert seen.pages[0].ready == seen.requests["a"].snapshots["main", 0].ready[0] == held
    assert seen.pools[Level.GPU, "main"].fences == (held, held, held)
    assert seen.streams == {"exec": held}


@pytest.mark.parametrize("aspect", ["device", "staging"])
def test_what_is_missing_of_a_batch_has_to_be_declared(aspect: str) -> None:
    shown = Facts({}, {"gpu": 4, "host": 15}, {"rows": Batch([None], 1, [0], {"main": Tables([[-1]], [0])})})
    with pytest.raises(AdapterError, match=f"of batch rows: missing; give it, or declare '{aspect}' unobserved"):
        observation(Setup(CONFIG), shown, ALL - {aspect})


def test_pools_are_those_of_the_configuration() -> None:
    pools = observation(Setup(CONFIG), facts(), ALL).pools
    assert {key: (pool.slots, pool.free, len(pool.fences)) for key, pool in pools.items()} == {
        (Level.GPU, "main"): (4, 4, 4),
        (Level.HOST, "main"): (15, 15, 15),
    }
    with pytest.raises(AdapterError, match=r"free: no count for host.main: there are gpu"):
        observation(Setup(CONFIG), Facts({}, {"gpu": 4}), ALL)


def test_the_slots_that_would_be_evicted_become_pages() -> None:
    shown = Facts(
        facts(Page("gpu", 2), Page("gpu", 1)).requests, {"gpu": 2, "host": 15}, evictable={"gpu": [1, 2, 3], "host": []}
    )
    pool = observation(Setup(CONFIG), shown, ALL - {"eviction"}).pools[Level.GPU, "main"]
    assert pool.evictable == (1, 0, -1)


def test_tables_are_read_from_arrays_and_their_addresses_are_watched() -> None:
    tables = Tables(np.full((2, 3), -1, np.int32), np.zeros(2, np.int32), np.full((2, 3), -1, np.int8))
    batch = Batch(["a", None], 3, {1}, {"main": tables}, {"main": tables}, 2)
    view = observation(Setup(CONFIG), Facts({}, {"gpu": 4, "host": 15}, {"rows": batch}), ALL).batches["rows"]
    assert view.published["main"].page_table == ((-1, -1, -1), (-1, -1, -1))
    assert view.published["main"].num_blocks == (0, 0)
    assert view.published["main"].page_level == ((-1, -1, -1), (-1, -1, -1))
    assert (view.rows, view.dirty_rows, view.staging) == (("a", None), (1,), 2)
    assert view.address["main"] == tuple(one.ctypes.data for one in (tables.page_table, tables.num_blocks, tables.page_level))


@pytest.mark.parametrize(
    ("value", "said"), [(np.arange(2), (0, 1)), ([np.int32(3), [None]], (3, (None,))), ("ran", "ran"), (np.bool_(True), True)]
)
def test_plain_values(value: object, said: object) -> None:
    assert plain(value) == said
    assert type(plain(value)) is type(said)


def test_pages_that_only_the_tree_keeps_and_stale_ones_that_are_kept_are_shown() -> None:
    request = Request("active", "prefill", 12, 8, {"main": [None, Page("gpu", 1)]}, kept={"main": {0: Page("gpu", 0)}})
    shown = Facts(
        {"a": request},
        {"gpu": 1, "host": 15},
        tree=[(1, 2, 3, 4), (1, 2, 3, 4, 5)],
        evictable={"gpu": [3, 0], "host": []},
        cached={"main": [Page("gpu", 3, tokens=(1, 2, 3, 4, 5))]},
    )
    seen = observation(Setup(CONFIG), shown, ALL - {"tree", "eviction"})
    own, kept, cached = seen.pages
    assert [str(ref) for ref in kept.refs] == ["a.main.0"] and own.refs != kept.refs
    assert (own.status, kept.status, cached.status) == (PageStatus.LOCKED, PageStatus.HELD, PageStatus.DROPPABLE)
    assert (cached.tokens, cached.block, cached.refs, cached.slot) == ((1, 2, 3, 4, 5), 1, frozenset(), 3)
    assert seen.pools[Level.GPU, "main"].evictable == (2, 1)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (Page("gpu", 3), "cached page of main at gpu slot 3: it has no tokens"),
        (Page("gpu", 0, tokens=(1,)), "cached page of main at gpu slot 0: a.main.0 is there"),
    ],
)
def test_a_cached_page_that_cannot_be_is_refused(page: Page, said: str) -> None:
    shown = replace(facts(Page("gpu", 0)), cached={"main": [page]})
    with pytest.raises(AdapterError, match=said):
        observation(Setup(CONFIG), shown, ALL)


PREFIX_CACHE = """kvspec: 1
name: two compute the same block
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 4}]
  layers: [{name: main, buffers: [{role: key, bytes: 16}]}]
steps:
  - create: a
  - create: b
  - resume: a
  - resume: b
  - resize: {request: a, capacity: 4}
  - resize: {request: b, capacity: 4}
  - commit: {request: a, tokens: [1, 2, 3, 4]}
  - close: a
  - commit: {request: b, tokens: [1, 2, 3, 4]}
"""


@pytest.mark.parametrize(("bug", "wrong"), [("", None), ("wanders", "slot")])
def test_a_rebase_onto_a_page_that_nobody_shows_is_no_move(tmp_path: Path, bug: str, wrong: str | None) -> None:
    path = tmp_path / "rebase.yaml"
    path.write_text(PREFIX_CACHE)
    (one,) = load_file(path)
    result = replay(one, Named("toy", with_bug(bug, UNOBSERVED | UNSEEN)), Named("kvref", find_system("kvref")))
    assert (result.failure is None) == (wrong is None)
    if result.failure is not None:
        assert (result.failure.verb, result.failure.step) == ("commit", 6), "a page that changes its slot by itself still is one"
        assert result.failure.differences[0].identity == wrong
