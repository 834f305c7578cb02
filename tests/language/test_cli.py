"""The commands that need no system: what they print, how they exit, and what they do not import."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvspec.cli.main import COMMANDS, app
from kvspec.language.schema import schema_text
from kvspec.rules import load_rules, parse_rules, rule_ids
from kvspec.suite import says_kvspec, scenario_files, suite_path
from tests.paths import PATHS, ROOT

GOOD = """\
kvspec: 1
name: a good one
rules: [R3.1]
manager: {tokens_per_block: 4, levels: [{kind: gpu, slots: 4}], layers: [{name: main, buffers: [{role: key, bytes: 64}]}]}
steps:
  - create: a
"""
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"


def kvspec(*args: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a user types it."""
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "120"}
    command = [sys.executable, "-c", RUN, *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60, check=False)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def test_check_good(good: Path) -> None:
    result = kvspec("check", str(good))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{good}: ok, 1 scenario, 1 step\n1 file, 1 scenario, all right\n"


def test_check_bad(good: Path) -> None:
    bad = good.with_name("bad.yaml")
    bad.write_text(GOOD.replace("create", "creat"))
    result = kvspec("check", str(good), str(bad))
    assert result.returncode == 2
    assert f"{bad}:6:5: unknown verb 'creat'; did you mean 'create'?\n" in result.stdout
    assert result.stdout.endswith("1 problem in 1 of 2 files\n")


def test_names_are_unique_over_the_files_of_a_run(good: Path) -> None:
    other = good.with_name("other.yaml")
    other.write_text(GOOD + "---\n" + GOOD.replace("a good one", "another"))
    said = f"{other}:1:1: the name 'a good one' is that of {good}:1 too: expected a name that no other scenario has\n"
    result = kvspec("check", str(good), str(other))
    assert result.returncode == 2
    assert said in result.stdout and result.stdout.endswith("1 problem in 1 of 2 files\n")
    result = kvspec("run", str(good), str(other))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(said)
    assert kvspec("run", str(other)).returncode == 0


def test_check_searches_folders_for_scenarios_only(good: Path) -> None:
    (good.parent / "below").mkdir()
    (good.parent / "below" / "other.yml").write_text(GOOD.replace("a good one", "another"))
    (good.parent / "compose.yaml").write_text("services: {}\n")
    (good.parent / ".hidden").mkdir()
    (good.parent / ".hidden" / "x.yaml").write_text(GOOD.replace("create", "creat"))
    assert scenario_files([good.parent, good]) == [good, good.parent / "below" / "other.yml"]
    assert kvspec("check", str(good.parent)).returncode == 0


def test_check_says_when_there_is_nothing(tmp_path: Path) -> None:
    result = kvspec("check", str(tmp_path))
    assert result.returncode == 2
    assert result.stderr == f"no scenario in {tmp_path}: expected YAML files that say kvspec:\n"
    result = kvspec("check", str(tmp_path / "none.yaml"))
    assert result.returncode == 2
    assert "none.yaml:1:1: cannot be read: no such file or directory" in result.stdout


def test_check_without_paths_takes_the_suite() -> None:
    result = kvspec("check")
    assert result.returncode == 0, result.stdout
    assert f"{len(scenario_files([suite_path()]))} files" in result.stdout


def test_check_limits_memory(good: Path) -> None:
    result = kvspec("check", str(good), "--max-pool-bytes", "4095")
    assert result.returncode == 2
    assert "the pools ask for 4096 bytes" in result.stdout


def test_check_cuts_long_lists(good: Path) -> None:
    good.write_text(GOOD + "  - creat: a\n" * 99)
    result = kvspec("check", str(good))
    assert result.stdout.count("unknown verb") == 50
    assert f"{good}: and 49 more problems\n" in result.stdout


def test_says_kvspec(tmp_path: Path) -> None:
    for number, (text, said) in enumerate(
        [
            ("kvspec: 1", True),
            ("# a comment\n---\nname: x\nkvspec : 1\n", True),
            ("{kvspec: 1, name: x}", True),
            ("--- {kvspec: 1}", True),
            ('"kvspec": 1', True),
            ("name: kvspec", False),
            ("my-kvspec: 1", False),
            ("plugins:\n  kvspec: on", False),
            ("", False),
        ]
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        assert says_kvspec(path) is said, text
    assert not says_kvspec(tmp_path)


FEW = "scenarios/decode"  # the whole suite takes as long as it is large


@pytest.mark.parametrize("args", [["--help"], ["check", "--help"], ["check", FEW], ["schema"], ["rules", FEW], ["run", "--help"]])
def test_starts_without_what_is_slow_to_import(args: list[str]) -> None:
    code = (
        "import sys\nfrom kvspec.cli.main import main\n"
        f"sys.argv = ['kvspec', *{args!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "slow = {'numpy', 'numba', 'torch', 'kvref', 'kvgpu'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f" {command} " in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["chekc"], "Did you mean 'check'?"),
        (["check", "--frob"], "No such option"),
        (["check", "--max-pool-bytes", "many"], "max-pool-bytes"),
        (["schema", "x"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_exits_2(args: list[str], message: str) -> None:
    result = kvspec(*args)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_schema_is_printed() -> None:
    result = kvspec("schema")
    assert result.stdout == schema_text()
    assert json.loads(result.stdout)["required"] == ["kvspec", "name", "manager", "steps"]


def test_rules_with_their_scenarios(good: Path) -> None:
    result = kvspec("rules", str(good))
    assert result.returncode == 0
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == list(rule_ids()), "one line a rule, and nothing else"
    assert {line[0]: line[1] for line in lines if line[1] != "0"} == {"R3.1": "1"}
    for rule, line in zip(load_rules(), lines, strict=True):
        assert line[2].startswith(" ".join(rule.text.split())) and all(" ".join(one.split()) in line[2] for one in rule.decisions)
    assert result.stderr == f"1 of {len(rule_ids())} rules are covered, by 1 scenarios\n"


def test_rules_covered(good: Path) -> None:
    result = kvspec("rules", "--covered", str(good))
    assert result.stdout == f"R3.1\t{good}:1\ta good one\n"
    assert kvspec("rules", "--covered", "--missing", str(good)).returncode == 2


def test_rules_on_a_terminal_are_wrapped_under_their_sections(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["rules", "--covered", str(good)])
    lines = [re.sub("\x1b.*?m", "", line) for line in result.output.splitlines()]
    assert "3. Requests" in lines and max(map(len, lines)) <= 80
    assert any(line.lstrip().startswith(str(good)[:20]) for line in lines)


def test_rules_of_no_file() -> None:
    result = kvspec("rules", "R4")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "R4: there is no such file or folder: kvspec explain R4 prints a rule or a section\n"
    assert kvspec("rules", "none.yaml").stderr == "none.yaml: there is no such file or folder\n"


def test_rules_missing(good: Path) -> None:
    result = kvspec("rules", "--missing", str(good))
    assert result.returncode == 0
    assert "\nR3.1\t" not in result.stdout and "\nR3.2\t0\t" in result.stdout


def test_rules_of_a_wrong_file(good: Path) -> None:
    good.write_text(GOOD.replace("R3.1", "R3.99"))
    result = kvspec("rules", str(good))
    assert result.returncode == 2
    assert "unknown rule 'R3.99'" in result.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f'{sys.executable} -c "{RUN}" schema | head -n 1; echo ${{PIPESTATUS[0]}}'
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.stdout.splitlines()[0] == "{"
    assert result.stdout.splitlines()[1] in ("0", "141")
    assert result.stderr == ""


def test_an_interrupt_and_a_mistake_of_ours_show_no_traceback(good: Path) -> None:
    for raised, code in [("KeyboardInterrupt", 130), ("ValueError('a\\nb')", 70)]:
        script = (
            "import sys, kvspec.cli.check as c\n"
            f"def stop(*a, **k): raise {raised}\n"
            "c.read = stop\n"
            f"sys.argv = ['kvspec', 'check', {str(good)!r}]\n"
            "from kvspec.cli.main import main\nmain()\n"
        )
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
        assert result.returncode == code
        assert "Traceback" not in result.stderr and result.stdout == ""
        assert result.stderr.startswith(
            "interrupted" if code == 130 else "kvspec: internal error at <string>:2: ValueError: a b\n"
        )


def test_rules_of_the_contract() -> None:
    ids = rule_ids()
    assert len(ids) == len(set(ids)) == 110
    assert ids[0] == "R1.1" and "R8.10" in ids and "R9" in ids
    rule = next(rule for rule in load_rules() if rule.id == "R3.2")
    assert rule.section == "3. Requests" and len(rule.decisions) == 3
    assert "is brought to level 1 from level 2" in rule.text


def test_rules_are_parsed() -> None:
    text = "# T\nintro\n## 0. Why\nwords\n## 1. One\nabout\n- R1.1 first\n  goes on\n  - decided\n    so\n## 2. Two\nall\nprose\n"
    first, prose = parse_rules(text)
    assert (first.id, first.section, first.text, first.decisions) == ("R1.1", "1. One", "first goes on", ("decided so",))
    assert (prose.id, prose.section, prose.text) == ("R2", "2. Two", "all prose")
