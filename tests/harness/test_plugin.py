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
    systems = ["--kvspec-system", "kvref.system:Reference", "--kvspec-against", "kvref"]
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
        "reproduce: kvspec run here/a.yaml:1 --system kvref.system:Reference\n",
        "kvspec: where each begins to differ",
        "here/a.yaml:9 step 2, resize: history of a: expected 7, kvref 8, kvref.system:Reference 8\n",
        "kvspec: kvref.system:Reference against kvref, device auto",
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


def plain_pytest(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """As in a project where kvspec is installed and nothing is said on the command line."""
    plugin = [] if INSTALLED else ["-p", "kvspec.plugin"]
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "80", "PYTEST_XDIST_AUTO_NUM_WORKERS": "2"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120, check=False)


MANAGER = """\
from kvref.system import Reference
from kvspec.ops import Resize
from kvspec.system import Outcome


class Mine(Reference):
    def apply(self, op):
        outcome = super().apply(op)
        return Outcome(False) if isinstance(op, Resize) and op.capacity == 12 else outcome
"""


def test_another_project_needs_an_ini_file_and_no_conftest(folder: Path) -> None:
    """Its system is imported from the rootdir, wherever pytest is started, on several workers too."""
    (folder / "pytest.ini").write_text("[pytest]\nkvspec_paths = here\nkvspec_system = my_manager:Mine\nkvspec_against = kvref\n")
    (folder / "my_manager.py").write_text(MANAGER)
    (folder / "here" / "a.yaml").write_text(GOOD.format(name="red", history=8).replace("capacity: 8", "capacity: 12"))
    assert not list(folder.rglob("conftest.py"))
    for result in (plain_pytest(folder, "-n", "auto"), plain_pytest(folder / "here", "-n", "auto"), plain_pytest(folder)):
        assert result.returncode == 1, result.stdout
        assert "kvspec: my_manager:Mine against kvref, device auto" in result.stdout
        assert "1 failed, 3 passed" in result.stdout
        short = result.stdout.partition("where each begins to differ")[2]
        assert "a.yaml:9 step 2, resize: outcome of resize: kvref returns true, my_manager:Mine returns false" in short
    assert "3 passed" in plain_pytest(folder, "--kvspec-system", "kvref.system:Reference", "-k", "not red").stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_warning_where_nothing_is_collected(folder: Path, workers: tuple[str, ...]) -> None:
    def warned(ini: str, *args: str) -> str:
        (folder / "pytest.ini").write_text(f"[pytest]\n{ini}")
        said = plain_pytest(folder, *workers, *args).stdout
        return " ".join(said.split()) if "PytestConfigWarning: kvspec_paths" in " ".join(said.split()) else ""

    (folder / "tests").mkdir()
    (folder / "tests" / "test_one.py").write_text("def test_one():\n    pass\n")
    (folder / "empty").mkdir()
    assert "there is no folder" in warned("kvspec_paths = gone\n")
    assert "says kvspec:" in warned("kvspec_paths = empty\n")
    assert "add it to testpaths" in warned("kvspec_paths = here\ntestpaths = tests\n")
    assert not warned("kvspec_paths = here\n")
    assert not warned("kvspec_paths = here\n", "tests")
    assert not warned("kvspec_paths = here\n", "-k", "nothing")


def test_a_scenario_that_hangs_fails_at_its_step(folder: Path) -> None:
    result = run(folder, "--kvspec-timeout", "0.5", "--kvspec-system", "tests.audit.mortal:Hangs", "-k", "second")
    assert "1 failed" in result.stdout
    for text in ("no answer in resume", "no answer within 0.5 s", "mortal.py:", "in wait_for_ever"):
        assert text in result.stdout


def test_a_system_against_itself_is_refused(folder: Path) -> None:
    result = run(folder, "--kvspec-system", "kvref")
    assert result.returncode == 4
    assert "kvspec: kvref against itself always agrees: name two systems" in result.stderr
