"""Every summary says which policies are not the rules' own, and what was checked otherwise for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvspec.cli.main import app
from tests.paths import ROOT

SUITE = ROOT / "scenarios"
BLOCKS = "tests.policies.test_declaring:Blocks"


def said(*args: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, args)))
    return result.exit_code, " ".join(result.output.split())


def test_a_run_says_the_policies_of_the_system_wherever_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    junit, html = tmp_path / "r.xml", tmp_path / "r.html"
    paths = (SUITE / "matching" / "tokens.yaml", SUITE / "policies" / "match.yaml", SUITE / "policies" / "held.yaml")
    code, text = said("run", *paths, "--system", BLOCKS, "--junit", junit, "--html", html, "-j1")
    assert code == 0
    assert f"policies of {BLOCKS}: match: block" in text
    assert f"3 ask for policies that {BLOCKS} does not have: kvref alone was run, and does what they expect" in text
    assert "are for other policies: there it was compared with kvref alone" in text
    assert '<property name="policies" value="match: block" />' in junit.read_text()
    assert f"Policies of {BLOCKS}: match: block" in html.read_text()
    assert "ask for policies that" in html.read_text()
    assert '<property name="reference only" value="3" />' in junit.read_text()
    assert junit.read_text().count('<skipped type="reference only"') == 3
    assert '<b class="reference-only">3</b>reference only' in html.read_text()
    assert html.read_text().count('data-verdict="reference only"') == 3


def test_a_run_of_the_defaults_says_nothing_of_them() -> None:
    _, text = said("run", SUITE / "matching" / "tokens.yaml", "-j1")
    assert "policies" not in text


def test_what_a_scenario_asks_for_counts_as_lacking() -> None:
    code, text = said("run", SUITE / "policies" / "match.yaml", "-j1")
    assert code == 2
    assert "2 reference only" in text and "0 skipped" in text
    assert "2 ask for policies that kvgpu does not have: kvref alone was run, and does what they expect" in text


def test_lifecycles_say_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, text = said("fuzz", "--system", BLOCKS, "--seeds", "1", "--steps", "5", "--jobs", "1")
    assert code == 0
    assert f"policies of {BLOCKS}: match: block" in text
