"""``kvspec run``, as a user types it: exits, output, selection, processes, JUnit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console
from rich.text import Text

from kvref.system import Reference
from kvspec.cli.listing import print_results
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system
from kvspec.language import load_file
from kvspec.ops import Operation, Resize
from kvspec.system import Outcome, Setup
from tests.paths import PATHS, ROOT

RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
REF = "kvref.system:Reference"
GOOD = """\
kvspec: 1
name: {name}
rules: [R3.1, R3.6]
tags: [{tag}]
manager: {{tokens_per_block: 4, levels: [{{kind: gpu, slots: 4}}], layers: [{{name: main, buffers: [{{role: key, bytes: 64}}]}}]}}
steps:
  - create: a
  - resume: a
  - resize: {{request: a, capacity: 8, history: 8}}
    expect: {{history: {{a: {history}}}}}
"""


def kvspec(*args: str | Path, against: str = "kvref", system: str = REF) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "140"}
    command = [sys.executable, "-c", RUN, "run", *map(str, args), "--system", system, "--against", against]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.yaml").write_text(GOOD.format(name="the first", tag="small", history=8))
    (tmp_path / "two.yaml").write_text(GOOD.format(name="not the first and not the last", tag="large", history=7))
    return tmp_path


def test_all_pass(folder: Path) -> None:
    result = kvspec(folder / "one.yaml")
    assert (result.returncode, result.stderr) == (0, "")
    assert "1 passed, 0 failed, 0 skipped of 1 scenarios, 3 steps" in result.stdout
    assert "1 of 1 scenarios were not checked on a GPU" in result.stdout


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_however_narrow_the_result_is_there_and_failures_come_last(folder: Path, columns: int) -> None:
    (folder / "a_file_whose_name_is_rather_long_for_a_column.yaml").write_text(GOOD.format(name="w" * 200, tag="x", history=8))
    console = Console(file=StringIO(), width=columns, highlight=False)
    named = Named(REF, find_system(REF))
    results = [replay(scenario, named, named) for path in sorted(folder.iterdir()) for scenario in load_file(path)]
    print_results(console, results, {2: Text("the report")}, verbose=True)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    rows = [line for line in lines if line.endswith("ms")]
    assert [line.split()[-3] for line in rows] == ["passed", "passed", "failed"]
    assert all(len(line) <= columns for line in rows)
    assert f"{folder / 'a_file_whose_name_is_rather_long_for_a_column.yaml'}  1 passed" in lines, "files are there in full"
    assert lines[-2:] == ["the report", ""]


def test_a_failure_exits_1_and_shows_line_values_and_the_command_that_repeats_it(folder: Path) -> None:
    result = kvspec(folder)
    assert result.returncode == 1
    for text in (
        "FAILED not the first and not the last",
        f"{folder / 'two.yaml'}:9  step 2: resize",
        ">   10 |     expect: {history: {a: 7}}",
        "expected history of a (line 10)",
        "expected: 7",
        "1 passed, 1 failed, 0 skipped of 2 scenarios",
    ):
        assert text in result.stdout
    command = next(line for line in result.stdout.splitlines() if line.startswith("reproduce: "))
    assert command == f"reproduce: kvspec run {folder / 'two.yaml'}:1 --system {REF}"
    assert "0 passed, 1 failed, 0 skipped of 1 scenarios" in kvspec(f"{folder / 'two.yaml'}:1").stdout
    # The name has 'and' and 'not' in it, and still chooses that scenario alone.
    again = kvspec(folder, "-k", "not the first and not the last")
    assert "0 passed, 1 failed, 0 skipped of 1 scenarios" in again.stdout


@pytest.mark.parametrize(
    ("expression", "passed", "failed"),
    [("small", 1, 0), ("large or small", 1, 1), ("R3 and not large", 1, 0), ("R3.6 and two", 0, 1), ("'the first'", 1, 1)],
)
def test_an_expression_chooses(folder: Path, expression: str, passed: int, failed: int) -> None:
    result = kvspec(folder, "-k", expression)
    assert f"{passed} passed, {failed} failed, 0 skipped" in result.stdout


def test_the_result_does_not_depend_on_the_number_of_processes(folder: Path) -> None:
    def rows(jobs: str) -> list[list[str]]:
        lines = kvspec(folder, "-v", "--jobs", jobs).stdout.splitlines()
        return [line.split()[:-2] for line in lines if line.startswith("  ") and line.endswith("ms")]

    assert len(rows("1")) == 2
    assert rows("1") == rows("2")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["-k", "nothing_like_it"], "nothing to run: -k 'nothing_like_it' matches none of 2 scenarios"),
        (["-k", "small and"], "-k 'small and': ends where a word was expected"),
        (["-k", "(small"], "a closing parenthesis is missing"),
        (["-k", "small large"], "'large' at column 7 was not expected"),
        (["--schedule", "random"], "--schedule random: expected fifo, adversarial or seed=N"),
        (["--device", "sim", "--require-cuda"], "contradict each other"),
        (["--device", "tpu"], "tpu"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_wrong_usage_exits_2_and_says_why(folder: Path, args: list[str], says: str) -> None:
    result = kvspec(folder, *args)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_file_exits_2_and_nothing_is_run(folder: Path) -> None:
    (folder / "three.yaml").write_text(GOOD.format(name="wrong", tag="x", history=8).replace("resume", "resum"))
    result = kvspec(folder)
    assert result.returncode == 2
    assert f"{folder / 'three.yaml'}:8:5: unknown verb 'resum'" in result.stderr
    assert "1 file is wrong: nothing was run" in result.stderr
    assert result.stdout == ""


def test_nothing_to_run_is_no_pass(tmp_path: Path) -> None:
    result = kvspec(tmp_path)
    assert result.returncode == 2
    assert "nothing to run: no scenario in" in result.stderr


def test_what_a_device_cannot_go_through_is_skipped_with_the_step_and_the_reason() -> None:
    result = kvspec(ROOT / "scenarios/ssm", system="tests.audit.mortal:Limited")
    assert result.returncode == 0
    said = " ".join(result.stdout.split())
    assert "from step 5, create, on: five operations are all it can do" in said
    assert re.search(r"skipped \d+ more that the device could not go through; -v lists them", said)
    assert re.search(r"[1-9]\d* passed, 0 failed, [1-9]\d* skipped", said)


def test_an_output_never_overwrites_a_scenario_nor_the_other_output(folder: Path) -> None:
    one = folder / "one.yaml"
    text = one.read_text()
    for args, said in (
        (("--html", one), f"--html {one} would overwrite {one}, which is run: name another file"),
        (("--junit", folder / "x", "--html", folder / "x"), "would overwrite what --junit writes"),
        (("--junit", folder), "cannot be written: it is a folder"),
        (("--html", folder / "none" / "x.html"), "cannot be written: there is no folder"),
    ):
        result = kvspec(one, *args)
        assert (result.returncode, result.stdout) == (2, "")
        assert said in result.stderr
    assert one.read_text() == text and not (folder / "x").exists()


def test_all_skipped_is_no_pass(folder: Path) -> None:
    result = kvspec(folder, system="tests.harness.test_run:Unable")
    assert result.returncode == 2
    assert "skipped 2: tests.harness.test_run:Unable lacks verb create, verb resize, verb resume" in result.stdout
    assert "nothing was run: every scenario was skipped, which is not a pass" in result.stderr


@pytest.mark.parametrize(
    ("system", "says"),
    [
        ("kvreff", "no system is called 'kvreff'"),
        ("no_such_module:System", "cannot import no_such_module"),
        ("kvref.system:Nothing", "module kvref.system has no class 'Nothing'"),
        ("pathlib:Path", "has no class attribute 'capabilities'"),
    ],
)
def test_a_system_that_is_not_there_exits_2(folder: Path, system: str, says: str) -> None:
    result = kvspec(folder, system=system)
    assert result.returncode == 2
    assert says in result.stderr


def test_require_cuda_fails_without_a_gpu(folder: Path) -> None:
    result = kvspec(folder / "one.yaml", "--require-cuda")
    assert result.returncode == 1
    assert "--require-cuda: 1 scenarios did not run on a GPU" in result.stdout


@pytest.mark.parametrize(("flag", "code"), [("--require-cuda", 1), ("--device=cuda", 2)])
def test_no_gpu_is_one_message(folder: Path, flag: str, code: int) -> None:
    result = kvspec(folder, flag, system="tests.harness.test_run:Homeless")
    assert result.returncode == code
    assert result.stderr == "tests.harness.test_run:Homeless cannot be built with device cuda: there is no GPU\n"
    assert result.stdout == ""


def test_junit(folder: Path) -> None:
    path = folder / "results.xml"
    assert kvspec(folder, "--junit", path).returncode == 1
    suite = ET.parse(path).getroot()[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {"tests": "2", "failures": "1", "skipped": "0"}
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "step 2: history of a"
    assert "expected history of a (line 10)" in (failure.text or "")


def test_a_junit_file_that_cannot_be_written_exits_2(folder: Path) -> None:
    result = kvspec(folder / "one.yaml", "--junit", folder / "no" / "results.xml")
    assert result.returncode == 2
    assert "cannot be written: there is no folder" in result.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_system_that_ends_its_process_fails_that_scenario_alone(folder: Path, jobs: str) -> None:
    deadly = GOOD.format(name="deadly", tag="large", history=8).replace("capacity: 8", "capacity: 16")
    (folder / "two.yaml").write_text(deadly)
    result = kvspec(folder, "--jobs", jobs, system="tests.harness.test_run:Deadly")
    assert result.returncode == 1
    assert "step 2: resize" in result.stdout and "no answer in resize" in result.stdout
    assert "its process ended with exit code 3" in result.stdout
    assert "1 passed, 1 failed, 0 skipped" in result.stdout


class Deadly(Reference):
    """A reference that ends its process at a capacity of 16."""

    def apply(self, op: Operation) -> Outcome:
        if isinstance(op, Resize) and op.capacity == 16:
            os._exit(3)
        return super().apply(op)


class Homeless(Reference):
    """A reference that needs a GPU and finds none."""

    def __init__(self, setup: Setup) -> None:
        if setup.options["device"] == "cuda":
            raise RuntimeError("there is no GPU")
        super().__init__(setup)


class Unable:
    """A system that can do nothing."""

    capabilities: frozenset[str] = frozenset()
