"""Gate orders: the suite ends alike in every order, and what does not is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvspec.audit.gates import MOST, completed, has_gates, orders, permute
from kvspec.cli.main import app
from kvspec.harness.difference import Verdict
from kvspec.harness.replay import Named
from kvspec.harness.select import scenario_id
from kvspec.harness.systems import capabilities, find_system
from kvspec.language import load_file, load_paths
from kvspec.observation import Observation
from kvspec.ops import OpenGate, Operation
from kvspec.payload import Content
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files, suite_path
from kvspec.system import Outcome, Setup, System

HEAD = """
kvspec: 1
name: gates
rules: [R7.1]
manager:
  tokens_per_block: 2
  levels: [{kind: gpu, slots: 8}, {kind: host, slots: 8}]
  layers: [{name: kv, buffers: [{role: key, bytes: 16, sparse: true}]}]
streams: [s1, s2]
steps:
"""
TWO = """
  - create: a
  - resume: {request: a, stream: s1}
  - resize: {request: a, capacity: 2, history: 2}
  - batch: {name: rows, rows: 1, blocks: 1}
  - add: {batch: rows, request: a}
  - gate: {stream: s1, as: g1}
  - gate: {stream: s2, as: g2}
  - enter_decode: a
  - publish: {batch: rows, stream: s2}
  - open: g1
    expect: {done: ["page:a.0"], pending: ["publish:rows"], payload: {a.0: ok}}
  - open: g2
    expect: {done: ["publish:rows"], table: {rows: [[a.0]]}}
"""

FETCHING = """
  - create: a
  - resume: {request: a, decode: true}
  - resize: {request: a, capacity: 4}
  - resize: {request: a, history: 4}
  - batch: {name: rows, rows: 1, blocks: 2}
  - add: {batch: rows, request: a}
  - publish: rows
  - gate: {stream: s1, as: g1}
  - gate: {stream: s2, as: g2}
  - fetch: {batch: rows, layer: kv, select: {a: [0]}, as: now}
    expect: {fetched: {now: {a: [miss]}}, resident: {a.kv: [0]}}
  - record_read: {batch: rows, stream: s1}
  - fetch: {batch: rows, layer: kv, select: {a: [1]}, stream: s2, as: later}
    expect: {pending: ["fetch:later"]}
  - open: g1
  - open: g2
    expect: {fetched: {later: {a: [miss]}}, resident: {a.kv: [1, 0]}}
"""


@cache
def _suite() -> tuple[Scenario, ...]:
    scenarios, problems = load_paths(scenario_files([suite_path()]))
    assert not problems
    return tuple(scenario for scenario in scenarios if has_gates(scenario))


def _named(name: str) -> Named:
    return Named(name, find_system(name))


def _scenario(folder: Path, steps: str, head: str = HEAD) -> Scenario:
    path = folder / "gates.yaml"
    path.write_text(head + steps)
    return load_file(path)[0]


def _labels(scenario: Scenario) -> list[tuple[tuple[str, ...], bool]]:
    return [(order.gates, order.held) for order in orders(completed(scenario))]


@pytest.mark.parametrize("scenario", _suite(), ids=scenario_id)
def test_every_order_of_opening_gates_ends_alike(scenario: Scenario) -> None:
    found = permute(scenario, _named("kvgpu"), _named("kvref"), {"device": "sim"})
    failure = found.result.failure if found.result is not None else None
    said = [*found.differences, *([] if failure is None else [f"{d.subject}: {d.detail}" for d in failure.differences])]
    assert found.verdict is Verdict.PASSED, f"gates opened in the order {found.order}: {said}"
    # Every scenario is replayed as it is written, and once more with its gates held to the end.
    assert found.gates >= 1
    assert found.orders >= min(MOST, math.factorial(found.gates)) + (found.gates == 1)


def test_two_gates_open_in_four_more_ways(tmp_path: Path) -> None:
    # Both orders with everything held to the end, and the other one in place.
    assert _labels(_scenario(tmp_path, TWO)) == [(("g1", "g2"), True), (("g2", "g1"), True), (("g2", "g1"), False)]


def test_a_gate_is_not_opened_before_it_is_closed(tmp_path: Path) -> None:
    steps = """
  - gate: {stream: s1, as: g1}
  - open: g1
  - gate: {stream: s2, as: g2}
  - open: g2
"""
    assert _labels(_scenario(tmp_path, steps)) == [(("g1", "g2"), True), (("g2", "g1"), True)]


def test_a_label_used_twice_stands_for_two_gates(tmp_path: Path) -> None:
    steps = """
  - gate: {stream: s1, as: g}
  - open: g
  - gate: {stream: s1, as: g}
  - open: g
"""
    assert _labels(_scenario(tmp_path, steps)) == [(("g", "g again 1"), True), (("g again 1", "g"), True)]


def test_no_gate_is_held_beyond_a_sync_that_waits_for_it(tmp_path: Path) -> None:
    steps = """
  - gate: {stream: s1, as: g1}
  - gate: {stream: s2, as: g2}
  - sync: s1
    raises: logic_error
  - open: g1
  - open: g2
  - sync: s1
  - gate: {stream: s2, as: g3}
"""
    scenario = completed(_scenario(tmp_path, steps))
    found = list(orders(scenario))
    assert [order.gates for order in found if order.held] == [("g1", "g2", "g3"), ("g2", "g1", "g3")]
    for order in found:
        verbs = [step.op.verb for step in order.scenario.steps]
        assert verbs == ["gate", "gate", "open", "open", "sync", "gate", "open"]
        assert [step.number for step in order.scenario.steps] == list(range(len(verbs)))
    assert permute(_scenario(tmp_path, steps), _named("kvref"), _named("kvref")).verdict is Verdict.PASSED


def test_orders_of_many_gates_are_a_sample_the_same_in_every_run(tmp_path: Path) -> None:
    gates = [f"g{n}" for n in range(6)]
    steps = "".join(f"  - gate: {{stream: s1, as: {g}}}\n" for g in gates) + "".join(f"  - open: {g}\n" for g in gates)
    scenario = _scenario(tmp_path, steps)
    held = [labels for labels, is_held in _labels(scenario) if is_held]
    assert len(held) == MOST
    assert held[0] == tuple(gates)
    assert _labels(scenario) == _labels(scenario)


class Tampered:
    """The reference, except that what it shows is changed once g2 has been opened before g1."""

    capabilities = capabilities(find_system("kvref"))

    def __init__(self, setup: Setup, change: Callable[[Observation], Observation]) -> None:
        self.system: System = find_system("kvref")(setup)
        self.change = change
        self.opened: list[str] = []

    def apply(self, op: Operation) -> Outcome:
        if isinstance(op, OpenGate):
            self.opened.append(op.as_)
        return self.system.apply(op)

    def observe(self) -> Observation:
        seen = self.system.observe()
        return self.change(seen) if self.opened == ["g2", "g1"] else seen

    def close(self) -> None:
        self.system.close()


def _tampered(change: Callable[[Observation], Observation]) -> Named:
    def factory(setup: Setup) -> System:
        return Tampered(setup, change)

    factory.capabilities = Tampered.capabilities  # type: ignore[attr-defined]
    return Named("tampered", factory)


def _other_payload(seen: Observation) -> Observation:
    return replace(seen, pages=tuple(replace(page, payload=Content("late", "kv", 0)) for page in seen.pages))


def _other_count(seen: Observation) -> Observation:
    view = seen.batches["rows"]
    tables = {group: replace(words, num_blocks=(0,)) for group, words in view.device.items()}
    return replace(seen, batches={"rows": replace(view, device=tables, published=tables)})


def test_an_end_that_depends_on_the_order_is_found_though_both_systems_agree(tmp_path: Path) -> None:
    found = permute(_scenario(tmp_path, TWO), _tampered(_other_payload), _tampered(_other_payload))
    assert found.verdict is Verdict.FAILED
    assert found.result is None
    assert found.order is not None and found.order.gates == ("g2", "g1")
    assert [text for text in found.differences if "payload of a.kv.0" in text and "what late wrote" in text]


def _other_found(seen: Observation) -> Observation:
    return replace(seen, fetches={label: replace(view, found=(("hit",),)) for label, view in seen.fetches.items()})


def test_what_fetches_came_to_does_not_depend_on_the_order(tmp_path: Path) -> None:
    scenario = _scenario(tmp_path, FETCHING, HEAD.replace("sparse: true", "sparse: true, selected: 1, reserve: 2"))
    found = permute(scenario, _named("kvgpu"), _named("kvref"), {"device": "sim"})
    assert (found.verdict, found.orders) == (Verdict.PASSED, 4)
    found = permute(scenario, _tampered(_other_found), _tampered(_other_found))
    assert found.verdict is Verdict.FAILED and found.result is None
    assert "tampered: fetch later: (('a', ('miss',)),), then (('a', ('hit',)),)" in found.differences


def test_a_divergence_in_one_order_alone_is_found(tmp_path: Path) -> None:
    found = permute(_scenario(tmp_path, TWO), _tampered(_other_count), _named("kvref"))
    assert found.verdict is Verdict.FAILED
    assert found.order is not None and found.order.gates == ("g2", "g1")
    assert found.result is not None and found.result.failure is not None


def test_systems_that_hold_are_not_reported(tmp_path: Path) -> None:
    found = permute(_scenario(tmp_path, TWO), _tampered(lambda seen: seen), _named("kvref"))
    assert (found.verdict, found.gates, found.orders) == (Verdict.PASSED, 2, 4)


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    _scenario(tmp_path, TWO)
    result = CliRunner().invoke(app, ["gates", str(tmp_path), "--system", "kvref"])
    assert result.exit_code == 0
    assert "1 scenario with gates, 4 orders, 0 failed" in result.output


def test_the_command_fails_when_an_expectation_does(tmp_path: Path) -> None:
    _scenario(tmp_path, TWO.replace("[[a.0]]", "[[-]]"))
    result = CliRunner().invoke(app, ["gates", str(tmp_path), "--system", "kvref"])
    assert result.exit_code == 1
    assert "gates opened in the order g1, g2" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--system", "kvreff"], "Did you mean 'kvref'"),
        (["-k", "nothing_like_this"], "no scenario closes a gate"),
        (["-k", "("], "-k"),
        (["--schedule", "seed=x"], "expected fifo, adversarial or seed=N"),
    ],
)
def test_the_command_refuses_wrong_usage(tmp_path: Path, arguments: list[str], said: str) -> None:
    _scenario(tmp_path, TWO)
    result = CliRunner().invoke(app, ["gates", str(tmp_path), *arguments])
    assert result.exit_code == 2
    assert said in result.output


def test_the_command_refuses_a_wrong_file(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(HEAD + "  - opn: g1\n")
    result = CliRunner().invoke(app, ["gates", str(tmp_path)])
    assert result.exit_code == 2
    assert "wrong.yaml:11" in result.output
