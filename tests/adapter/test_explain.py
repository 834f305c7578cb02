"""``kvspec explain``: rules and verbs, one at a time."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.paths import PATHS, ROOT

RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"


def explain(*args: str, code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "200"}
    command = [sys.executable, "-c", RUN, "explain", *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_rule_with_its_decisions_and_scenarios() -> None:
    said = explain("R4.3")
    assert said.startswith(
        "R4.3  4. Offload (GPU -> host) and deferral\nA decoding request's deferred pages are tried again at its"
    )
    assert "  - On a `resume` or `resize` that fails (false) nothing is retried." in said
    assert "more scenarios; --all lists them" in said
    assert "R4.4" not in said
    assert len(explain("R4.3", "--all").splitlines()) > len(said.splitlines())


def test_a_section_and_a_verb() -> None:
    said = explain("R4", "fail_copy")
    assert [line.split()[0] for line in said.splitlines() if line[:3] == "R4."] == [f"R4.{n}" for n in range(1, 10)]
    assert "fail_copy, verb: Have the `call`-th next submission of a direction refused (R4.8)" in said
    assert "  call       Which one from now on: 1 is the next. (default 1)\n" in said
    assert "  scenarios/batch/" in said and "more scenarios; --all lists them" in said


def test_a_name_that_there_is_not() -> None:
    said = "there is no rule or word 'resise'. Did you mean resize? "
    said += "`kvspec rules` prints all rules, `kvspec explain words` all words\n"
    assert explain("resise", code=2) == said


GAP = "scenarios/deferral/language_example.yaml"


def test_a_page_of_a_scenario() -> None:
    said = explain(GAP, "--step", "8", "--page", "decoder.main.0")
    assert said.startswith("decoder.main.0  after step 8, enter_decode decoder  scenarios/deferral/language_example.yaml:")
    assert "  why            deferred by prefill, in prefill (R4.2)\n" in said
    assert "  would move it  enter_decode of prefill, which takes it along (R3.8, R4.3)\n" in said
    assert "  so far         step 0: new at gpu  seed_prefix tokens [0, 1, 2, 3], level gpu\n" in said
    both = explain(GAP, "--page", "decoder.1")
    assert "decoder.main.1  after step 12" in both
    assert "decoder.index.1  after step 12" in both
    assert "why" in explain(GAP, "--step", "8", "--page", "decoder.main.0", "--system", "kvgpu")


def test_the_turn_of_a_page_is_said_by_who_knows_it() -> None:
    said = explain(GAP, "--step", "8", "--page", "decoder.main.0")
    assert "  its turn       priority 35; it gets its turn in the order when it leaves LOCKED (R10.2)\n" in said
    assert "its turn" not in explain(GAP, "--step", "8", "--page", "decoder.main.0", "--system", "kvgpu")


def test_a_system_that_never_answers() -> None:
    hangs = "tests.audit.mortal:Hangs"
    said = explain(GAP, "--page", "decoder.main.0", "--system", hangs, "--timeout", "0.3", code=1)
    assert f"{hangs} gave no answer in step 3, resume: no answer within 0.3 s (at " in said
    assert "mortal.py:" in said


def test_a_page_that_cannot_be_explained() -> None:
    for args, says in (
        ([GAP], "is a scenario file: name a page with --page request.group.block, and a step with --step N"),
        (["R4.2", "--step", "3"], "--step and -k need a page of a scenario"),
        ([GAP, "--page", "decoder.man.0"], "--page decoder.man.0: unknown group 'man': the manager has main and index"),
        ([GAP, "--page", "decoder"], "expected request.group.block"),
        ([GAP, "--page", "prefil.main.0"], "after step 12 there is no request 'prefil': there are decoder, prefill"),
        ([GAP, "--page", "decoder.main.0", "--step", "0"], "after step 0 there is no request 'decoder': there is none yet"),
        ([GAP, "--page", "decoder.main.0", "--step", "99"], "--step 99: there is no such step: the last one is 12"),
        (["scenarios/deferral", "--page", "decoder.main.0"], "needs one scenario, but there are"),
        (["no_such.yaml", "--page", "a.0"], "no_such.yaml"),
    ):
        assert says in explain(*args, code=2)
