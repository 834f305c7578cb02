"""Profiles: what scenarios need is worked out, and a run of a profile says how much of it passed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvspec.cli.main import app
from kvspec.harness.systems import find_system, setup_for
from kvspec.language import load_file
from kvspec.ops import VERBS
from kvspec.profiles import BASE, EXTENSIONS, PREFIX_VERBS, ProfileError, needs, profile, title
from kvspec.scenario import Scenario
from kvspec.system import System
from tests.paths import ROOT

HEAD = """kvspec: 1
name: one
manager:
  tokens_per_block: 2
  levels: [{levels}]
  layers: [{layer}]
{more}steps:
{steps}
"""
GPU = "{kind: gpu, slots: 4}"
HOST = GPU + ", {kind: host, slots: 2}"
DENSE = "{name: main, buffers: [{role: key, bytes: 16}]}"


def scenario(tmp_path: Path, steps: str, levels: str = GPU, layer: str = DENSE, more: str = "") -> Scenario:
    path = tmp_path / "one.yaml"
    path.write_text(HEAD.replace("{levels}", levels).replace("{layer}", layer).replace("{more}", more).replace("{steps}", steps))
    (one,) = load_file(path)
    return one


def built(one: Scenario) -> System:
    return find_system("kvref")(setup_for(one, {}))


BEGIN = "  - create: a\n  - resume: a\n  - resize: {request: a, capacity: 4}\n"


@pytest.mark.parametrize(
    ("steps", "needed"),
    [
        (BEGIN + "  - commit: {request: a, tokens: [1, 2]}\n  - close: a", ""),
        (BEGIN + "  - commit: {request: a, tokens: [1, 2, 3]}\n  - stop_committing: a\n  - close: a", ""),
        (BEGIN + "  - commit: {request: a, tokens: [1, 2, 3]}\n  - close: a", "partial"),
        ("  - seed_prefix: {tokens: [1, 2], level: gpu}\n  - create: {request: a, tokens: [1]}", "partial"),
        ("  - seed_prefix: {tokens: [1, 2], level: gpu}\n  - create: {request: a, tokens: [2, 2]}", ""),
        (BEGIN + "  - suspend: a", "suspend"),
        (BEGIN + "  - enter_decode: a", "sparse"),
        ("  - create: a\n  - resume: {request: a, decode: true}", "sparse"),
        ("  - create: a\n  - resume: {request: a, stream: null}\n    raises: invalid_argument", "order misuse"),
        ("  - create: {request: a, prompt_length: 2}", "beams"),
        ("  - create: {request: a, key: red}", "keys"),
        (BEGIN + "  - commit: {request: a, tokens: [1, 2], key: red}", "keys"),
        ("  - seed_prefix: {tokens: [1, 2], level: gpu, spans: [{start: 0, end: 1, key: cat}]}", "keys"),
        (BEGIN + "  - write: {request: a, blocks: [0]}", "order"),
        ("  - batch: {name: b, rows: 1, blocks: 1}\n  - wait_ready: b\n    raises: logic_error", "tables order misuse"),
        ("  - stats: {}", "counters"),
        ("  - seed_prefix: {tokens: [1, 2], level: gpu}\n  - evict: {level: gpu, pages: 2}\n    raises: out_of_pages", ""),
    ],
)
def test_what_steps_need(tmp_path: Path, steps: str, needed: str) -> None:
    assert needs(scenario(tmp_path, steps), built) == frozenset(needed.split())


@pytest.mark.parametrize(
    ("levels", "layer", "more", "needed"),
    [
        (HOST, DENSE, "", "host"),
        (HOST + ", {kind: disk, slots: 1}", DENSE, "", "host disk"),
        (HOST, DENSE.replace("bytes: 16", "bytes: 16, sparse: true"), "", "host sparse"),
        (GPU, DENSE.replace("name: main", "name: main, sliding_window: 2, sink_tokens: 1"), "", ""),
        (GPU, DENSE.replace("name: main", "name: main, kind: ssm"), "", "states"),
        (GPU, DENSE, "streams: [side]\n", "order"),
        (GPU, DENSE, "streams: [exec]\n", ""),
    ],
)
def test_what_managers_need(tmp_path: Path, levels: str, layer: str, more: str, needed: str) -> None:
    assert needs(scenario(tmp_path, "  - create: a", levels, layer, more), built) == frozenset(needed.split())


def test_a_limit_of_use_belongs_to_requests_that_go_on_again(tmp_path: Path) -> None:
    one = scenario(tmp_path, "  - create: a", GPU + "]\n  max_util_for_resume: 0.5\n  # [")
    assert one.manager.max_util_for_resume == 0.5
    assert needs(one, built) == frozenset({"suspend"})


def test_names_of_profiles() -> None:
    assert profile("prefix") == frozenset()
    assert profile("prefix+suspend+host") == frozenset({"host", "suspend"})
    assert title(frozenset({"suspend", "host"})) == "prefix+host+suspend"
    with pytest.raises(ProfileError, match=r"there is no extension 'hots'. Did you mean 'host'\?"):
        profile("prefix+hots")
    with pytest.raises(ProfileError, match="'host' is no profile: expected prefix"):
        profile("host")


def test_every_verb_belongs_somewhere() -> None:
    spread = PREFIX_VERBS.union(*(one.verbs for one in EXTENSIONS.values()))
    assert spread == VERBS.keys()


def test_the_page_names_every_extension_and_verb() -> None:
    page = (ROOT / "docs" / "profiles.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*)\|$", page, re.MULTILINE))
    assert {name: frozenset(re.findall(r"`(\w+)`", verbs)) for name, verbs in rows.items()} == {
        name: one.verbs for name, one in EXTENSIONS.items()
    }
    (said,) = re.findall(r"Its verbs: (.*)\.$", page, re.MULTILINE)
    assert frozenset(re.findall(r"`(\w+)`", said)) == PREFIX_VERBS
    assert all(one.title in page for one in EXTENSIONS.values())


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["run", "--jobs", "1", *args])


def test_a_run_of_a_profile_says_how_much_of_it_passed(tmp_path: Path) -> None:
    scenario(tmp_path, BEGIN + "  - commit: {request: a, tokens: [1, 2]}\n  - close: a")
    text = (tmp_path / "one.yaml").read_text()
    (tmp_path / "two.yaml").write_text(text.replace("name: one", "name: two").replace(GPU, HOST))
    result = run("--profile", "prefix", str(tmp_path))
    assert (result.exit_code, "profile prefix: 1 of 1 passed" in result.output) == (0, True)
    assert "profile prefix+host: 2 of 2 passed" in run("--profile", "prefix+host", str(tmp_path)).output
    assert run("--profile", "prefix+hots", str(tmp_path)).exit_code == 2
    (tmp_path / "one.yaml").unlink()
    nothing = run("--profile", "prefix", str(tmp_path))
    assert (nothing.exit_code, "none of 1 scenarios needs so little" in nothing.output) == (2, True)


def test_what_is_skipped_of_a_profile_is_not_passed(tmp_path: Path) -> None:
    scenario(tmp_path, BEGIN + "  - commit: {request: a, tokens: [1, 2]}")
    text = (tmp_path / "one.yaml").read_text()
    (tmp_path / "two.yaml").write_text(text[: text.index("  - commit")].replace("name: one", "name: two"))
    system = ("--system", "tests.adapter.growing:Growing")
    result = run("--profile", BASE, *system, str(tmp_path))
    assert result.exit_code == 1, result.output
    assert "profile prefix: 1 of 2 passed, 1 skipped" in result.output
    whole = run(*system, str(tmp_path))
    assert (whole.exit_code, "profile prefix  1 of 2 passed, 1 skipped" in whole.output) == (0, True), whole.output
