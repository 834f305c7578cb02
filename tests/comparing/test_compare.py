"""``kvspec compare``: figures worked out by hand, the serving loop, the table, CSV and picture, and what is refused."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvref.system import Reference
from kvspec import ops
from kvspec.cli.main import app
from kvspec.comparing.engine import Engine, Job, Turn
from kvspec.comparing.figures import Figures, measured
from kvspec.comparing.picture import picture
from kvspec.comparing.workloads import BUILT_IN, Workload, built_in, manager
from kvspec.config import Ownership
from kvspec.system import Setup

SMALL = {"requests": 2, "prefix": 32, "own": 16, "decode": 16, "arrival": 0, "chunk": 16}


def figures(workload: Workload) -> tuple[Figures, Figures]:
    shared, private = (measured(workload, one, Reference) for one in Ownership)
    return shared, private


def test_two_chats_by_hand() -> None:
    """Two requests over one prefix of 2 blocks, with a block each of their own and one written: 2 + 2 + 2 pages in all.

    The second comes when the first has committed block 0: it matches that, which with copies takes a copy on the device. Block 1
    it reads itself, and rebases. Until it decodes each has the prefix on the GPU. Both decode in the same iteration: the first
    moves the prefix, the second attaches to both pages.
    """
    shared, private = figures(built_in("chats", SMALL))
    assert (private.down, private.attached, private.up, private.copies) == (6, 2, 0, 1)
    assert (shared.down, shared.attached, shared.up, shared.copies) == (6, 0, 0, 0)
    assert max(private.gpu) > max(shared.gpu)
    assert private.waited == 0 and private.share == 1.0
    assert shared.waited > 0 and shared.share < 1.0, "the first that decodes waits for the second, which is in prefill"
    assert private.down_bytes == 6 * 65536


def test_one_request_alone_costs_the_same() -> None:
    shared, private = figures(built_in("document", {"requests": 1, "document": 64, "question": 16, "decode": 16}))
    assert shared.gpu == private.gpu and shared.host == private.host
    assert (shared.down, shared.up, shared.false) == (private.down, private.up, private.false)


def test_the_expectations_of_a_scenario_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(
        "kvspec: 1\nname: one\nmanager:\n  tokens_per_block: 4\n  levels: [{kind: gpu, slots: 2}, {kind: host, slots: 2}]\n"
        "  layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true}]}]\nsteps:\n  - create: a\n    returns: 77\n"
        "  - resume: a\n  - resize: {request: a, capacity: 99}\n    returns: true\n"
    )
    done = CliRunner().invoke(app, ["compare", str(path)])
    assert done.exit_code == 0, done.output
    lines = {line.strip().rsplit(maxsplit=2)[0]: line.split()[-2:] for line in done.output.splitlines() if len(line.split()) > 2}
    assert lines["operations"] == ["3", "3"]
    assert lines["operations that were false"] == ["1", "1"], "a resize beyond the GPU"


def test_a_request_that_cannot_run_is_named() -> None:
    done = CliRunner().invoke(app, ["compare", "chats:gpu=2,requests=2"])
    assert done.exit_code == 1
    assert "request chat0 does not fit alone: give the levels more slots" in done.output.replace("\n", " ")


def test_requests_that_do_not_fit_together_take_turns() -> None:
    """Three requests of four blocks on a GPU of five: some are preempted, and all come to their end."""
    jobs = [Job(f"r{n}", 0, [Turn(tuple(range(100 * n + 1, 100 * n + 49)), 16)], 1000 * (n + 1)) for n in range(3)]
    workload = Workload("tight", manager(5, 64), ("exec",), lambda: Engine(jobs, 16, 16).run())
    shared, private = figures(workload)
    assert shared.false and private.false
    assert max(shared.gpu) <= 5 and max(private.gpu) <= 5


def test_operations_of_an_agent_that_pauses() -> None:
    calls = Engine([Job("a", 0, [Turn((1, 2), 1, 3), Turn((3,), 1)], 50)], 16, 2).run()
    system = Reference(Setup(manager(8, 8).model_copy(update={"tokens_per_block": 2})))
    seen: list[str] = []
    operation = next(calls)
    while True:
        seen.append(operation.verb)
        outcome = system.apply(operation)
        assert outcome.error is None, (operation, outcome)
        try:
            operation = calls.send(outcome)
        except StopIteration:
            break
    assert seen[:4] == ["create", "resume", "resize", "resize"]
    assert seen.count("suspend") == 1 and seen.count("resume") == 2 and seen[-1] == "close"
    assert isinstance(operation, ops.Close)


def test_csv_has_a_line_for_each_workload_and_policy(tmp_path: Path) -> None:
    sheet, drawing = tmp_path / "a.csv", tmp_path / "a.svg"
    small = "chats:" + ",".join(f"{key}={value}" for key, value in SMALL.items())
    done = CliRunner().invoke(app, ["compare", small, "--csv", str(sheet), "--svg", str(drawing)])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(sheet.open()))
    assert [row["ownership"] for row in rows] == ["shared", "private"]
    assert [row["down_pages"] for row in rows] == ["6", "6"]
    lines = ET.parse(drawing).getroot().findall(".//{http://www.w3.org/2000/svg}polyline")
    assert [line.get("class") for line in lines] == ["line shared", "line private"]


def test_a_picture_loses_no_peak() -> None:
    pages = (0,) * 5000 + (9,) + (0,) * 5000
    one = Figures("w", Ownership.SHARED, pages, pages, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    assert ",32.0" in picture([[one]]), "the top of the plot"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("chat", "no workload 'chat': expected chats, agents, document, or a scenario file that is there"),
        ("chats:reqests=3", "workload chats has no parameter 'reqests': it has gpu, host, requests"),
        ("chats:requests", "'requests' is no parameter: expected NAME=NUMBER"),
        ("chats:requests=-1", "'requests=-1' is no parameter: expected NAME=NUMBER"),
        ("chats:requests=0", "parameter requests of workload chats is 0: expected 1 or more"),
    ],
)
def test_what_is_refused(argument: str, said: str) -> None:
    done = CliRunner().invoke(app, ["compare", argument])
    assert done.exit_code == 2
    assert said in done.output


def test_a_policy_that_there_is_not() -> None:
    done = CliRunner().invoke(app, ["compare", "--ownership", "mine"])
    assert done.exit_code == 2
    assert "no policy 'mine': expected shared or private" in done.output


def test_the_parameters_are_said() -> None:
    done = CliRunner().invoke(app, ["compare", "--parameters"])
    assert all(f"{name}: {kind.title}" in done.output for name, kind in BUILT_IN.items())
