"""``kvspec mutants``: what it says of a break that is noticed, of one that survives, and of what cannot be tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvspec.audit.mutants import MutantPlan, find_mutants, try_mutant
from kvspec.cli.main import app
from kvspec.cli.mutants import OPTIONS
from kvspec.language import load_file

SMALL = """
kvspec: 1
name: a row is published
rules: [R8.2]
manager:
  tokens_per_block: 2
  levels: [{kind: gpu, slots: 2}]
  layers: [{name: kv, buffers: [{role: key, bytes: 16}]}]
steps:
  - create: a
  - batch: {name: rows, rows: 2, blocks: 1}
  - add: {batch: rows, request: a}
    returns: 0
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def _run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["mutants", *arguments, "--jobs", "1"])
    return result.exit_code, result.output


def test_the_command_says_what_noticed_a_break(small: Path) -> None:
    code, text = _run(str(small), "--only", "last free row")
    assert code == 0
    assert "a row is published" in text and "2: add" in text and "expectation" in text
    assert "1 of 1 breaks noticed: 1 by outcome or expectation" in text


def test_a_break_that_survives_is_a_failure(small: Path, tmp_path: Path) -> None:
    code, text = _run(str(small), "--only", "the index of other owners", "--write", str(tmp_path / "table.md"))
    assert code == 1
    assert "survives: R4.6 the index of other owners stays: no scenario notices" in text
    assert "| - | - | - | survives |" in (tmp_path / "table.md").read_text()


def test_a_suite_that_fails_unbroken_is_refused(small: Path) -> None:
    small.write_text(SMALL.replace("returns: 0", "returns: 1"))
    code, text = _run(str(small), "--only", "last free row")
    assert code == 2
    assert "1 scenarios fail with nothing broken, the first is 'a row is published'" in text


def test_a_name_that_no_break_has(small: Path) -> None:
    code, text = _run(str(small), "--only", "no such break")
    assert code == 2
    assert "no break has 'no such break' in its name" in text


def test_a_system_without_breaks(small: Path) -> None:
    code, text = _run(str(small), "--system", "kvref")
    assert code == 2
    assert "system 'kvref' announces no breaks" in text


def test_a_fence_must_be_noticed_by_the_order(small: Path) -> None:
    """A dropped fence that only an expectation shows has not been found."""
    guard = next(mutant for mutant in find_mutants("kvgpu") if mutant.name == "R8.2 the last free row is taken")

    class Dressed:
        name, rule, kind, options = "a guard in the dress of a fence", "R8.2", "fence", guard.options
        broken = staticmethod(guard.broken)

    found = try_mutant(Dressed(), load_file(small), MutantPlan("kvgpu", "kvref", OPTIONS))
    assert [kill.how.value for kill in found.kills] == ["outcome or expectation"]
    assert not found.killed
