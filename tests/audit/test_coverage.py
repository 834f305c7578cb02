"""Which kinds of state an operation was called in is counted as it was, and what never happened has a reason or is a gap."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvspec.audit.coverage.asked import outcomes
from kvspec.audit.coverage.cells import Cell, Counts, cells, cells_of
from kvspec.audit.coverage.reasons import Judged, Reason, WrongReason, reasons
from kvspec.audit.lifecycles import try_lifecycle
from kvspec.audit.managers import Profile
from kvspec.audit.reached import reached_by
from kvspec.cli.main import app
from kvspec.harness.replay import Named
from kvspec.harness.systems import find_system, setup_for
from kvspec.language.loader import load_paths, read_bytes
from kvspec.ops import VERBS
from kvspec.suite import scenario_files
from tests.paths import ROOT

HEAD = """kvspec: 1
name: one
manager:
  tokens_per_block: 1
  levels: [{{kind: gpu, slots: {gpu}}}, {{kind: host, slots: 2}}]
  layers: [{{name: main, buffers: [{{role: key, bytes: 64, sparse: true}}]}}]
streams: [exec, side]
steps:
"""
GROWN = ("create: a", "resume: a", "resize: {request: a, capacity: 2, history: 2}")


def text(*steps: str, gpu: int = 4) -> str:
    return HEAD.format(gpu=gpu) + "".join(f"  - {step}\n" for step in steps)


def counted(*steps: str, gpu: int = 4) -> Counts:
    loaded = read_bytes(Path("one.yaml"), text(*steps, gpu=gpu).encode())
    assert not loaded.problems, loaded.problems
    made = [(setup_for(one, {}), [step.op for step in one.steps]) for one in loaded.scenarios]
    return reached_by(made, Named("kvref", find_system("kvref"))).cells


def last(*steps: str, gpu: int = 4) -> set[tuple[str, str, str]]:
    """What the last step alone comes to."""
    before, after = counted(*steps[:-1], gpu=gpu), counted(*steps, gpu=gpu)
    return {(cell.subject, cell.kind, cell.outcome) for cell in after - before}


def coverage(*args: str) -> Result:
    return CliRunner().invoke(app, ["coverage", *args])


def test_a_call_counts_for_every_kind_that_is_true_before_it() -> None:
    found = last(*GROWN, "commit: {request: a, tokens: [1, 2]}", "create: {request: b, tokens: [1]}", "suspend: a")
    assert found == {("request", "prefill", "done"), ("request", "shared pages", "done")}
    assert last(*GROWN, "enter_decode: a", "suspend: a") == {("request", "decode", "done")}


def test_rows_of_room_say_whether_something_can_be_evicted() -> None:
    seed = "seed_prefix: {tokens: [1], level: gpu}"
    grow = "resize: {request: a, capacity: 1}"
    assert ("room", "room", "done") in last("create: a", "resume: a", grow, gpu=1)
    assert ("room", "GPU tight", "done") in last(seed, "create: a", "resume: a", grow, gpu=1)
    assert ("room", "GPU full", "false") in last("create: a", "resume: a", grow, "resize: {request: a, capacity: 2}", gpu=1)


def test_a_closed_gate_is_another_column_where_order_matters() -> None:
    gate = "gate: {stream: side, as: g}"
    assert ("request", "prefill", "done, gate") in last(*GROWN, gate, "suspend: a")
    assert ("request", "prefill", "done") in last(*GROWN, gate, "open: g", "suspend: a")
    assert last(*GROWN, gate, "bind_row: {request: a, row: 1}") == {("request", "prefill", "done")}


def test_a_refused_copy_is_told_from_one_that_was_queued_before() -> None:
    for queued, outcome in (("false", "copy_failed"), ("true", "copy_failed, queued")):
        found = last(*GROWN, f"fail_copy: {{direction: offload, queued: {queued}}}", "enter_decode: a")
        assert {("request", "prefill", outcome), ("room", "room", "copy_failed")} <= found


def test_errors_of_values_and_names_are_asked_of_what_is_there() -> None:
    assert last(*GROWN, "resize: {request: a, capacity: -1}\n    raises: invalid_argument") == {
        ("request", "live", "invalid_argument")
    }
    assert last(*GROWN, "resize: {request: b, capacity: 1}\n    raises: out_of_range") == {("request", "unknown", "out_of_range")}
    assert last(*GROWN, "suspend: a", "resize: {request: a, capacity: 3}") == {("request", "suspended", "logic_error")}


def test_a_row_that_waits_makes_a_call_of_several_false() -> None:
    batch = ("batch: {name: b, rows: 1, blocks: 8}", "add: {batch: b, request: a}")
    resized = last(*GROWN, *batch, "resize_batch: {batch: b, capacities: [8]}")
    assert ("request", "prefill", "false") in resized and ("batch", "never published", "false") in resized
    waiting = last(*GROWN, *batch, "iterate: {batch: b, requests: [{request: a, capacity: 8}]}")
    assert ("request", "prefill", "false") in waiting


def test_a_closed_batch_and_a_captured_one() -> None:
    made = "batch: {name: b, rows: 1, blocks: 8}"
    assert last(made, "publish: b", "publish: b") >= {("batch", "clean", "done"), ("batch", "no members", "done")}
    assert last(made, "close_batch: b", "publish: b") >= {("batch", "closed", "logic_error")}
    assert last(made, "begin_capture: side", "publish: b") >= {("batch", "captured", "logic_error")}


def test_every_verb_has_a_table() -> None:
    assert all(cells_of(verb) for verb in VERBS)
    assert {cell.outcome for cell in cells()} == {outcome for verb in VERBS for outcome in outcomes(verb)}


def test_a_step_that_ends_as_its_verb_should_not_is_told() -> None:
    odd = Cell("close", "request", "prefill", "out_of_pages")
    judged = Judged(Counter({odd: 1}), Counter(), {})
    assert judged.wrong == (odd,) and odd not in cells()


def test_a_reason_for_a_cell_that_happened_is_wrong() -> None:
    cell = cells_of("close")[0]
    reason = Reason(1, "it cannot", ("R3.10",))
    for suite, fuzz in ((1, 0), (0, 1)):
        judged = Judged(Counter({cell: suite}), Counter({cell: fuzz}), {cell: reason}, 1)
        assert judged.wrong == (cell,) and judged.state(cell) == "wrong"
    assert Judged(Counter(), Counter(), {cell: reason}).state(cell) == "impossible"
    assert cell in Judged(Counter(), Counter({cell: 1}), {}, 1).gaps  # lifecycles come and go, scenarios stay


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{verbs: [clse], rules: [R3.10], reason: it cannot}", "no cell is meant: is a name misspelt"),
        ("{verbs: [close], rules: [R3.999], reason: it cannot}", "there is no rule R3.999"),
        ("{verbs: [close], ruels: [R3.10], reason: it cannot}", "entry 1: rules: field required"),
        (
            "{verbs: [close], rules: [R3.10], reason: it cannot}\n- {verbs: [close], rules: [R3.10], reason: again}",
            "a reason above",
        ),
    ],
)
def test_a_wrong_file_of_reasons_is_refused(entry: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "reasons.yaml"
    path.write_text(f"- {entry}\n")
    with pytest.raises(WrongReason, match=message):
        reasons(path)


OPEN = Path(__file__).with_name("open_cells.txt")
"""The gaps of the suite that are known: a line each, as a cell is written."""


def test_the_suite_comes_to_all_that_can_happen_but_what_is_listed() -> None:
    scenarios, problems = load_paths(scenario_files([ROOT / "scenarios"]))
    assert not problems
    made = ((setup_for(one, {}), [step.op for step in one.steps]) for one in scenarios)
    judged = Judged(reached_by(made, Named("kvref", find_system("kvref"))).cells, Counter(), reasons())
    assert not judged.wrong
    listed = OPEN.read_text().splitlines()
    gaps = [str(cell) for cell in judged.gaps]
    assert not [gap for gap in gaps if gap not in set(listed)], "write a scenario, or a reason in impossible.yaml"
    known = {str(cell) for cell in cells() if cell not in reasons()}
    assert not [line for line in listed if line not in known], f"it is no cell that could be a gap: take it out of {OPEN.name}"


def lifecycles(count: int, steer: bool) -> Counts:
    reference = Named("kvref", find_system("kvref"))
    found: Counts = Counter()
    for seed in range(count):
        result = try_lifecycle(seed, 40, Named("again", reference.factory), reference, {}, Profile(steer=steer))
        assert result.found is None, result.found.text
        found.update(result.reached.cells)
    return found


def test_a_steered_lifecycle_is_the_same_again_and_calls_what_is_not_there() -> None:
    steered, plain = lifecycles(6, steer=True), lifecycles(6, steer=False)
    assert steered == lifecycles(6, steer=True)

    def missing(counts: Counts) -> int:
        return sum(cell.kind == "unknown" and cell.verb not in ("create", "batch") for cell in counts)

    assert missing(plain) == 0 < missing(steered)


def test_the_command_says_what_is_missing_and_writes_every_cell(tmp_path: Path) -> None:
    file, page, out = tmp_path / "one.yaml", tmp_path / "page.html", tmp_path / "out.json"
    file.write_text(text(*GROWN, "enter_decode: a"))
    result = coverage(str(file), "--fuzz", "2", "--steps", "8", "--jobs", "1", "--html", str(page), "--json", str(out))
    assert result.exit_code == 0, result.output
    assert "gap: create | request | closed | done: no scenario comes to it" in result.output
    values = json.loads(out.read_text())
    assert len(values) == len(cells())
    (one,) = [v for v in values if (v["verb"], v["kind"], v["outcome"]) == ("enter_decode", "prefill", "done")]
    assert one["suite"] == 1 and one["state"] in ("suite", "both")
    (one,) = [v for v in values if (v["verb"], v["kind"], v["outcome"]) == ("commit", "beams", "done")]
    assert one["state"] == "impossible" and one["rules"] == ["R3.9"]
    html = page.read_text()
    assert all(f'<section id="{verb}"' in html for verb in VERBS)
    assert "2 random lifecycles" in html and "http" not in html


def test_the_page_of_the_scenarios_alone_says_nothing_of_lifecycles(tmp_path: Path) -> None:
    file, page = tmp_path / "one.yaml", tmp_path / "page.html"
    file.write_text(text(*GROWN))
    assert coverage(str(file), "--html", str(page)).exit_code == 0
    assert "lifecycle" not in page.read_text()


def test_what_is_asked_for_is_checked_before_anything_is_run(tmp_path: Path) -> None:
    result = coverage("--html", str(tmp_path))
    assert result.exit_code == 2 and "--html" in result.output
    result = coverage(str(tmp_path), "--fuzz", "1", "--ownership", "none")
    assert result.exit_code == 2
