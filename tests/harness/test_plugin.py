"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.paths import PATHS

GOOD = """\
kvspec: 1
name: {name}
rules: [R3.6]
tags: [small]
manager: {{tokens_per_block: 4, levels: [{{kind: gpu, slots: 4}}], layers: [{{name: main, buffers: [{{role: key, bytes: 64}}]}}]}}
steps:
  - create: a
  - resume: a
  - resize: {{request: a, capacity: 8, history: 8}}
    expect: {{history: {{a: {history}}}}}
"""
INSTALLED = any(point.name == "kvspec" for point in entry_points(group="pytest11"))


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    plugin = [] if INSTALLED else ["-p", "kvspec.plugin"]
    systems = ["--kvspec-system", "kvref.system:Reference", "--kvspec-against", "kvref.system:Reference"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin]
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "160"}
    return subprocess.run(
        [*command, *(systems if "no:kvspec" not in args else []), *args],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=120,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkvspec_paths = here\n")
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "b.yaml").write_text(
            "---\n".join(GOOD.format(name=one, history=8) for one in ("second", "first", "first"))
        )
        (tmp_path / name / "other.yaml").write_text("services: [kvspec]\nnested: {kvspec: 1}\n")
    return tmp_path


def test_only_scenarios_below_the_configured_folders_one_item_each_sorted(folder: Path) -> None:
    result = run(folder, "--collect-only", "-q")
    assert result.stdout.splitlines()[:3] == ["here/b.yaml::first", "here/b.yaml::first (2)", "here/b.yaml::second"]
    assert "3 tests collected" in result.stdout
    assert "there" not in result.stdout


def test_they_pass_alone_and_on_several_workers(folder: Path) -> None:
    assert "3 passed" in run(folder).stdout
    assert "3 passed" in run(folder, "-n", "2").stdout


def test_tags_and_rules_are_keywords(folder: Path) -> None:
    assert "2 passed, 1 deselected" in run(folder, "-k", "small and first").stdout


def test_nothing_is_collected_without_folders_or_switched_off(folder: Path) -> None:
    off = (
        run(folder, "-o", "kvspec_paths="),
        run(folder, "-o", "kvspec_enabled=false"),
        *([run(folder, "-p", "no:kvspec")] if INSTALLED else []),
    )
    for result in off:
        assert "collected 0 items" in result.stdout


def test_a_failure_shows_lines_and_values_and_no_traceback(folder: Path) -> None:
    (folder / "here" / "a.yaml").write_text(GOOD.format(name="wrong", history=7))
    result = run(folder)
    assert "1 failed, 3 passed" in result.stdout
    for text in (
        "FAILED wrong",
        ">   10 |     expect: {history: {a: 7}}",
        "expected: 7",
        "reproduce: kvspec run here/a.yaml -k wrong",
    ):
        assert text in result.stdout
    for text in ("Traceback", "plugin.py", "replay.py", "ScenarioFailed("):
        assert text not in result.stdout


def test_a_wrong_file_is_a_collection_error_with_its_problems(folder: Path) -> None:
    (folder / "here" / "a.yaml").write_text(GOOD.format(name="wrong", history=7).replace("resume", "resum"))
    result = run(folder)
    assert result.returncode == 2
    assert "a.yaml:8:5: unknown verb 'resum'" in result.stdout
    assert "Traceback" not in result.stdout


def test_a_system_that_is_not_there_fails_the_items_without_a_traceback(folder: Path) -> None:
    result = run(folder, "--kvspec-system", "nobody")
    assert "3 failed" in result.stdout
    assert "no system is called 'nobody'" in result.stdout
    assert "Traceback" not in result.stdout
