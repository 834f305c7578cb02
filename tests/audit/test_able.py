"""Random lifecycles of systems that can do only part of the language: what fits is found by asking, and nothing else is made."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from typer.testing import CliRunner, Result

from kvspec import ops
from kvspec.adapter import Adapter, Facts, adapter
from kvspec.audit.able import Able, Scout
from kvspec.audit.fitting import Range, in_the_way
from kvspec.audit.lifecycles import try_lifecycle
from kvspec.audit.managers import Profile, random_manager
from kvspec.audit.reached import Reached
from kvspec.cli.main import app
from kvspec.config import LevelKind, ManagerConfig
from kvspec.harness.replay import Named
from kvspec.harness.systems import find_system
from kvspec.system import Setup
from tests.adapter.growing import Growing
from tests.toys.adapters import StubbornToy, Toy
from tests.toys.prefix_cache import BUGS

REFERENCE = Named("kvref", find_system("kvref"))
PREFIX = frozenset[str]()


def able(system: object, allowed: frozenset[str] | None = None) -> Able:
    return Able((system, REFERENCE.factory), allowed)  # type: ignore[arg-type]


def fussy(*reasons: str, host: bool = False) -> Adapter:
    """A system that fits nothing but what has a host level, or nothing at all for some reasons."""

    def unfit(manager: ManagerConfig) -> Iterator[str]:
        yield from reasons
        if host and len(manager.levels) != 2:
            yield "anything but two levels"

    @adapter(errors={}, unfit=unfit)
    class Fussy:
        def create(self, request: str) -> int:
            return 0

        def resume(self, request: str) -> bool:
            return True

        def resize(self, request: str, capacity: int | None) -> bool:
            return True

        def observe(self) -> Facts:
            return Facts({}, {})

    return Fussy


def test_a_system_that_can_do_everything_gets_the_lifecycles_that_it_always_got() -> None:
    fits = Range.of(able(find_system("kvgpu")))
    assert fits is not None and fits.whole
    assert fits.manager(Random(7), Profile()) == random_manager(Random(7), Profile())


def test_what_fits_is_asked_for() -> None:
    fits = Range.of(able(Toy))
    assert fits is not None and not fits.whole
    assert {kind for kind, _ in fits.shapes} == {"dense", "window"}
    assert {levels for _, levels in fits.shapes} == {1}
    assert (fits.layers, fits.groups, fits.sinks, fits.buffers, fits.pools, fits.limit) == (True, True, True, True, True, False)
    hosted = Range.of(able(fussy(host=True)))
    assert hosted is not None and {levels for _, levels in hosted.shapes} == {2}
    assert Range.of(able(fussy("the moon is full"))) is None


@pytest.mark.parametrize("system", [Toy, Growing, fussy(host=True)], ids=["toy", "growing", "host alone"])
def test_managers_that_are_drawn_fit(system: Adapter) -> None:
    one = able(system)
    fits = Range.of(one)
    assert fits is not None
    drawn = [fits.manager(Random(seed), Profile()) for seed in range(40)]
    assert not [reason for manager in drawn for reason in one.lacks(manager)]
    assert len({manager.model_dump_json() for manager in drawn}) > 20


def test_drawn_managers_of_a_prefix_cache_have_every_dense_thing() -> None:
    fits = Range.of(able(find_system("kvgpu"), PREFIX))
    assert fits is not None
    drawn = [fits.manager(Random(seed), Profile()) for seed in range(60)]
    layers = [layer for manager in drawn for layer in manager.layers]
    assert any(layer.sliding_window and layer.sink_tokens for layer in layers)
    assert any(len({buffer.bytes for buffer in layer.buffers}) == 2 for layer in layers), "two pools a page"
    assert any(len({layer.sliding_window for layer in manager.layers}) > 1 for manager in drawn), "two groups"
    assert {manager.tokens_per_block for manager in drawn} == {1, 2, 4}
    assert all(len(manager.levels) == 1 for manager in drawn)


def test_an_operation_is_without_the_arguments_that_are_not_taken() -> None:
    one = able(Growing)
    fits = Range.of(one)
    assert fits is not None
    manager = fits.manager(Random(1), Profile())
    create = ops.Create(request="a", tokens=(1, 2), priority=3)
    assert one.fitted(manager, create) == ops.Create(request="a")
    assert one.fitted(manager, ops.Resize(request="a", capacity=3, history=2)) == ops.Resize(request="a", capacity=3)
    assert one.fitted(manager, ops.Close(request="a")) is None
    assert able(find_system("kvgpu")).fitted(manager, create) is create


def test_a_seed_becomes_the_life_of_a_request() -> None:
    manager = Range.of(able(Toy)).manager(Random(1), Profile())  # type: ignore[union-attr]
    seed = ops.SeedPrefix(tokens=(1, 2, 3, 4), level=LevelKind.GPU, priority=10)
    life = able(Toy).instead(manager, seed)
    assert [op.verb for op in life] == ["create", "resume", "resize", "commit", "close"]
    assert able(Growing).instead(manager, seed) == [], "it cannot commit"
    assert able(Toy).instead(manager, ops.SeedPrefix(tokens=(1,), level=LevelKind.HOST)) == []


def test_a_scout_lets_nothing_through_that_is_wrong_or_leaves_a_part_of_a_block() -> None:
    manager = ManagerConfig.model_validate(
        {
            "tokens_per_block": 2,
            "levels": [{"kind": "gpu", "slots": 8}],
            "layers": [{"name": "main", "buffers": [{"role": "key", "bytes": 16}]}],
        }
    )
    scout = Scout(able(Toy, PREFIX), REFERENCE.factory, Setup(manager))
    begin = (ops.Create(request="a"), ops.Resume(request="a"), ops.Resize(request="a", capacity=4))
    assert all(scout.may(op) for op in begin)
    assert not scout.may(ops.Resume(request="a")), "it is active"
    assert not scout.may(ops.Commit(request="b", tokens=(1,))), "there is no such request"
    assert scout.may(ops.Commit(request="a", tokens=(1, 2, 3)))
    assert not scout.may(ops.Close(request="a")), "a part of a block would enter the tree"
    assert scout.may(ops.StopCommitting(request="a")), "it is as if the close had not been"
    assert scout.may(ops.Close(request="a"))
    assert not scout.may(ops.Create(request="c", tokens=(1,))), "the match would end inside a block"
    assert scout.may(ops.Create(request="c", tokens=(1, 2, 3)))
    scout.close()


def test_lifecycles_of_a_profile_keep_to_it() -> None:
    for allowed in (PREFIX, frozenset({"host", "suspend"})):
        systems = (Named("kvgpu", find_system("kvgpu")), REFERENCE)
        reached = Reached()
        for seed in range(6):
            result = try_lifecycle(seed, 40, *systems, {"device": "sim"}, Profile(allowed=allowed))
            assert result.found is None and not result.unfinished
            reached.add(result.reached)
        verbs = {verb for verb, _ in reached.calls}
        assert {"create", "resume", "resize", "commit", "close", "seed_prefix", "evict"} <= verbs
        assert ("suspend" in verbs) == ("suspend" in allowed)
        assert not verbs & {"publish", "gate", "enter_decode", "stats", "write"}
        assert not {result for _, result in reached.calls} & {"invalid_argument", "logic_error", "out_of_range", "copy_failed"}


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_every_lifecycle_of_a_correct_prefix_cache_is_gone_through(first: int) -> None:
    for seed in range(first, first + 10):
        result = try_lifecycle(seed, 60, Named("toy", Toy), REFERENCE, {}, Profile())
        assert result.found is None, result.found.text
        assert not result.unfinished
        assert result.reached.steps >= 60


def test_all_that_a_prefix_cache_can_do_succeeds_and_fails_for_want_of_room() -> None:
    reached = Reached()
    for seed in range(40):
        reached.add(try_lifecycle(seed, 60, Named("toy", Toy), REFERENCE, {}, Profile()).reached)
    assert {verb for verb, result in reached.calls if result == "done"} == able(Toy).verbs
    assert reached.calls["resize", "false"] > 20
    assert {"logic_error", "invalid_argument"} <= {result for _, result in reached.calls}, "calls that are wrong"
    assert reached.of("path removed") and reached.of("stale written, commit")


def test_what_a_system_finds_out_that_it_cannot_do_is_passed_over_and_the_lifecycle_goes_on() -> None:
    passed_over, steps = Counter[tuple[str, str]](), 0
    for seed in range(12):
        result = try_lifecycle(seed, 60, Named("stubborn", StubbornToy), REFERENCE, {}, Profile(allowed=PREFIX))
        assert result.found is None, result.found.text
        assert not result.unfinished
        passed_over.update(result.passed_over)
        steps += result.reached.steps
    assert set(passed_over) == {("resize", "giving blocks back"), ("close", "closing r0")}
    assert steps + passed_over.total() >= 12 * 60


# -- the command ----------------------------------------------------------------------------------------------


def fuzz(*args: str) -> Result:
    return CliRunner().invoke(app, ["fuzz", "--jobs", "1", *args])


def said(result: Result) -> str:
    return " ".join(result.output.split())


def test_the_command_says_what_lifecycles_consist_of() -> None:
    result = fuzz("--system", "tests.toys.adapters:Toy", "--seeds", "6")
    assert result.exit_code == 0, result.output
    text = said(result)
    assert "lifecycles of: clear_reusable, close, commit, create, resize, resume, stop_committing, suspend" in text
    assert "managers: full attention, windows; the GPU alone; several layer groups; 1, 2, 4 tokens a block" in text
    assert re.search(r"call +times +done +false +errors", result.output)
    assert re.search(r" resize +\d+ +\d+ +\d+ +", result.output)
    assert "never reached" not in text
    assert "6 lifecycles of 60 steps, 0 failed" in text


def test_verbs_that_never_succeed_are_named() -> None:
    result = fuzz("--system", "tests.adapter.growing:Growing", "--seeds", "2", "--steps", "3", "--first", "3")
    assert "never called: " in said(result) or "never succeeded: " in said(result), result.output


def test_what_was_passed_over_is_counted_in_the_summary() -> None:
    result = fuzz("--system", "tests.toys.adapters:StubbornToy", "--profile", "prefix", "--seeds", "8")
    assert result.exit_code == 0, result.output
    found = re.search(
        r"^passed over \d+ times, close: tests.toys.adapters:StubbornToy lacks closing r0$", result.output, re.MULTILINE
    )
    assert found is not None, result.output


def test_nothing_left_is_said_at_once_with_what_to_begin_with() -> None:
    start = time.monotonic()
    result = fuzz("--system", "tests.toys.adapters:Homeless")
    assert time.monotonic() - start < 5  # a second, where nothing else runs
    assert result.exit_code == 2
    text = said(result)
    assert "no lifecycle can be made for tests.toys.adapters:Homeless, as it lacks:" in text
    assert re.search(r"begin with: more than one block size: with it alone \d+ of \d+ managers that were tried would do", text)
    mute = said(fuzz("--system", "tests.toys.adapters:Mute"))
    assert "begin with: verb create" in mute or "begin with: verb resume" in mute, mute


def test_a_system_that_raises_when_it_is_asked_is_told_of_without_a_traceback() -> None:
    result = fuzz("--system", "tests.toys.adapters:Touchy")
    assert result.exit_code == 2
    assert "tests.toys.adapters:Touchy raised while it was asked what it lacks: ZeroDivisionError" in said(result)


def test_what_would_open_most_comes_first() -> None:
    obstacles = in_the_way(able(fussy("one thing", "another")), None)
    assert {one.what for one in obstacles} == {"one thing", "another"}
    assert all(one.opens == 0 for one in obstacles)
    assert in_the_way(able(Toy), Range.of(able(Toy))) == ()


def test_a_profile_that_there_is_not_is_refused() -> None:
    result = fuzz("--profile", "prefix+hots")
    assert result.exit_code == 2
    assert "there is no extension 'hots'. Did you mean 'host'?" in said(result)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    from tests.toys.adapters import with_bug

    for seed in range(30):
        found = try_lifecycle(seed, 60, Named(bug, with_bug(bug)), REFERENCE, {}, Profile(allowed=PREFIX)).found
        if found is not None:
            return
    pytest.fail(f"{bug} was not found in 30 lifecycles")


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_by_what_requests_see_alone(bug: str) -> None:
    from tests.toys.adapters import UNOBSERVED, UNSEEN, with_bug

    system = Named(bug, with_bug(bug, UNOBSERVED | UNSEEN))
    for seed in range(40):
        if try_lifecycle(seed, 60, system, REFERENCE, {}, Profile(allowed=PREFIX)).found is not None:
            return
    pytest.fail(f"{bug} was not found in 40 lifecycles")
