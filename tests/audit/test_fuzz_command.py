"""``kvspec fuzz`` tells of every failure, at once and at the end, and of what it was at when it was stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvspec.cli.main import app
from kvspec.language import load_file
from tests.paths import ROOT


def fuzz(*args: str) -> Result:
    return CliRunner().invoke(app, ["fuzz", "--jobs", "2", *args])


def test_lifecycles_that_agree_are_counted() -> None:
    result = fuzz("--seeds", "3", "--steps", "10")
    assert result.exit_code == 0
    assert "3 lifecycles of 10 steps, 0 failed" in result.output


def test_a_failure_is_told_at_once_and_a_short_scenario_is_left(tmp_path: Path) -> None:
    keeps = ("--system", "tests.audit.hoarders:KeepsSlots")
    result = fuzz("--seeds", "2", "--steps", "12", *keeps, "--keep-going", "--output", str(tmp_path))
    assert result.exit_code == 1
    text = " ".join(result.output.split())
    for seed in (0, 1):
        assert re.search(rf"lifecycle {seed} differs at step \d+, \w+, after [\d.]+ s: shrinking it", text)
        assert f"kvspec fuzz --first {seed} --seeds 1 --steps 12 --system tests.audit.hoarders:KeepsSlots" in text
        (scenario,) = load_file(tmp_path / f"lifecycle-{seed}.yaml")
        assert len(scenario.steps) == 1
    assert "2 lifecycles of 12 steps, 2 failed" in text


def test_without_keep_going_the_first_failure_ends_it() -> None:
    result = fuzz("--seeds", "1000000", "--steps", "5", "--system", "tests.audit.hoarders:KeepsSlots")
    assert result.exit_code == 1
    assert "kvspec: 1" in result.output


def test_stopped_by_the_user_it_says_what_was_under_way_and_where(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvspec", "fuzz", "--jobs", "2", "--seeds", "100", "--first", "7", "--timeout", "0"]
    environment = os.environ | {"MORTAL_BEGAN": str(tmp_path)}  # of a process of its own: a server of processes keeps the first
    running = subprocess.Popen(
        [*command, "--system", "tests.audit.mortal:Hangs"], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    end = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "stopped early: 0 lifecycles of 60 steps, 0 failed" in output
    assert re.search(r"running: lifecycle 7 at step \d+, resume\n.*mortal.py:\d+ in wait_for_ever", output)
    assert "these were running: 7, 8; run one alone with --first SEED --seeds 1" in output


@pytest.mark.parametrize(("name", "said"), [("Dies", "exit code 3"), ("Crashes", "SIGSEGV")])
def test_a_system_that_ends_its_process_fails_that_lifecycle(name: str, said: str) -> None:
    result = fuzz("--seeds", "2", "--keep-going", "--system", f"tests.audit.mortal:{name}")
    assert result.exit_code == 1
    for seed in (0, 1):
        assert re.search(rf"lifecycle {seed} gave no answer at step \d+: its process .*{said}", result.output)
        assert f"reproduce: kvspec fuzz --first {seed} --seeds 1 --system tests.audit.mortal:{name}" in result.output
    assert "2 lifecycles of 60 steps, 2 failed" in result.output
    assert "Traceback" not in result.output


def test_a_big_lifecycle_is_big_again_when_it_is_reproduced() -> None:
    result = fuzz("--seeds", "1", "--steps", "3", "--profile", "big", "--system", "tests.audit.hoarders:KeepsSlots")
    assert result.exit_code == 1
    assert "--profile big" in " ".join(result.output.split())


def test_a_system_that_hangs_is_a_failure_that_is_made_shorter() -> None:
    result = fuzz("--first", "1", "--seeds", "1", "--steps", "12", "--timeout", "0.3", "--system", "tests.audit.mortal:Hangs")
    assert result.exit_code == 1
    assert "no answer within 0.3 s" in result.output and "in wait_for_ever" in result.output
    assert result.output.count("- resume: ") == 1 and "- create" not in result.output


def test_lifecycles_that_a_device_cannot_go_through_are_counted_apart() -> None:
    result = fuzz("--seeds", "3", "--steps", "10", "--system", "tests.audit.mortal:Limited")
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert re.search(r"not finished: from step 5, \w+, on: five operations are all it can do", text)
    assert "no lifecycle was finished, which is not a pass" in text
    assert "3 lifecycles of 10 steps, 0 failed, 3 not finished" in text


def test_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fuzz("--seeds", "1000000", "--steps", "5", "--seconds", "0.5")
    assert result.exit_code == 0
    assert "lifecycles of 5 steps, 0 failed" in result.output


def test_no_lifecycle_at_all_is_no_pass() -> None:
    result = fuzz("--seconds", "0")
    assert result.exit_code == 2
    assert "no lifecycle was finished, which is not a pass" in result.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--system", "nosuch"), "no system is called 'nosuch'"),
        (("--against", "kvref.system:Nope"), "has no class 'Nope'"),
        (("--against", "kvgpu"), "--system kvgpu --against kvgpu: a system always agrees with itself: name two"),
        (("--seconds", "-1"), "--seconds -1.0: expected 0 or more"),
        (("--output", "/dev/null"), "--output /dev/null: expected a folder to write into"),
        (("--schedule", "bogus"), "--schedule bogus: expected fifo, adversarial or seed=N"),
        (("--device", "nosuch"), "'nosuch' is not one of"),
        (("--device", "cuda", "--system", "tests.audit.mortal:NeedsGpu"), "cannot be built with device cuda: there is no GPU"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(args: tuple[str, ...], said: str) -> None:
    result = fuzz(*args)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_an_ownership_is_one_that_there_is() -> None:
    result = fuzz("--seeds", "1", "--ownership", "mine")
    assert result.exit_code == 2
    assert "--ownership mine: expected any, shared or private" in result.output


def test_private_ownership_is_refused_of_a_system_that_does_not_have_it() -> None:
    result = fuzz("--seeds", "1", "--ownership", "private", "--system", "tests.audit.hoarders:SharesAlone")
    assert result.exit_code == 2
    assert "--ownership private: tests.audit.hoarders:SharesAlone with profile small lacks: ownership: private" in result.output


def test_what_repeats_a_lifecycle_names_the_ownership(tmp_path: Path) -> None:
    args = ("--seeds", "1", "--steps", "12", "--ownership", "private", "--system", "tests.audit.hoarders:KeepsSlots")
    result = fuzz(*args, "--output", str(tmp_path))
    assert result.exit_code == 1
    assert "--ownership private" in " ".join(result.output.split("reproduce:")[-1].split())
    (scenario,) = load_file(tmp_path / "lifecycle-0.yaml")
    assert scenario.manager.ownership == "private"


def test_fetches_are_in_any_all_or_none() -> None:
    result = fuzz("--seeds", "1", "--fetches", "some")
    assert result.exit_code == 2
    assert "--fetches some: expected any, all or none" in result.output


def test_fetches_are_refused_of_a_system_that_has_none() -> None:
    result = fuzz("--seeds", "1", "--fetches", "all", "--system", "tests.audit.hoarders:FetchesNothing")
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert "--fetches all: tests.audit.hoarders:FetchesNothing with profile small lacks: " in text
    assert "verb fetch" in text


def test_a_system_without_fetches_gets_none() -> None:
    result = fuzz("--seeds", "12", "--steps", "30", "--system", "tests.audit.hoarders:FetchesNothing")
    assert result.exit_code == 0
    assert "fetched:" not in result.output and " fetch " not in result.output


def test_what_repeats_a_lifecycle_says_that_all_have_fetches() -> None:
    result = fuzz("--seeds", "1", "--steps", "12", "--fetches", "all", "--system", "tests.audit.hoarders:KeepsSlots")
    assert result.exit_code == 1
    assert "--fetches all" in " ".join(result.output.split("reproduce:")[-1].split())


def test_what_was_fetched_is_told() -> None:
    result = fuzz("--seeds", "6", "--fetches", "all")
    assert result.exit_code == 0
    assert re.search(r"fetched: [1-9]\d* hits and [1-9]\d* misses in [1-6] lifecycles", result.output)
