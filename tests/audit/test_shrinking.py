"""A failure is made short: no operation, layer, level, stream or argument that it does not need stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kvref.system import Reference
from kvspec import ops
from kvspec.audit.able import Able
from kvspec.audit.lifecycles import Found, loaded, try_lifecycle
from kvspec.audit.managers import Fetches, Profile
from kvspec.audit.shrinking import plainer_managers, plainer_operations, shrink
from kvspec.config import ManagerConfig
from kvspec.harness.replay import Named
from kvspec.harness.systems import find_system
from kvspec.observation import Level, Observation
from kvspec.system import Outcome
from tests.toys.adapters import with_bug

REFERENCE = Named("kvref", find_system("kvref"))


class ForgetsClose(Reference):
    """The third `close` does nothing."""

    closed = 0

    def apply(self, op: ops.Operation) -> Outcome:
        if isinstance(op, ops.Close):
            self.closed += 1
            if self.closed == 3:
                return Outcome()
        return super().apply(op)


class ShortHost(Reference):
    """An offload to the host that succeeds is told as one that does not."""

    def apply(self, op: ops.Operation) -> Outcome:
        outcome = super().apply(op)
        moved = any(page.level is Level.HOST and page.owners for page in super().observe().pages)
        return Outcome(False) if isinstance(op, ops.EnterDecode) and outcome.value is True and moved else outcome


class NoHits(Reference):
    """A hit is told as a miss."""

    def observe(self) -> Observation:
        seen = super().observe()
        fetches = {label: replace(view, found=view.found and _as_misses(view.found)) for label, view in seen.fetches.items()}
        return replace(seen, fetches=fetches)


def _as_misses(found: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple("miss" if kind == "hit" else kind for kind in row) for row in found)


def first(system: Callable[..., object], seeds: int = 60, fetches: Fetches = Fetches.ANY) -> Found:
    for seed in range(seeds):
        profile = Profile(fetches=fetches)
        found = try_lifecycle(seed, 60, Named("broken", system), REFERENCE, {}, profile).found  # type: ignore[arg-type]
        if found is not None and not found.at_the_end:
            return shrink(found, Named("broken", system), REFERENCE, {})  # type: ignore[arg-type]
    raise AssertionError("nothing was found")


def test_a_failure_needs_one_layer_one_level_and_no_stream() -> None:
    scenario = loaded(first(ForgetsClose).text)
    manager = scenario.manager
    assert len(manager.layers) == len(manager.levels) == len(manager.layers[0].buffers) == 1
    assert not manager.layers[0].sparse and manager.layers[0].sliding_window is None
    assert scenario.streams == ("exec",) or scenario.streams == ()
    assert len(scenario.steps) <= 6
    assert "stream" not in first(ForgetsClose).text


def test_what_a_failure_needs_stays() -> None:
    scenario = loaded(first(ShortHost).text)
    assert len(scenario.manager.levels) == 2
    assert len(scenario.manager.layers) == 1 and scenario.manager.layers[0].sparse
    assert scenario.steps[-1].op.verb == "enter_decode"


def test_of_fetches_only_what_a_failure_needs_stays() -> None:
    scenario = loaded(first(NoHits, fetches=Fetches.ALL).text)
    (layer,) = scenario.manager.layers
    assert layer.buffers[0].fetching == (1, 1, None)
    fetches = [step.op for step in scenario.steps if isinstance(step.op, ops.Fetch | ops.Replay)]
    assert len(fetches) <= 3  # two, or a captured one that is replayed twice
    assert all(len(numbers) == 1 for op in fetches for numbers in (op.select or {}).values())
    assert sum(len(op.select or {}) for op in fetches) == 2


@pytest.mark.parametrize(
    ("bug", "steps"), [("head_first", 9), ("double_room", 8), ("priority_ignored", 16), ("newest_first", 14)]
)
def test_scenarios_of_bugs_of_a_prefix_cache_are_short(bug: str, steps: int) -> None:
    system = with_bug(bug)
    for seed in range(40):
        found = try_lifecycle(seed, 60, Named(bug, system), REFERENCE, {}, Profile(allowed=frozenset())).found
        if found is not None:
            break
    assert found is not None
    short = loaded(shrink(found, Named(bug, system), REFERENCE, {}).text)
    assert len(short.steps) <= steps
    assert len(short.manager.layers) == 1
    assert not Able((system, REFERENCE.factory)).lacks(short.manager, *(step.op for step in short.steps))


def test_plainer_managers_are_managers() -> None:
    manager = ManagerConfig.model_validate(
        {
            "tokens_per_block": 2,
            "levels": [{"kind": "gpu", "slots": 2}, {"kind": "host", "slots": 2}, {"kind": "disk", "slots": 2}],
            "max_util_for_resume": 0.5,
            "layers": [
                {"name": "a", "buffers": [{"role": "key", "bytes": 16, "sparse": True}]},
                {"name": "b", "sliding_window": 3, "sink_tokens": 1, "buffers": [{"role": "key", "bytes": 16}]},
                {"name": "c", "kind": "ssm", "buffers": [{"role": "key", "bytes": 16}, {"role": "value", "bytes": 16}]},
            ],
        }
    )
    plainer = list(plainer_managers(manager))
    for one in plainer:
        assert ManagerConfig.model_validate(one.model_dump(mode="json")) == one
    assert len(plainer) == len({one.model_dump_json() for one in plainer}) == 10
    sparse = manager.model_copy(update={"levels": manager.levels[:2]})
    assert all(len(one.levels) == 2 for one in plainer_managers(sparse)), "a sparse buffer needs a host level (R1.4)"


def test_plainer_managers_agree_on_what_a_group_says_of_fetches() -> None:
    def buffer(**more: object) -> dict[str, object]:
        return {"role": "key", "bytes": 16, "sparse": True, **more}

    said = {"selected": 2, "reserve": 2, "unit": 2}
    manager = ManagerConfig.model_validate(
        {
            "tokens_per_block": 4,
            "levels": [{"kind": "gpu", "slots": 2}, {"kind": "host", "slots": 2}],
            "layers": [
                {"name": "a", "buffers": [buffer(**said)]},
                {"name": "b", "buffers": [buffer(**said)]},
                {"name": "c", "sliding_window": 3, "buffers": [buffer()]},
            ],
        }
    )
    plainer = list(plainer_managers(manager))
    mine = {one.layers[0].buffers[0].fetching for one in plainer if len(one.layers) == 3}
    assert {(None, None, None), (2, 2, None), (2, 1, 2), (1, 2, 2)} <= mine
    assert not any(one.layers[-1].sliding_window is None for one in plainer if len(one.layers) == 3)  # c would join a and b
    for one in plainer:
        assert ManagerConfig.model_validate(one.model_dump(mode="json")) == one


def test_a_fetch_selects_less() -> None:
    fetch = ops.Fetch.model_validate({"batch": "b", "layer": "a", "select": {"x": (0, 1), "y": (2,)}})
    replay = ops.Replay.model_validate({"graph": "g", "select": {"x": (0,)}})
    found = [dict(op.select or {}) for op, _ in map(tuple, plainer_operations([fetch, replay]))]  # type: ignore[attr-defined]
    assert [one for one in found if one != dict(fetch.select)] == [
        {"y": (2,)},
        {"x": (1,), "y": (2,)},
        {"x": (0,), "y": (2,)},
        {"x": (0, 1)},
    ]
    replays = [op.select for _, op in map(tuple, plainer_operations([fetch, replay])) if op != replay]  # type: ignore[attr-defined]
    assert replays == [None, {}]


def test_plainer_operations_leave_one_argument_out() -> None:
    operations = [
        ops.Create(request="a", priority=3),
        ops.Resume(request="a", stream="side", decode=True),
        ops.Create(request="b", priority=4),
    ]
    found = list(plainer_operations(operations))
    assert [ops.Create(request="a"), operations[1], ops.Create(request="b")] in found
    assert [operations[0], ops.Resume(request="a", decode=True), operations[2]] in found
    assert all(len(one) == 3 for one in found)
    assert not list(plainer_operations([ops.Create(request="a"), ops.CloseGate.model_validate({"stream": "side", "as": "g"})]))
