"""Expectations that could not fail: the suite has none, and what could not fail is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvspec.audit.vacuity import Audited, audit, changes
from kvspec.cli.main import app
from kvspec.harness import expectations
from kvspec.harness.checks import Check, check
from kvspec.harness.systems import find_system
from kvspec.language import load_file
from kvspec.suite import scenario_files, suite_path

FILES = scenario_files([suite_path()])

HEAD = """
kvspec: 1
name: to be audited
rules: [R3.6]
manager:
  tokens_per_block: 2
  levels: [{kind: gpu, slots: 4}, {kind: host, slots: 4}]
  layers: [{name: kv, buffers: [{role: key, bytes: 16, sparse: true}]}]
steps:
  - create: a
    returns: 0
  - resume: a
  - resize: {request: a, capacity: 4, history: 2}
    returns: true
    expect: {free: {gpu: 2}, levels: {a: [gpu, gpu]}, owners: {a.kv.0: [a]}, copy_calls: {offload: 0}}
  - resize: {request: a, history: 1}
    raises: invalid_argument
  - enter_decode: a
    expect: {levels: {a: [host, gpu]}, phase: {a: decode}, done: ["page:a.0"], version: {a: newer}, events: []}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "audited.yaml"
    file.write_text(HEAD)
    return file


def _audit(path: Path) -> Audited:
    (scenario,) = load_file(path)
    return audit(scenario, find_system("kvref"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_every_expectation_of_the_suite_could_fail(file: Path) -> None:
    for scenario in load_file(file):
        audited = audit(scenario, find_system("kvref"))
        assert not audited.wrong, scenario.name
        assert not audited.survivors, "\n".join(map(str, audited.survivors))


def test_every_value_is_changed(path: Path) -> None:
    (scenario,) = load_file(path)
    paths = {".".join(change.path) for step in scenario.steps for change in changes(step)}
    assert {"returns", "raises", "free.gpu", "levels.a.0", "levels.a.1", "owners.a.kv.0", "copy_calls.offload"} <= paths
    assert {"phase.a", "done.page:a.0", "version.a", "events"} <= paths
    audited = _audit(path)
    assert (audited.survivors, audited.wrong) == ((), "")
    assert audited.changes == sum(1 for step in scenario.steps for _ in changes(step))


def test_an_expectation_that_cannot_fail_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def always(e: Any, wanted: Any) -> Iterator[Check]:
        yield check(("free", "gpu"), "free slots", wanted, wanted)

    monkeypatch.setitem(expectations.EVALUATORS, "free", always)
    (survivor,) = _audit(path).survivors
    assert (survivor.position.line, survivor.step, survivor.path) == (15, 2, ("free", "gpu"))
    assert str(survivor).endswith("step 2, free.gpu: 2 holds, and 3 does too")
    result = CliRunner().invoke(app, ["vacuity", str(path)])
    assert result.exit_code == 1
    assert "audited.yaml:15:" in result.output
    assert "1 held all the same" in result.output


def test_a_returned_value_that_is_never_looked_at_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvspec.audit.vacuity.compare_outcomes", lambda comparison: iter(()))
    assert {survivor.path for survivor in _audit(path).survivors} == {("returns",), ("raises",)}


def test_a_scenario_that_fails_as_it_is_cannot_be_audited(path: Path) -> None:
    path.write_text(HEAD.replace("free: {gpu: 2}", "free: {gpu: 3}"))
    assert _audit(path).wrong == "step 2 fails as it is: kvspec run shows why"
    result = CliRunner().invoke(app, ["vacuity", str(path)])
    assert result.exit_code == 1
    assert "to be audited: step 2 fails as it is" in result.output


def test_the_command(path: Path) -> None:
    result = CliRunner().invoke(app, ["vacuity", str(path)])
    assert result.exit_code == 0
    assert "expectations changed in 1 scenarios: none held all the same" in result.output


def test_scenarios_that_notice_no_break_are_listed(path: Path) -> None:
    path.write_text(HEAD.split("  - create: a")[0] + "  - is_sparse: {layer: kv, role: key}\n    returns: true\n")
    result = CliRunner().invoke(app, ["vacuity", str(path), "--scenarios"])
    assert result.exit_code == 0, "a list is no failure"
    assert "notices no break: to be audited" in result.output
    assert "0 of 1 scenarios notice one of" in result.output
