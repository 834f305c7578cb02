"""Breaks drawn at random: what must be noticed is, what cannot be is listed, and nothing stays broken."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvspec.audit.cases import Setting
from kvspec.audit.changed_import import clear_caches, forget
from kvspec.audit.executed import executed, reaches
from kvspec.audit.mutant_drawing import Drawn, Known, Source, draw, load_known, sources_of
from kvspec.audit.random_mutants import Baseline, Campaign, Outcome, Report, ServerEnded, run_campaign
from kvspec.cli.main import app

SHELF = '''"""A system whose sizes go through functions of its own."""

import os
import threading

from kvref.system import Reference

MOST = 8


def limited(wanted):
    if wanted < 0:
        os._exit(3)
    return min(wanted, MOST)


def endless(rest):
    while rest > 0:
        rest -= 1


def not_called(wanted):
    return wanted + 1


def in_a_thread(found, wanted):
    found += [wanted * 1]


class Shelf(Reference):
    def apply(self, op):
        if op.verb == "resize":
            endless(2)
            found = []
            other = threading.Thread(target=in_a_thread, args=[found, limited(op.capacity)])
            other.start()
            other.join()
            op = op.model_copy(update={"capacity": found[0]})
        return super().apply(op)
'''
SCENARIO = """
kvspec: 1
name: a resize
rules: [R3.6]
manager:
  tokens_per_block: 2
  levels: [{kind: gpu, slots: 8}]
  layers: [{name: kv, buffers: [{role: key, bytes: 16}]}]
steps:
  - create: a
  - resume: a
  - resize: {request: a, capacity: 4}
"""
OTHER = """
kvspec: 1
name: nothing is resized
rules: [R3.1]
manager:
  tokens_per_block: 2
  levels: [{kind: gpu, slots: 8}]
  layers: [{name: kv, buffers: [{role: key, bytes: 16}]}]
steps:
  - create: a
"""


MEMORY = """from functools import cache

@cache
def one(a):
    return a

class Two:
    @cache
    def three(self):
        return 3
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a package ``shelf`` and two scenarios."""
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "__init__.py").write_text("")
    (tmp_path / "shelf" / "system.py").write_text(SHELF)
    (tmp_path / "resize.yaml").write_text(SCENARIO)
    (tmp_path / "other.yaml").write_text(OTHER)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget(["shelf"])


def _campaign(folder: Path, sources: dict[str, Source], drawn: list[Drawn], known: Known) -> Campaign:
    setting = Setting("shelf", "shelf.system:Shelf", "kvref", {"device": "sim"}, patience=0.5)
    places = [(folder / "resize.yaml", 0), (folder / "other.yaml", 0)]
    return Campaign(setting, sources, drawn, known, places, (), 2, None, 1 << 20)


def _by_place(reports: list[Report]) -> dict[tuple[str, str], Report]:
    return {(report.function, report.what): report for report in reports}


def test_what_comes_of_every_change_of_a_package(shelf: Path) -> None:
    sources = sources_of("shelf", Known())
    (found,) = [change for change in sources["shelf/system.py"].changes if change.what == "-=: +="]
    (entry,) = [change for change in sources["shelf/system.py"].changes if change.what == "8: 9"]
    known = Known.model_validate(
        {
            "equivalent": [
                {"file": entry.file, "function": "", "line": "MOST = 8", "change": "8: 9", "reason": "nobody asks for more"},
                {"file": found.file, "function": "endless", "line": found.text, "change": found.what, "reason": "wrong"},
            ]
        }
    )
    before = {path: path.read_bytes() for path in shelf.rglob("*.py")}
    drawn = draw(sources, 1, 1000)
    baseline, *reports = list(run_campaign(_campaign(shelf, sources, drawn, known)))
    assert baseline == Baseline(2, [], baseline.seconds)
    assert sorted(report.index for report in reports if isinstance(report, Report)) == list(range(len(drawn)))
    came = _by_place([report for report in reports if isinstance(report, Report)])

    killed = came["limited", "min: max"]
    assert (killed.outcome, killed.by) == (Outcome.NOTICED, f"{shelf}/resize.yaml: a resize")
    assert killed.text.startswith("step 2, resize: ")
    assert (killed.reached, killed.ran) == (1, 1)
    assert (killed.before, killed.after) == ("return min(wanted, MOST)", "return max(wanted, MOST)")

    ended = came["limited", "<: >="]
    assert (ended.outcome, ended.by) == (Outcome.ENDED, f"{shelf}/resize.yaml: a resize")
    assert ended.text == "the process ended with status 3"

    late = came["endless", "-=: +="]
    assert (late.outcome, late.text, late.equivalent) == (Outcome.LATE, "it took too long", "wrong")

    survivor = came["limited", "<: <="]
    assert (survivor.outcome, survivor.by, survivor.reached, survivor.ran) == (Outcome.SURVIVED, "", 1, 1)

    unreached = came["not_called", "1: 2"]
    assert (unreached.outcome, unreached.reached, unreached.ran) == (Outcome.SURVIVED, 0, 0)

    threaded = came["in_a_thread", "1: 2"]
    assert (threaded.outcome, threaded.reached) == (Outcome.NOTICED, 1)

    constant = came["", "8: 9"]
    assert (constant.outcome, constant.reached, constant.ran) == (Outcome.SURVIVED, None, 2)
    assert constant.equivalent == "nobody asks for more"

    at_import = came["Shelf.apply", "statement deleted"]
    assert at_import.outcome.killed

    assert {path: path.read_bytes() for path in shelf.rglob("*.py")} == before
    limited: Any = __import__("shelf.system", fromlist=["limited"]).limited
    assert (limited(20), limited(3)) == (8, 3)


def test_a_break_that_cannot_be_imported_is_noticed_by_the_import(shelf: Path) -> None:
    (shelf / "shelf" / "system.py").write_text(SHELF + "\nassert MOST == 8\n")
    sources = sources_of("shelf", Known())
    drawn = [one for one in draw(sources, 1, 1000) if one.change.what == "8: 9"]
    _, report = list(run_campaign(_campaign(shelf, sources, drawn, Known())))
    assert isinstance(report, Report)
    assert (report.outcome, report.by, report.ran) == (Outcome.NOTICED, "import", 0)
    assert "AssertionError" in report.text


def test_after_a_red_baseline_nothing_is_tried(shelf: Path) -> None:
    (shelf / "resize.yaml").write_text(SCENARIO.replace("capacity: 4}", "capacity: 4}\n    returns: false"))
    sources = sources_of("shelf", Known())
    (said,) = list(run_campaign(_campaign(shelf, sources, draw(sources, 1, 3), Known())))
    assert isinstance(said, Baseline)
    assert [name for name, _ in said.red] == [f"{shelf}/resize.yaml: a resize"]


def test_a_package_that_no_case_executes_is_refused(shelf: Path) -> None:
    sources = sources_of("shelf", Known())
    campaign = _campaign(shelf, sources, draw(sources, 1, 3), Known())
    with pytest.raises(ServerEnded, match="no case executes anything of shelf"):
        list(run_campaign(replace(campaign, setting=replace(campaign.setting, system="kvref"))))


def test_lifecycles_find_what_the_scenarios_do_not(shelf: Path) -> None:
    sources = sources_of("kvref", load_known())
    text = "if key not in theirs and key in r.pages:"
    (change,) = [one for one in sources["kvref/commit.py"].changes if one.text.startswith(text) and one.what == "in: not in"]
    campaign = _campaign(shelf, sources, [Drawn(0, change)], Known())
    setting = replace(campaign.setting, package="kvref", system="kvgpu", lifecycles=8)
    _, report = list(run_campaign(replace(campaign, setting=setting)))
    assert isinstance(report, Report)
    assert (report.reached, report.ran) == (0, 0)
    assert report.outcome is Outcome.NOTICED
    assert report.by == f"lifecycle {report.lifecycles - 1}"


def test_the_harness_is_held_against_its_tests(shelf: Path) -> None:
    file = "kvspec/harness/order.py"
    sources = sources_of("kvspec.harness", load_known())
    (killed,) = [one for one in sources[file].changes if one.text.startswith('problems.append(f"does not wait')]
    unreached = next(one for one in sources["kvspec/harness/html.py"].changes if one.function == "write_html")
    drawn = [Drawn(0, killed), Drawn(1, unreached)]
    campaign = _campaign(shelf, sources, drawn, Known())
    tests = [Path(__file__).parents[1] / "harness" / "test_order.py"]
    setting = replace(campaign.setting, package="kvspec.harness", system="kvgpu")
    baseline, *reports = list(run_campaign(replace(campaign, setting=setting, tests=tests)))
    assert isinstance(baseline, Baseline) and (baseline.cases, baseline.red) == (3, [])
    came = {report.index: report for report in reports if isinstance(report, Report)}
    assert (came[0].outcome, came[0].by) == (Outcome.NOTICED, tests[0].as_posix())
    assert "test_order.py::test_" in came[0].text
    assert (came[1].outcome, came[1].reached) == (Outcome.SURVIVED, 0)


def test_lines_are_seen_each_time_and_in_threads_and_no_others(shelf: Path) -> None:
    file = "shelf/system.py"
    with executed(shelf / "shelf", shelf) as imported:
        system: Any = __import__("shelf.system", fromlist=["limited"])
    lines = {text.strip(): number for number, text in enumerate(SHELF.splitlines(), start=1)}
    most, body = lines["MOST = 8"], lines["return min(wanted, MOST)"]
    assert reaches(imported, file, most, most) and not reaches(imported, file, body, body)
    for _ in range(2):
        with executed(shelf / "shelf", shelf) as called:
            system.limited(3)
        assert list(called) == [file]
        assert reaches(called, file, body, body) and not reaches(called, file, most, most)
        assert not reaches(called, file, body - 1, body - 1)
    assert sys.gettrace() is None or "pydevd" in str(sys.gettrace())


def test_what_functions_remember_is_forgotten_before_each_case(shelf: Path) -> None:
    (shelf / "shelf" / "memory.py").write_text(MEMORY)
    memory: Any = __import__("shelf.memory", fromlist=["one"])
    two = memory.Two()
    for _ in range(2):
        clear_caches("shelf")
        with executed(shelf / "shelf", shelf) as called:
            memory.one(1)
            two.three()
        assert reaches(called, "shelf/memory.py", 5, 5) and reaches(called, "shelf/memory.py", 10, 10)


# ---- the command -----------------------------------------------------------------------------------------------------


def _run(folder: Path, *arguments: str) -> tuple[int, str]:
    own = ["--package", "shelf", "--system", "shelf.system:Shelf", "--jobs", "2"]
    result = CliRunner().invoke(app, ["mutants", str(folder / "resize.yaml"), *own, *arguments])
    return result.exit_code, result.output


def _index(what: str) -> str:
    drawn = draw(sources_of("shelf", Known()), 1, 1000)
    return str(next(one.index for one in drawn if one.change.what == what))


def test_the_command_lists_survivors_and_goes_on_where_it_was(shelf: Path) -> None:
    killed, survivor = _index("min: max"), _index("<: <=")
    path = shelf / "found.json"
    code, text = _run(shelf, "--random", "1000", "--seed", "1", "--pick", killed, "--json", str(path))
    assert code == 0, text
    assert f"noticed {killed}: shelf/system.py:14 in limited: min: max: by {shelf}/resize.yaml: a resize: step 2" in text
    assert "1 breaks of shelf, seed 1: 1 noticed, 0 survived (0 of them not reached), 0 equivalent" in text

    first = path.read_text()
    path.write_text(first + first.splitlines()[1][:20])  # as if it had been stopped while it wrote
    both = ("--random", "1000", "--seed", "1", "--pick", f"{killed},{survivor}", "--json", str(path))
    code, text = _run(shelf, *both)
    assert code == 1
    assert f"survives {survivor}: shelf/system.py:12 in limited: <: <=" in text
    assert "before: if wanted < 0:" in text and "after:  if wanted <= 0:" in text
    assert "executed by 1 cases, all tried" in text
    assert "2 breaks of shelf, seed 1: 1 noticed, 1 survived" in text
    lines = path.read_text().splitlines()
    assert [json.loads(line)["index"] for line in (lines[1], lines[3])] == [int(killed), int(survivor)]

    code, text = _run(shelf, *both)
    assert (code, "measured" in text) == (1, False), "both are known already"
    assert path.read_text().splitlines() == lines
    _run(shelf, *both, "--again")
    assert [json.loads(line)["index"] for line in path.read_text().splitlines()[4:]] == [int(survivor)]


def test_what_survived_is_tried_again_after_edits(shelf: Path) -> None:
    killed, survivor, not_reached = _index("min: max"), _index("<: <="), _index("+: -")
    found, again = shelf / "found.json", shelf / "again.json"
    _run(shelf, "--random", "1000", "--seed", "1", "--pick", f"{killed},{survivor},{not_reached}", "--json", str(found))
    source = shelf / "shelf" / "system.py"
    source.write_text(
        SHELF.replace("MOST = 8", "# How many at most.\nMOST = 8").replace("return wanted + 1", "return 1 + wanted")
    )
    code, text = _run(shelf, "--survivors", str(found), "--json", str(again))
    assert code == 1, text
    assert f"survives {survivor}: shelf/system.py:13 in limited: <: <=" in text
    assert re.search(rf"gone {not_reached}: shelf/system.py:\d+ in not_called: \+: -", text)
    assert "1 breaks of shelf that survived: 0 noticed, 1 survived" in text
    assert [json.loads(line)["index"] for line in again.read_text().splitlines()[1:]] == [int(survivor)]
    other = shelf / "other.yaml"
    other.write_text(SCENARIO.replace("a resize", "another") + "  - resize: {request: a, capacity: 0}\n")
    result = CliRunner().invoke(
        app, ["mutants", str(other), "--survivors", str(found), "--pick", survivor, "--system", "shelf.system:Shelf"]
    )
    assert result.exit_code == 0, result.output
    assert f"noticed {survivor}:" in result.output


def test_what_was_not_tried_in_time_is_said(shelf: Path) -> None:
    code, text = _run(shelf, "--random", "5", "--seed", "1", "--seconds", "0")
    assert code == 1
    assert "out of time: not tried: --pick 0-4" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--random", "3", "--all"], "--only, --fences, --guards, --all, --write and --device are for named breaks"),
        (["--pick", "3"], "are for breaks drawn at random: expected --random N"),
        (["--random", "3", "--pick", "x"], "--pick x: expected numbers and ranges, such as 3,10-19"),
        (["--random", "3", "--pick", "7"], "--pick 7: none of these is among the 3 that are drawn: 0 to 2"),
        (["--random", "3", "--package", "no_such"], "no package is called 'no_such': expected kvgpu, kvref, harness"),
        (["--random", "3", "--again"], "--again tries what survived in the file of --json again: add --json FILE"),
        (["--random", "3", "--tests", "no_such.py"], "--tests no_such.py: there is no such file or folder"),
        (["--survivors", "SELF/other.yaml"], "other.yaml: is not a file of results: expected one that --json has written"),
        (["--survivors", "SELF/theirs.json"], "theirs.json: nothing survived"),
        (["--survivors", "SELF/theirs.json", "--random", "3"], "--survivors tries what is in its file: leave out --random"),
        (["--random", "3", "--json", "SELF/other.yaml"], "other.yaml: is not a file of results: name another one"),
        (["--random", "3", "--json", "SELF/theirs.json"], "has results of another package, seed or source"),
    ],
)
def test_wrong_usage_is_one_message(shelf: Path, arguments: list[str], says: str) -> None:
    (shelf / "theirs.json").write_text('{"file": "breaks drawn at random", "package": "kvref"}\n')
    code, text = _run(shelf, *(one.replace("SELF", str(shelf)) for one in arguments))
    assert code == 2
    assert says in text
    assert "Traceback" not in text
