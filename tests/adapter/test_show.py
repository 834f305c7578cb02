"""``kvspec show``: the state after every step, and why pages are where they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
GAP = "scenarios/deferral/language_example.yaml"
FULL = """\
kvspec: 1
name: a page that nobody objects to, and no room
rules: [R4.7]
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 4}, {kind: host, slots: 1}]
  layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true}]}]
steps:
  - seed_prefix: {tokens: [0, 1, 2, 3], level: gpu}
  - create: {request: d, tokens: [0, 1, 2, 3]}
  - create: {request: p, tokens: [0, 1, 2, 3]}
  - resume: d
  - resume: p
  - enter_decode: d
  - take_slots: {level: host, count: 1, as: other}
  - close: p
  - enter_decode: d
  - give_slots: other
  - resize: {request: d, capacity: 2}
    raises: invalid_argument
"""


def show(*args: str | Path, code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, "-c", RUN, "show", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_one_step_shows_requests_pages_slots_and_tables() -> None:
    lines = show(GAP, "--step", "8").splitlines()
    for line in (
        "  8  enter_decode decoder  -> true",
        "   * request decoder  active  decode  history 8/12  committed 4  row 0 of rows  index GGG  main GHG  dirty",
        "     request prefill  active  prefill  history 4/4  committed 4  index G  main G  dirty",
        "   * page decoder.main.0  gpu 0  locked  owners decoder, prefill  also prefill.main.0  in the tree as [0, 1, 2, 3]"
        "  deferred by prefill, in prefill (R4.2)",
        "   * page decoder.main.1  host 0  locked  owners decoder",
        "   * page decoder.main.2  gpu 2  locked  owners decoder  not complete history (R4.1)",
        "   * free slots  gpu.main 2/4  gpu.index 1/4  host.main 3/4  host.index 4/4",
        "     table rows.main row 0  [- - -]  num_blocks 0",
    ):
        assert line in lines
    assert not any(line.startswith("  7  ") for line in lines)


def test_changes_alone_and_why_a_page_stays(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    path.write_text(FULL)
    steps = show(path, "--changes").split("\n\n")[1:]
    assert "   - page main[0, 1, 2, 3]" in steps[1].splitlines()
    assert "deferred by p, in prefill (R4.2)" in steps[5]
    assert steps[7].splitlines()[1] == "   * request p  closed"
    assert "deferred, as no host slot is free (R4.7)" in steps[7]
    assert steps[8].splitlines() == ["  8  enter_decode d  -> true"]
    assert "deferred, and nobody objects: the next retry may take it (R4.3)" in steps[9]
    assert "raises invalid_argument: " in steps[10]


def test_another_system_is_shown_as_well() -> None:
    assert "main HHGG eligible 2" in show("docs/examples/tiny.yaml", "-k", "generates", "--step", "6", "--system", "kvgpu")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([GAP, "--step", "99"], "--step 99: there is no such step: the last one is 12"),
        ([GAP, "--system", "tests.harness.test_run:Unable"], "tests.harness.test_run:Unable lacks verb add, verb batch"),
        (["no_such_folder"], "no_such_folder"),
    ],
)
def test_wrong_usage(args: list[str], says: str) -> None:
    assert says in show(*args, code=2)
