"""The reference says why an operation is false and a match not longer: what was needed and what there was."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvref.step import initial, step
from kvref.why import InUse, NotNewest, Shortage, Shorter, Why
from kvspec import ops
from kvspec.config import Level
from kvspec.harness.systems import setup_for
from kvspec.language import load_file
from tests.kvref.driving import apply, reference, run

ROOT = Path(__file__).parents[2]
TWO = """
tokens_per_block: 4
levels: [{kind: gpu, slots: 4}, {kind: host, slots: 2}]
layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true}]}]
"""
DENSE = """
tokens_per_block: 4
levels: [{kind: gpu, slots: 4}]
layers: [{name: kv, buffers: [{role: key, bytes: 64}]}]
max_util_for_resume: 0.5
"""
NEAR = """
tokens_per_block: 4
levels: [{kind: gpu, slots: 8}, {kind: host, slots: 8}]
layers:
  - {name: main, buffers: [{role: key, bytes: 64, sparse: true}]}
  - {name: near, sliding_window: 8, buffers: [{role: key, bytes: 64}]}
"""


def test_slots_that_a_decode_entry_needs_and_that_there_are() -> None:
    system = reference(TWO)
    run(system, "create: a\nresume: a\nresize: {request: a, capacity: 16, history: 12}")
    outcome = apply(system, "enter_decode: a")
    assert (outcome.value, outcome.error) == (False, None)
    assert outcome.message == "3 host slots needed for main, 2 there: 2 free, 0 evictable"
    assert system.state.trace.why == (Why("a", Shortage(Level.HOST, "main", 3, 2, 0, 0)),)
    assert run(system, "resize: {request: a, capacity: 16}").message == "", "what is true needs no reason"
    assert system.state.trace.why == ()


def test_pages_that_can_leave_and_held_ones_that_cannot() -> None:
    system = reference(DENSE.replace("max_util_for_resume: 0.5", ""))
    run(system, "create: a\nresume: a\nresize: {request: a, capacity: 8}\nsuspend: a")
    run(system, "seed_prefix: {tokens: [1, 2, 3, 4], level: gpu}\ncreate: b\nresume: b")
    outcome = apply(system, "resize: {request: b, capacity: 16}")
    assert outcome.message == "4 gpu slots needed for kv, 2 there: 1 free, 1 evictable; 2 held with nowhere to go"


def test_a_gpu_that_is_too_full_to_resume() -> None:
    system = reference(DENSE)
    run(system, "create: a\nresume: a\nresize: {request: a, capacity: 12}\ncreate: b")
    assert apply(system, "resume: b").message == "3 of 4 gpu slots are in use (0.75), above max_util_for_resume 0.5"
    assert system.state.trace.why == (Why("b", InUse(3, 4, 0.5)),)


@pytest.mark.parametrize(
    ("manager", "steps", "create", "said", "reason"),
    [
        (
            NEAR,
            "seed_prefix: {tokens: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], level: gpu, groups: [main]}\n"
            "seed_prefix: {tokens: [0, 1, 2, 3, 4, 5, 6, 7], level: gpu, groups: [near]}",
            "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]",
            "8 of 12 tokens matched, though the tree has 12: near lacks block 2",
            Shorter(8, 12, 12, "near", 2),
        ),
        (
            NEAR,
            "seed_prefix: {tokens: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], level: gpu, groups: [main]}\n"
            "seed_prefix: {tokens: [0, 1, 2, 3, 4, 5, 6, 7], level: gpu, groups: [near]}",
            "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
            "8 of 10 tokens matched, though the tree has 10: near lacks block 2",
            Shorter(8, 10, 10, "near", 2),
        ),
        (
            TWO,
            "seed_prefix: {tokens: [0, 1, 2, 3], level: gpu}",
            "[0, 1, 2, 3, 9]",
            "4 of 5 tokens matched: the tree does not go on with token 9 there",
            Shorter(4, 5, 4, token=9),
        ),
        (
            "tokens_per_block: 4\nlevels: [{kind: gpu, slots: 4}]\n"
            "layers: [{name: kv, buffers: [{role: key, bytes: 64}]}, {name: state, kind: ssm, buffers: [{role: s, bytes: 64}]}]",
            "seed_prefix: {tokens: [0, 1, 2, 3], level: gpu}",
            "[0, 1]",
            "0 of 2 tokens matched, though the tree has 2: they end inside block 0, and a state of state is of whole blocks",
            Shorter(0, 2, 2, "state", 0, inside=True),
        ),
    ],
)
def test_a_match_says_what_a_longer_one_lacks(manager: str, steps: str, create: str, said: str, reason: Shorter) -> None:
    system = reference(manager)
    run(system, steps)
    outcome = apply(system, f"create: {{request: r, tokens: {create}}}")
    assert (outcome.value, outcome.message) == (reason.matched, said)
    assert system.state.trace.why == (Why("r", reason),)


def test_a_version_that_is_not_the_newest() -> None:
    system = reference(TWO)
    run(system, "create: a\nresume: a\nsnapshot: {request: a, group: main, as: s}\nresize: {request: a, capacity: 4}")
    assert apply(system, "acknowledge: {request: a, version: s}").message.startswith(
        "the version in snapshot s is not the newest"
    )
    assert system.state.trace.why == (Why("a", NotNewest("s")),)


def test_parts_of_a_call_name_their_requests() -> None:
    system = reference(TWO)
    run(system, "create: a\ncreate: b\nresume: a\nresume: b\nbatch: {name: rows, rows: 2, blocks: 4}")
    run(system, "add: {batch: rows, request: a}\nadd: {batch: rows, request: b}")
    outcome = apply(system, "resize_batch: {batch: rows, capacities: [12, 8]}")
    assert outcome.value == (True, False)
    assert outcome.message == "b: 2 gpu slots needed for main, 1 there: 1 free, 0 evictable"
    outcome = apply(system, "iterate: {batch: rows, requests: [{request: b, capacity: 12}, {request: a, capacity: 12}]}")
    assert outcome.value == {"b": "waiting", "a": "ran"}
    assert outcome.message == "b: 3 gpu slots needed for main, 1 there: 1 free, 0 evictable"


def test_the_reason_is_a_value_and_changes_nothing() -> None:
    system = reference(TWO)
    run(system, "create: a\nresume: a\nresize: {request: a, capacity: 16, history: 12}")
    before = system.state
    op = ops.EnterDecode(request="a")
    first, second = step(before, op), step(before, op)
    assert first == second
    assert system.state is before
    same = {"pages", "nodes", "requests", "free", "counters", "streams", "batches"}
    assert all(getattr(first[0], name) == getattr(before, name) for name in same)


def test_every_false_and_every_short_match_of_the_suite_has_a_reason() -> None:
    said = 0
    for path in sorted((ROOT / "scenarios").rglob("*.yaml")):
        for scenario in load_file(path):
            state = initial(setup_for(scenario, {}))
            for one in scenario.steps:
                state, outcome = step(state, one.op)
                value = outcome.value
                false = value is False and not isinstance(one.op, ops.IsSparse)
                false = false or (isinstance(one.op, ops.ResizeBatch) and value is not None and False in value)  # type: ignore[operator]
                false = false or (isinstance(value, dict) and "waiting" in value.values())
                short = isinstance(one.op, ops.Create) and outcome.error is None and value != len(one.op.tokens or ())
                if outcome.error is None:
                    assert bool(outcome.message) == (false or short), f"{path.name} step {one.number}: {outcome}"
                    said += bool(outcome.message)
    assert said > 100
