"""``kvspec explain``: rules and verbs, one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"


def explain(*args: str, code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
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
    assert "fail_copy: Have the ``call``-th next submission of a direction refused (R4.8)" in said
    assert "  call  default 1\n" in said
    assert "  scenarios/failure/" in said


def test_a_name_that_there_is_not() -> None:
    assert (
        explain("resise", code=2) == "there is no rule or verb 'resise'. Did you mean resize? `kvspec rules` prints all rules\n"
    )
