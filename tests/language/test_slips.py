"""Slips in the indentation are told at their line in any scenario of the suite, and what is right is left alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kvspec.language.certain import check_values
from kvspec.language.loader import read, read_bytes
from kvspec.suite import scenario_files, suite_path

FILES = scenario_files([suite_path()])
RESUMES = [path for path in FILES if "\n  - resume: " in path.read_text().replace("- resume: {", "")]
SAMPLE = random.Random(17).sample(FILES, 12)


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
@pytest.mark.parametrize("change", [1, -1])
def test_one_space_before_a_dash(path: Path, change: int) -> None:
    """Of a step that is not the first or the last of its scenario."""
    lines = path.read_text().split("\n")
    dashes = [number for number, line in enumerate(lines) if line.startswith("  - ") and "layers" not in lines[number - 1]]
    number = dashes[len(dashes) // 2]
    lines[number] = f" {lines[number]}" if change > 0 else lines[number][1:]
    (problem,) = read_bytes(path, "\n".join(lines).encode()).problems
    assert problem.position.line == number + 1, problem
    assert problem.expected is not None and problem.expected.startswith("2, as in line "), problem


@pytest.mark.parametrize("path", random.Random(17).sample(RESUMES, 12), ids=lambda path: path.stem)
def test_a_verb_without_its_colon(path: Path) -> None:
    lines = path.read_text().split("\n")
    number = next(number for number, line in enumerate(lines) if line.startswith("  - resume: ") and "{" not in line)
    lines[number] = lines[number].replace("resume: ", "resume ")
    problem = read_bytes(path, "\n".join(lines).encode()).problems[0]
    assert problem.position.line == number + 1, problem
    assert problem.message == "no colon after 'resume'"


def test_nothing_in_the_suite_is_certainly_wrong() -> None:
    assert all(read(path).problems == () for path in FILES[::5])


def test_what_is_meant_to_be_refused_is_not_judged(tmp_path: Path) -> None:
    text = """\
kvspec: 1
name: refused by the systems, not by the file
manager: {tokens_per_block: 4, levels: [{kind: gpu, slots: 4}], layers: [{name: main, buffers: [{role: key, bytes: 64}]}]}
steps:
  - create: a
  - resume: a
  - resize: {request: a, capacity: 4, history: 8}
    raises: invalid_argument
  - resize: {request: a, capacity: -1}
    raises: invalid_argument
  - batch: {name: b, rows: 0, blocks: 1}
    raises: invalid_argument
  - resize: {request: a, capacity: 40}
    expect: {levels: {a: []}}
    note: without returns it may have been refused
"""
    path = tmp_path / "x.yaml"
    path.write_text(text)
    loaded = read(path)
    assert loaded.problems == ()
    assert list(check_values(path, loaded.scenarios[0].manager, [])) == []
    path.write_text(text.replace("    expect: {levels: {a: []}}\n", "    returns: true\n    expect: {levels: {a: []}}\n"))
    (problem,) = read(path).problems
    assert problem.text == "levels of a has 0 entries: expected 10, one for each block of 40 tokens"
