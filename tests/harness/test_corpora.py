"""The runner's own corpora: files that must pass, and files that must go red and say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvspec.errors import ErrorKind
from kvspec.harness.difference import Kind, Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.report import failure_report, plain, reproduce_command
from kvspec.harness.systems import find_system
from kvspec.language import load_file
from kvspec.scenario import Expect

CORPORA = Path(__file__).parent.parent / "corpora"
FAIL = sorted((CORPORA / "valid_fail").glob("*.yaml"))
PASS = sorted((CORPORA / "valid_pass").glob("*.yaml"))
SAYS = "# expect: "


def _replayed(path: Path) -> list[Result]:
    named = Named("kvref", find_system("kvref.system:Reference"))
    return [replay(scenario, named, named) for scenario in load_file(path)]


def _report(result: Result) -> str:
    return plain(failure_report(result, ("kvref", "kvref"), reproduce_command(result, "kvref", "kvref", {})))


@pytest.mark.parametrize("path", FAIL, ids=lambda path: path.stem)
def test_what_must_fail_goes_red_and_says_why(path: Path) -> None:
    wanted = [line.removeprefix(SAYS) for line in path.read_text().splitlines() if line.startswith(SAYS)]
    (result,) = _replayed(path)
    assert result.verdict is Verdict.FAILED
    report = _report(result)
    assert wanted, "the file does not say what to expect"
    for text in (*wanted, f"{path.name}:", "reproduce: kvspec run"):
        assert text in report, f"{text!r} is not in\n{report}"
    # Red for what the file is about and for nothing else, at its last step.
    assert result.failure is not None
    assert result.failure.step == len(load_file(path)[0].steps) - 1
    assert {difference.kind for difference in result.failure.differences} <= {Kind.OUTCOME, Kind.EXPECTATION}


@pytest.mark.parametrize("path", PASS, ids=lambda path: path.stem)
def test_what_must_pass_passes(path: Path) -> None:
    results = _replayed(path)
    assert results
    for result in results:
        assert result.verdict is Verdict.PASSED, _report(result)


def test_every_expectation_is_shown_to_be_able_to_fail() -> None:
    shown: set[str] = set()
    for path in FAIL:
        (result,) = _replayed(path)
        assert result.failure is not None
        shown |= {d.identity for d in result.failure.differences if d.kind is Kind.EXPECTATION}
    assert shown == set(Expect.model_fields)


def test_every_kind_of_error_is_shown_where_another_was_meant() -> None:
    names = {path.stem for path in FAIL}
    assert {f"raises_{kind.value}" for kind in ErrorKind} <= names
