"""The example of the guide: somebody else's manager, green as it is and red with each of its planted bugs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvspec.cli.new import STARTER
from tests.paths import PATHS, ROOT

EXAMPLES = ROOT / "docs" / "examples"
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
ARGS = ("run", "--system", "tiny_adapter:TinySystem", "--jobs", "1")


def kvspec(*paths: str, bug: str = "", args: tuple[str, ...] = ARGS) -> subprocess.CompletedProcess[str]:
    """``kvspec run`` as an engineer types it in the folder of the example."""
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "100", "TINY_BUG": bug}
    command = [sys.executable, "-c", RUN, *args, *paths]
    return subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES, env=environment, timeout=120, check=False)


@pytest.mark.parametrize("bug", ["", "stale_version", "partial_line", "stale_index"])
def test_random_lifecycles_go_through_and_find_each_bug(bug: str) -> None:
    result = kvspec("--seeds", "25", bug=bug, args=("fuzz", *ARGS[1:]))
    assert result.returncode == (1 if bug else 0), result.stdout
    assert ("0 failed" in result.stdout) == (not bug)
    assert "not gone through" not in result.stdout
    text = " ".join(result.stdout.split())
    assert "managers: full attention, sparse attention; the GPU alone or GPU and host; one layer group;" in text


def test_green_on_its_own_scenarios_and_on_those_of_the_suite_that_it_can_run() -> None:
    result = kvspec("tiny.yaml", "../../scenarios/decode", "../../scenarios/batch", "../../scenarios/requests")
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    said = re.search(r"(\d+) passed, (\d+) failed, (\d+) skipped of", result.stdout)
    assert said is not None
    passed, failed, skipped = map(int, said.groups())
    assert (passed >= 12, failed) == (True, 0)
    assert f"skipped {skipped}, as the system lacks:" in result.stdout
    assert re.search(r"^  verb suspend +\d+ +\d+$", result.stdout, re.MULTILINE)
    assert "not compared: contents of pages, order of device work, the prefix tree" in result.stdout


@pytest.mark.parametrize(
    ("bug", "line", "says"),
    [
        (
            "stale_version",
            "tiny.yaml:28  step 8: resize",
            ["expected dirty rows of rows (line 30)", "differs version of chat  [R6.4]", "that of step 6"],
        ),
        (
            "partial_line",
            "tiny.yaml:19  step 6: enter_decode",
            ["expected levels of chat.main (line 22)", "[host, host, host, gpu]", "differs eligible count of chat.main  [R6.3]"],
        ),
        (
            "stale_index",
            "tiny.yaml:23  step 7: publish",
            ["differs page table of rows.main row 0 block 0 and 1 more  [R8.4, R8.5]", "tiny_adapter:TinySystem: slot 3"],
        ),
    ],
)
def test_red_with_each_planted_bug(bug: str, line: str, says: list[str]) -> None:
    result = kvspec("tiny.yaml", bug=bug)
    assert result.returncode == 1
    assert "1 passed, 1 failed, 0 skipped of 2 scenarios" in result.stdout
    report = result.stdout.partition("FAILED a sequence generates")[2]
    for text in (line, *says, "reproduce: kvspec run tiny.yaml:1 --system tiny_adapter:TinySystem\n"):
        assert text in report
    assert "device entries" not in report, "what the system does not show is not reported of it"


@pytest.mark.parametrize("bug", ["stale_version", "partial_line"])
def test_the_suite_finds_them_as_well(bug: str) -> None:
    assert kvspec("../../scenarios/decode", bug=bug).returncode == 1


def test_the_guide_shows_what_is_printed() -> None:
    guide = (ROOT / "docs" / "adapter.md").read_text(encoding="utf-8")
    for bug in ("", "stale_version"):
        printed = re.sub(r"\d+ ms", "N ms", kvspec("tiny.yaml", bug=bug).stdout)
        shown = re.sub(r"\d+ ms", "N ms", guide)
        for line in filter(None, map(str.strip, printed.splitlines())):
            if "s of replay" not in line:
                assert re.sub(r" +", " ", line) in re.sub(r" +", " ", shown), line


def test_the_pytest_plugin_runs_it_too_and_says_what_was_not_compared(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkvspec_paths = .\n")
    (tmp_path / "tiny.yaml").write_text((EXAMPLES / "tiny.yaml").read_text())
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--kvspec-system", "tiny_adapter:TinySystem"]
    for bug, code, says in (("", 0, "2 passed"), ("stale_index", 1, "1 failed, 1 passed")):
        environment = {**os.environ, "PYTHONPATH": f"{PATHS}{os.pathsep}{EXAMPLES}", "TINY_BUG": bug}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (code, ""), done.stdout
        assert says in done.stdout
        assert "kvspec: not compared: contents of pages, order of device work" in done.stdout


def test_the_starter_passes_and_a_wrong_scenario_is_told_from_a_wrong_system(tmp_path: Path) -> None:
    (tmp_path / "right.yaml").write_text(STARTER.format(name="right"))
    (tmp_path / "wrong.yaml").write_text(STARTER.format(name="wrong").replace("[host, host, gpu]", "[host, gpu, gpu]"))
    environment = {**os.environ, "PYTHONPATH": PATHS}
    command = [sys.executable, "-c", RUN, "run", "--jobs", "1", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False)
    assert done.returncode == 1
    assert "1 passed, 1 failed, 0 skipped of 2 scenarios" in done.stdout
    assert "both systems say the same: the scenario may be wrong\nthe rules: kvspec explain R3.8 R4.1 R6.3\n" in done.stdout
