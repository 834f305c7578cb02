"""The part of the suite for prefix caches: large enough, passed by a small correct one as a whole, and by none with a bug."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvspec.audit.asking import asks_more, lesser
from kvspec.cli.main import app
from kvspec.cli.profiles import of_its_policies, of_profile
from kvspec.harness.difference import Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system
from kvspec.language import load_file
from kvspec.language.loader import load_paths
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files
from tests.paths import ROOT
from tests.toys.adapters import Whole, with_bug
from tests.toys.prefix_cache import BUGS

REFERENCE = Named("kvref", find_system("kvref"))


@pytest.fixture(scope="module")
def prefix() -> list[Scenario]:
    """The scenarios of the profile ``prefix``."""
    scenarios, problems = load_paths(scenario_files([ROOT / "scenarios"]))
    assert not problems
    return of_profile(of_its_policies(scenarios, "tests.toys.adapters:WholeToy"), "prefix", "kvref")


def test_there_are_enough(prefix: list[Scenario]) -> None:
    assert len(prefix) >= 80
    own = {one.position.path.stem for one in prefix if one.position.path.parent.name == "prefix"}
    assert own == {path.stem for path in (ROOT / "scenarios" / "prefix").glob("*.yaml")}
    every, _ = load_paths(scenario_files([ROOT / "scenarios" / "prefix"]))
    assert {one.name for one in every} <= {one.name for one in prefix}, "all that is in the folder is of the profile"


def test_a_correct_prefix_cache_passes_all(prefix: list[Scenario]) -> None:
    system = Named("toy", with_bug(base=Whole))
    failed = {one.name: result for one in prefix if (result := replay(one, system, REFERENCE)).verdict is not Verdict.PASSED}
    assert not failed


@pytest.mark.parametrize("bug", BUGS)
def test_no_prefix_cache_with_a_bug_passes(prefix: list[Scenario], bug: str) -> None:
    system = Named(bug, with_bug(bug, base=Whole))
    own = [one for one in prefix if one.position.path.parent.name == "prefix"]
    assert any(replay(one, system, REFERENCE).verdict is Verdict.FAILED for one in own)


# -- asking for more than is needed ---------------------------------------------------------------------------

ASKING = """kvspec: 1
name: one
manager:
  tokens_per_block: 2
  levels: [{kind: gpu, slots: 4}, {kind: host, slots: 2}, {kind: disk, slots: 2}]
  layers:
    - {name: main, buffers: [{role: key, bytes: 16, sparse: true}]}
    - {name: other, sliding_window: 4, buffers: [{role: key, bytes: 16}]}
streams: [exec, side]
steps:
"""


def asking(tmp_path: Path, steps: str) -> Scenario:
    path = tmp_path / "one.yaml"
    path.write_text(ASKING + steps)
    (one,) = load_file(path)
    return one


def test_what_a_scenario_could_do_without(tmp_path: Path) -> None:
    one = asking(tmp_path, "  - create: a\n    returns: 0\n  - resume: a\n  - resize: {request: a, capacity: 4, history: 4}\n")
    assert [what for what, _ in lesser(one)] == asks_more(one, REFERENCE)
    assert asks_more(one, REFERENCE) == [
        *("sparse layers", "sparse layers and all levels below the GPU", "the disk", "layer main", "layer other", "stream side")
    ]


def test_what_a_scenario_needs_is_not_among_it(tmp_path: Path) -> None:
    steps = "  - create: a\n  - resume: a\n  - resize: {request: a, capacity: 4, history: 2}\n  - enter_decode: a\n"
    steps += "    expect: {levels: {a.main: [host, gpu], a.other: [gpu, gpu]}}\n  - set_stream: {request: a, stream: side}\n"
    assert asks_more(asking(tmp_path, steps), REFERENCE) == ["the disk"]


def test_the_command_counts_profiles_and_names_what_asks_for_more(tmp_path: Path) -> None:
    asking(tmp_path, "  - create: a\n")
    counted = CliRunner().invoke(app, ["profiles", str(ROOT / "scenarios" / "prefix")])
    assert counted.exit_code == 0
    assert " ".join(counted.output.split()).startswith("prefix 6")
    named = CliRunner().invoke(app, ["profiles", "--asks-more", str(tmp_path)])
    assert "one.yaml:1  one\n  holds without: sparse layers, " in named.output
    assert "1 of 1 scenarios would hold with less" in named.output
