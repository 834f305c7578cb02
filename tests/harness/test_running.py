"""Running as a user does: what hangs and what is stopped, which scenarios are chosen, and what is printed of many."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.paths import PATHS

RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
GOOD = """\
kvspec: 1
name: {name}
rules: [R3.1, R3.6]
manager: {{tokens_per_block: 4, levels: [{{kind: gpu, slots: 4}}], layers: [{{name: main, buffers: [{{role: key, bytes: 64}}]}}]}}
steps:
  - create: a
  - resume: a
  - resize: {{request: a, capacity: 8, history: 8}}
    expect: {{history: {{a: {history}}}}}
"""
REF = "kvref.system:Reference"
MORTAL = "tests.audit.mortal"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "one.yaml").write_text(
        "---\n".join(GOOD.format(name=name, history=history) for name, history in (("first", 8), ("second", 7), ("third", 8)))
    )
    (tmp_path / "suite" / "two.yaml").write_text(GOOD.format(name="alone", history=8))
    return tmp_path


def start(folder: Path, *args: str, system: str = REF) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "80", "XDG_CACHE_HOME": str(folder / "cache")}
    environment["MORTAL_BEGAN"] = str(folder / "began") if (folder / "began").is_dir() else ""
    command = [sys.executable, "-c", RUN, "run", "--system", system, *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment)


def kvspec(folder: Path, *args: str, system: str = REF) -> tuple[int, str, str]:
    process = start(folder, *args, system=system)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.parametrize("name", ["Hangs", "Stubborn", "Deaf"])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_system_that_never_answers_fails_at_its_step_with_its_frames(folder: Path, name: str, jobs: str) -> None:
    """One catches whatever is raised in it, and one never lets Python have a turn: their processes are ended from outside."""
    code, out, err = kvspec(folder, "suite/two.yaml", "--timeout", "0.5", "--jobs", jobs, system=f"{MORTAL}:{name}")
    assert (code, err) == (1, "")
    assert "suite/two.yaml:7  step 1: resume" in out
    assert "no answer in resume" in out
    assert "no answer within 0.5 s" in out if name == "Hangs" else "no answer, and it could not be interrupted" in out
    assert re.search(r"mortal\.py:\d+ in wait_for_ever", out)
    assert "0 passed, 1 failed, 0 skipped of 1 scenarios" in out


def test_the_page_of_a_run_has_what_hung(folder: Path) -> None:
    code, _, _ = kvspec(folder, "suite/two.yaml", "--timeout", "0.5", "--html", "page.html", system=f"{MORTAL}:Hangs")
    page = (folder / "page.html").read_text()
    assert code == 1
    assert "no answer within 0.5 s" in page and '"divergence":' in page


def test_no_limit(folder: Path) -> None:
    assert kvspec(folder, "suite/two.yaml", "--timeout", "0")[0] == 0


def test_a_crash_costs_one_scenario_and_shows_the_frames(folder: Path) -> None:
    code, out, _ = kvspec(folder, "suite", "--jobs", "1", system=f"{MORTAL}:Crashes")
    assert code == 1
    assert "its process was ended by SIGSEGV" in out
    assert re.search(r"mortal\.py:\d+ in apply", out)
    assert "3 more begin with: no answer in resume" in out
    assert "0 passed, 4 failed" in out


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_says_where_everything_was(folder: Path, jobs: str) -> None:
    began = folder / "began"
    began.mkdir()
    process = start(folder, "suite", "--jobs", jobs, system=f"{MORTAL}:Hangs")
    end = time.monotonic() + 60
    while len(list(began.iterdir())) < int(jobs) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    lines = [line for line in out.splitlines() if line.startswith("running: ")]
    assert lines == [f"running: {name!r} at step 1, resume" for name in ("first", "second")[: int(jobs)]]
    assert "suite/one.yaml:7" in out
    assert re.search(r"mortal\.py:\d+ in wait_for_ever", out)
    assert out.endswith("interrupted: 0 of 4 scenarios have run\n")


def test_a_pass_is_a_line_a_folder_and_with_v_a_line_a_scenario(folder: Path) -> None:
    for name in ("one", "three"):
        path = folder / "suite" / f"{name}.yaml"
        path.write_text(GOOD.format(name=f"scenario {name}", history=8))
    (folder / "suite" / "below").mkdir()
    (folder / "suite" / "below" / "x.yaml").write_text(GOOD.format(name="deeper", history=8))
    code, out, _ = kvspec(folder, "suite")
    assert code == 0
    assert re.sub(r"\d+ ms", "N ms", re.sub(" +", " ", out)).splitlines()[:3] == [
        "suite 3 passed N ms",
        "suite/below/x.yaml 1 passed N ms",
        "",
    ]
    out = kvspec(folder, "suite", "-v")[1]
    assert all(re.search(rf"^  {name} +3  passed", out, re.MULTILINE) for name in ("scenario one", "scenario three", "deeper"))
    out = kvspec(folder, "suite", "-q")[1]
    assert re.fullmatch(r"4 passed, 0 failed, 0 skipped of 4 scenarios, 12 steps in .* s of replay\n", out)


def test_a_place_in_a_file_chooses_the_scenario_there(folder: Path) -> None:
    lines = (1, 9, 11, 18, 21, 999)
    listed = {line: kvspec(folder, f"suite/one.yaml:{line}", "--list")[1].split("  ")[1].strip() for line in lines}
    assert listed == {1: "first", 9: "first", 11: "second", 18: "second", 21: "third", 999: "third"}
    out = kvspec(folder, "suite/one.yaml:1", "suite/one.yaml:11:5", "--list")[1]
    assert out == "suite/one.yaml:1  first\nsuite/one.yaml:11  second\n"
    assert len(kvspec(folder, "suite/one.yaml:1", "suite", "--list")[1].splitlines()) == 4


def test_the_suite_is_named_from_anywhere(folder: Path) -> None:
    code, out, _ = kvspec(folder, "decode/entering_decode.yaml:1", "--list")
    assert code == 0
    assert out.startswith("decode/entering_decode.yaml:1  ")


def test_the_first_failure_ends_it(folder: Path) -> None:
    code, out, _ = kvspec(folder, "suite", "-x", "--jobs", "1")
    assert code == 1
    assert "1 passed, 1 failed, 0 skipped of 2 scenarios" in out
    assert "stopped at the first failure: 2 scenarios were not run" in out


def test_only_what_failed_last(folder: Path) -> None:
    def chosen(*args: str) -> list[str]:
        return [line.split("  ")[1] for line in kvspec(folder, "suite", "--last-failed", "--list", *args)[1].splitlines()]

    assert len(chosen()) == 4
    assert kvspec(folder, "suite")[0] == 1
    assert chosen() == ["second"]
    kvspec(folder, "suite/two.yaml")  # says nothing of the others
    assert chosen() == ["second"]
    file = folder / "suite" / "one.yaml"
    file.write_text(file.read_text().replace("{history: {a: 7}}", "{history: {a: 8}}"))
    assert kvspec(folder, "suite", "--last-failed")[0] == 0
    assert len(chosen()) == 4
    assert "none of these failed when it last ran here: all are run" in kvspec(folder, "suite", "--last-failed")[2]


LIAR = """\
from dataclasses import replace
from kvref.system import Reference

class Liar(Reference):
    def observe(self):
        now = super().observe()
        if len(now.requests) < 5:
            return now
        return replace(now, requests={name: replace(one, capacity=one.capacity + 1) for name, one in now.requests.items()})
"""


def test_a_report_is_the_same_in_every_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the seed of hashes, what differs stands in one order."""
    (folder / "liar.py").write_text(LIAR)
    steps = "".join(f"  - create: {name}\n" for name in "bcdea")
    head = GOOD.format(name="many", history=8).partition("  - create")[0]
    (folder / "suite" / "many.yaml").write_text(head + steps)
    reports = set()
    for seed in ("0", "1", "2", "3"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        code, out, _ = kvspec(folder, "suite/many.yaml", system="liar:Liar")
        assert code == 1
        assert re.findall(r"differs capacity of (\w)", out) == list("bcdea")
        reports.add(re.sub(r" *\d+ ms|\d+\.\d s of replay", "", out))  # times, and the spaces before them
    assert len(reports) == 1


def test_failures_that_begin_alike_are_shown_once_the_shortest_first(folder: Path) -> None:
    longer = GOOD.format(name="a longer one", history=7).replace("  - create: a\n", "  - create: b\n  - create: a\n")
    (folder / "suite" / "a.yaml").write_text(longer)
    (folder / "suite" / "z.yaml").write_text(
        GOOD.format(name="other", history=8).replace("- resume: a", "- resume: a\n    returns: false")
    )
    code, out, _ = kvspec(folder, "suite")
    assert code == 1
    assert re.findall(r"^FAILED (.+)$", out, re.MULTILINE) == ["other", "second"]
    assert "1 more begin with: history after resize\n  suite/a.yaml:1  a longer one\n" in out
    assert re.findall(r"^FAILED (.+)$", kvspec(folder, "suite", "-v")[1], re.MULTILINE) == ["other", "second", "a longer one"]


def test_a_place_is_said_before_the_version_that_follows_from_it(folder: Path) -> None:
    text = GOOD.format(name="moved", history=8).replace("{history: {a: 8}}", "{dirty: {a: false}, page_level: {a.0: '-'}}")
    (folder / "suite" / "two.yaml").write_text(text)
    out = kvspec(folder, "suite/two.yaml")[1]
    assert out.index("expected level of page a.main.0") < out.index("expected dirty of a")


def test_the_line_that_repeats_a_failure_fits_and_works(folder: Path) -> None:
    out = kvspec(folder, "suite")[1]
    (line,) = [line for line in out.splitlines() if line.startswith("reproduce: ")]
    assert line == f"reproduce: kvspec run suite/one.yaml:11 --system {REF}"
    code, again, _ = kvspec(folder, *line.split()[3:])
    assert code == 1
    assert "0 passed, 1 failed, 0 skipped of 1 scenarios" in again


def test_what_was_not_checked_on_a_gpu_is_said_once(folder: Path) -> None:
    assert kvspec(folder, "suite")[1].count(" on a GPU") == 1
    assert kvspec(folder, "suite", "--require-cuda")[1].count(" on a GPU") == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--against", REF), f"--system {REF} --against {REF}: a system always agrees with itself: name two"),
        (("-q", "-v"), "--quiet and --verbose contradict each other"),
        (("--timeout", "-1"), "--timeout"),
        (("suite/none.yaml:3",), "suite/none.yaml:3:1:1: cannot be read: no such file or directory"),
    ],
)
def test_wrong_usage(folder: Path, args: tuple[str, ...], said: str) -> None:
    code, out, err = kvspec(folder, *args)
    assert (code, out) == (2, "")
    assert said in err
