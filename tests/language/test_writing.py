"""The commands that help to write scenarios: ``explain``, ``new``, ``record``, ``fmt``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kvspec.language.formatting import CannotFormat, formatted
from kvspec.language.loader import read, read_bytes
from kvspec.ops import VERBS
from kvspec.rules import rule_ids
from kvspec.suite import scenario_files
from kvspec.words.document import KEYS, STEP
from kvspec.words.expectations import EXPECTATIONS
from kvspec.words.lookup import entries
from kvspec.words.terms import OTHER_WORDS, TERMS
from kvspec.words.verbs import SCHEDULED, argument
from kvspec.words.verbs import VERBS as TEXTS
from tests.paths import PATHS, ROOT

RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
HEAD = """\
kvspec: 1
name: examples
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 4}, {kind: host, slots: 4}]
  layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true, selected: 4, reserve: 4}]}]
streams: [side]
steps:
"""
KNOWN = """\
  - create: other
  - create: {request: chat, tokens: [0, 1, 2, 3]}
  - batch: {name: rows, rows: 1, blocks: 2, levels: true}
  - snapshot: {request: chat, as: before}
  - take_slots: {level: gpu, count: 1, as: taken}
  - gate: {stream: side, as: hold}
  - begin_capture: exec
  - end_capture: {stream: exec, as: graph}
  - read_table: {batch: rows, as: after}
  - fetch: {batch: rows, layer: main, select: {chat: [0]}, as: now}
"""


def kvspec(*args: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "80"}
    command = [sys.executable, "-c", RUN, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=60, check=False)


def test_every_word_of_the_language_has_a_text_and_rules_that_exist() -> None:
    assert TEXTS.keys() == VERBS.keys()
    for verb, model in VERBS.items():
        for name, field in model.model_fields.items():
            assert argument(verb, field.alias or name).endswith(".")
        assert set(TEXTS[verb].arguments) <= {field.alias or name for name, field in model.model_fields.items()}
    rules = [rule for one in (*EXPECTATIONS.values(), *TERMS.values()) for rule in one.rules]
    rules += [rule for keys in (*KEYS.values(), STEP) for key in keys.values() for rule in key.rules]
    known = {*rule_ids(), *(rule.split(".")[0] for rule in rule_ids())}
    assert set(rules) <= known
    assert all(word in VERBS or any(entries(word)) for word in OTHER_WORDS.values())
    assert all(text.endswith(".") for text in SCHEDULED.values())


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_of_a_verb_is_well_formed(verb: str) -> None:
    # `close` and the like of what later examples need comes last in a file of its own, so each is checked alone.
    loaded = read_bytes(Path("x.yaml"), f"{HEAD}{KNOWN}  - {TEXTS[verb].example}\n".encode())
    assert loaded.problems == ()
    assert loaded.scenarios[0].steps[-1].op.verb == verb


@pytest.mark.parametrize("key", EXPECTATIONS)
def test_the_example_of_an_expectation_is_well_formed(key: str) -> None:
    text = f"{HEAD}{KNOWN}  - sync\n    expect: {{{EXPECTATIONS[key].example}}}\n".replace("  - sync\n", "  - sync:\n")
    loaded = read_bytes(Path("x.yaml"), text.encode())
    assert loaded.problems == ()


@pytest.mark.parametrize("owner", KEYS)
def test_the_example_of_a_key_is_yaml(owner: str) -> None:
    for key, word in KEYS[owner].items():
        assert list(yaml.safe_load(word.example)) == [key]


def test_explain_says_what_a_verb_takes_returns_and_raises() -> None:
    said = kvspec("explain", "resume").stdout
    for text in (
        "resume, verb: Make a suspended request active (R3.2).",
        "  request  Name of the request. (required, may be given bare)",
        "  returns: true; false, and nothing has changed, when slots run out",
        "  raises invalid_argument: the request has no stream yet",
        "  raises out_of_range: an unknown stream; a name that does not exist",
        "  example: resume: chat",
    ):
        assert text in said


def test_explain_says_every_meaning_of_a_word() -> None:
    said = kvspec("explain", "dirty", "levels", "tokens_per_block", "pool group").stdout
    for text in (
        "dirty, expectation: Whether the newest version",
        "dirty, term: Of a request: its newest version",
        "levels, expectation: Where the page of each block is",
        "levels, key of a manager: Where pages may be, the hottest first",
        "tokens_per_block, key of a buffer",
        "pool group, term:",
        "  the rules: kvspec explain R6.5",
        "  value: a mapping of request.group to a list with an entry for each block",
    ):
        assert text in said


def test_explain_knows_what_other_managers_call_it() -> None:
    result = kvspec("explain", "preempt")
    assert result.returncode == 2
    assert "there is no rule or word 'preempt'. Did you mean suspend?" in result.stderr
    listed = kvspec("explain", "words").stdout
    assert all(re.search(rf"\b{word}\b", listed) for word in (*VERBS, *EXPECTATIONS, *TERMS))


def test_a_new_scenario_passes_is_canonical_and_overwrites_nothing(tmp_path: Path) -> None:
    result = kvspec("new", "my_first.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "my_first.yaml: written. Try: kvspec run my_first.yaml\n")
    assert kvspec("run", "my_first.yaml", cwd=tmp_path).returncode == 0
    assert kvspec("fmt", "--check", "my_first.yaml", cwd=tmp_path).returncode == 0
    assert read(tmp_path / "my_first.yaml").scenarios[0].name == "my first"
    result = kvspec("new", "my_first.yaml", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (2, "my_first.yaml exists already: name another file\n")
    assert "there is no folder" in kvspec("new", "none/x.yaml", cwd=tmp_path).stderr


@pytest.mark.parametrize("name", ["on", "a: b", "10", "it's", "x#y", "null"])
def test_a_new_scenario_of_any_name_is_well_formed(tmp_path: Path, name: str) -> None:
    assert kvspec("new", f"{name}.yaml", cwd=tmp_path).returncode == 0
    assert read(tmp_path / f"{name}.yaml").problems == ()


SILENT = """\
# a comment
kvspec: 1
name: says nothing
rules: [R3.8]
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 4}, {kind: host, slots: 4}]
  layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true}]}]
steps:
  - create: chat
    returns: 0
  - resume: chat   # after a step
  - resize: {request: chat, capacity: 12, history: 8}
  - enter_decode: chat
    note: two blocks are complete
  # between steps
  - sync
  - batch: {name: rows, rows: 1, blocks: 3}
  - add: {batch: rows, request: chat}
  - publish: rows
  - {close: chat}
  - resume: chat
"""


def test_record_writes_a_draft_that_says_so_until_it_is_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SILENT)
    shown = kvspec("record", "--print", path)
    assert path.read_text() == SILENT
    result = kvspec("record", path)
    assert result.returncode == 0
    assert "7 steps have a draft now: confirm each against the rules" in result.stdout
    assert "a step in braces has no room for a draft" in result.stderr
    text = path.read_text()
    assert shown.stdout == text
    for lines in (
        "tags: [draft]\nmanager:",
        "  - create: chat\n    returns: 0\n  - resume: chat   # after a step\n    returns: true  # draft\n",
        "    note: two blocks are complete\n    returns: true  # draft\n"
        "    expect:  # draft\n      phase: {chat: decode}  # draft\n"
        "      levels: {chat.main: [host, host, gpu]}  # draft\n      eligible: {chat.main: 2}  # draft\n"
        "      moved: {main: {offload: 2}}  # draft\n  # between steps\n  - sync\n",
        "  - publish: rows\n    returns: [0]  # draft\n",
        "  - {close: chat}\n  - resume: chat\n    raises: logic_error  # draft\n",
    ):
        assert lines in text
    assert [line for line in text.splitlines() if "draft" not in line] == SILENT.splitlines(), "nothing else has changed"
    ran = kvspec("run", path)
    assert ran.returncode == 0, ran.stdout
    assert "1 with the tag draft: recorded values that nobody has confirmed" in ran.stdout
    again = kvspec("record", path)
    assert "nothing to record" in again.stdout and path.read_text() == text
    assert "with the tag draft" not in kvspec("run", tmp_path / "none.yaml").stdout


def test_record_of_a_system_that_cannot(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SILENT)
    result = kvspec("record", path, "--system", "tests.audit.mortal:NeedsGpu")
    assert result.returncode == 1
    assert "raised while it was built: RuntimeError: there is no GPU" in result.stderr
    assert path.read_text() == SILENT


def test_the_canonical_form_says_the_same_with_all_comments_and_is_its_own() -> None:
    files = scenario_files([ROOT / "tests" / "corpora" / "valid_fail"])[::5]
    assert len(files) >= 10
    for path in files:
        text = path.read_text()
        once = formatted(path, text)  # which raises if a value or a comment is not what it was
        assert formatted(path, once) == once
        assert [step.op for one in read_bytes(path, once.encode()).scenarios for step in one.steps] == [
            step.op for one in read(path).scenarios for step in one.steps
        ]


UGLY = """\
name:   ugly
# above the version
kvspec: 1

manager:
    levels:
    -   kind: gpu
        slots: 4      # few
    tokens_per_block: 4
    layers: [{"name": "main","buffers":[{role: key,bytes: 64}]}]



steps:
- create: chat
- resume: chat
  expect: {status: {chat: active}}
  returns: true
- clear_reusable:
- sync: null
- resize: {request: chat, capacity: 12, history: 8}
  expect: {levels: {chat.main: [gpu, gpu, gpu]}, eligible: {chat.main: 0},
    history: {chat: 8}, capacity: {chat: 12}, status: {chat: active}}
- sync:
  note: 'it is "done"'
  expect: {done: ['page:chat.main.0', page:chat.main.1]}
- close: chat
  expect: {levels: {chat.main: [-]}, row: {chat: null}, events: []}
"""
FINE = """\
name: ugly
# above the version
kvspec: 1

manager:
  tokens_per_block: 4
  levels:
    - kind: gpu
      slots: 4        # few
  layers: [{name: main, buffers: [{role: key, bytes: 64}]}]

steps:
  - create: chat
  - resume: chat
    returns: true
    expect: {status: {chat: active}}
  - clear_reusable:
  - sync:
  - resize: {request: chat, capacity: 12, history: 8}
    expect:
      levels: {chat.main: [gpu, gpu, gpu]}
      eligible: {chat.main: 0}
      history: {chat: 8}
      capacity: {chat: 12}
      status: {chat: active}
  - sync:
    note: it is "done"
    expect: {done: ["page:chat.main.0", "page:chat.main.1"]}
  - close: chat
    expect: {levels: {chat.main: ["-"]}, row: {chat: null}, events: []}
"""


def test_fmt(tmp_path: Path) -> None:
    path = tmp_path / "ugly.yaml"
    path.write_text(UGLY)
    result = kvspec("fmt", "--check", path)
    assert (result.returncode, result.stdout) == (1, f"{path}: not in its canonical form\n1 would change, 0 as they were\n")
    assert "-name:   ugly\n" in kvspec("fmt", "--diff", path).stdout
    assert path.read_text() == UGLY
    assert kvspec("fmt", path).returncode == 0
    assert path.read_text() == FINE
    result = kvspec("fmt", "--check", path)
    assert (result.returncode, result.stdout) == (0, "0 would change, 1 as they were\n")


def test_fmt_leaves_a_wrong_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(UGLY.replace("create", "creat"))
    result = kvspec("fmt", path)
    assert result.returncode == 2
    assert "unknown verb 'creat'" in result.stderr
    assert path.read_text() == UGLY.replace("create", "creat")


def test_what_would_be_lost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvspec.language.formatting._document", lambda document: document.pop("name"))
    with pytest.raises(CannotFormat, match="a value would change"):
        formatted(Path("x.yaml"), UGLY)
