"""``kvspec show``: the state after every step, and why pages are where they are."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvref.system import Reference
from kvspec.ops import Operation
from kvspec.system import Outcome
from tests.paths import PATHS, ROOT

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


LONG = """\
kvspec: 1
name: a long prompt
rules: [R3.1]
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 300}, {kind: host, slots: 300}]
  layers: [{name: main, buffers: [{role: key, bytes: 4, sparse: true}]}]
steps:
  - seed_prefix: {tokens: TOKENS, level: gpu}
  - create: {request: chat, tokens: TOKENS}
  - create: {request: other, tokens: TOKENS}
  - resume: chat
  - resize: {request: chat, capacity: 520}
  - enter_decode: chat
  - batch: {name: rows, rows: 2, blocks: 140}
  - add: {batch: rows, request: chat}
  - publish: rows
"""


class Raising(Reference):
    """A system that lets an exception out when a request enters decode."""

    def apply(self, op: Operation) -> Outcome:
        if op.verb == "enter_decode":
            raise RuntimeError("not today")
        return super().apply(op)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{PATHS}{os.pathsep}{ROOT / 'docs' / 'examples'}", **more}


def show(*args: str | Path, code: int = 0, **more: str) -> str:
    command = [sys.executable, "-c", RUN, "show", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(**more), timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code in (0, 1) else done.stderr


def on_terminal(*args: str | Path, width: int, code: int = 0, command: str = "show", **more: str) -> str:
    """What a command prints on a terminal of a width."""
    ours, theirs = pty.openpty()
    typed = [sys.executable, "-c", RUN, command, *map(str, args)]
    size = environment(COLUMNS=str(width), TERM="xterm-256color", **more)
    with subprocess.Popen(typed, stdout=theirs, stderr=theirs, cwd=ROOT, env=size) as running:
        os.close(theirs)
        said = b""
        while True:
            try:
                got = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not got:
                break
            said += got
    os.close(ours)
    assert running.returncode == code
    return said.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def long_one(folder: Path) -> Path:
    path = folder / "long.yaml"
    path.write_text(LONG.replace("TOKENS", str(list(range(512)))))
    return path


def test_a_step_says_what_it_has_changed_and_nothing_else() -> None:
    lines = show(GAP, "--step", "8").splitlines()
    assert lines[2:] == [
        "",
        "  8  enter_decode decoder  -> true",
        "     block 0 is deferred for the prefill owner, block 1 after it moves (R4.4)",
        "     decoder         phase prefill -> decode, newer version",
        "     decoder.main.0  stays at gpu: deferred by prefill, in prefill (R4.2)",
        "     decoder.main.1  gpu -> host",
        "     decoder.main.2  stays at gpu: not complete history (R4.1)",
        "     decoder.main    GGG -> GHG",
        "     free slots      gpu.main 1 -> 2, host.main 4 -> 3",
        "     copies          1 offload submission",
    ]


def test_full_is_the_whole_state_with_marks_at_what_changed() -> None:
    lines = show(GAP, "--step", "8", "--full", "--system", "kvref").splitlines()
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


def test_what_is_reserved_fetched_and_cached_is_shown() -> None:
    name = ("-k", "a fetch behind a gate has not happened, and the next one waits for it")
    said = show("scenarios/fetch/order.yaml", *name)
    for line in (
        "     a.main         reserved slots 0 -> 3",
        "     gate hold   holds up fetch held, stream side",
        "     fetch held  pending",
        "     a.main      cached [] -> pending",
        "     fetch held  a: miss miss",
        "     fetch next  a: hit miss",
        "     a.main      cached pending -> [1, 2, 0]",
    ):
        assert line in said.splitlines()
    full = show("scenarios/fetch/order.yaml", *name, "--full", "--step", "10", "--system", "kvref")
    for line in (
        "     reserved a.main  gpu 5 6 7",
        "   * cached a.main  1@6 2@7 0@5",
        "   * fetch next  layer main  a: hit miss",
    ):
        assert line in full.splitlines()
    assert "fetch held  pending" in show("scenarios/fetch/order.yaml", *name, "--request", "a", "--step", "8")


def test_a_request_alone(tmp_path: Path) -> None:
    said = show(GAP, "--request", "prefill", "--system", "kvref")
    steps = [line.split()[0] for line in said.splitlines() if re.match(r" *\d+  ", line)]
    assert steps == ["2", "3", "4", "8", "10"], "created, its page locked by another, resumed, deferred for it, closed"
    assert "decoder.main.1" not in said
    assert "free slots" not in said
    full = show(GAP, "--request", "prefill", "--step", "4", "--full", "--system", "kvref")
    assert "request prefill  active" in full
    assert "request decoder" not in full


def test_why_a_page_stays_and_why_a_call_is_false(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    path.write_text(FULL)
    steps = show(path).split("\n\n")[1:]
    assert "     d.main.0  held by d" in steps[1].splitlines()
    assert "deferred by p, in prefill (R4.2)" in steps[5]
    assert "     p         status active -> closed" in steps[7].splitlines()
    assert "deferred, as no host slot is free (R4.7)" in steps[7]
    assert steps[8].splitlines() == ["  8  enter_decode d  -> true"]
    assert "deferred, and nobody objects: the next retry may take it (R4.3)" in steps[9]
    assert "raises invalid_argument: " in steps[10]
    short = FULL.partition("  - take_slots")[0] + "  - resize: {request: d, capacity: 28, history: 4}\n"
    path.write_text(short + "  - create: {request: q, tokens: [0, 1, 2, 3, 9]}\n")
    said = show(path)
    assert (
        "  6  resize request d, capacity 28, history 4  -> false: 6 gpu slots needed for main, 3 there: 3 free, 0 evictable"
        in said
    )
    assert "-> 4: 4 of 5 tokens matched: the tree does not go on with token 9 there" in said


def test_long_prefixes_are_folded(tmp_path: Path) -> None:
    said = show(long_one(tmp_path), "--system", "kvref")
    assert "  0  seed_prefix tokens [0..511], level gpu" in said
    assert "     main [0..127]  new at gpu, droppable" in said
    assert "chat.main [128, 129]  new at gpu, locked by chat" in said
    assert "rows.main row 0  published H*128 GG, num_blocks 128" in said
    assert max(map(len, said.splitlines())) < 100
    full = show(long_one(tmp_path), "--full", "--step", "5", "--system", "kvref")
    assert "in the tree as [0..511]" in full


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("options", [(), ("--full",)])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(tmp_path: Path, width: int, options: tuple[str, ...]) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(
        LONG.replace("TOKENS", str(list(range(512)))).replace("- resume: chat", "- resume: chat\n    note: " + "well " * 40)
    )
    args = (path, "--system", "kvref", *options)
    wrapped, whole = plain(on_terminal(*args, width=width)), show(*args)
    assert wrapped.split() == whole.split()
    for line in wrapped.splitlines():
        assert len(line) <= width or len(line.split()) == 1, line
    assert len(wrapped.splitlines()) > len(whole.splitlines())


@pytest.mark.parametrize("width", [80, 160])
def test_a_failing_run_breaks_no_word_and_no_command(width: int) -> None:
    args = ("docs/examples/tiny.yaml", "--system", "tiny_adapter:TinySystem")
    said = plain(on_terminal(*args, width=width, code=1, command="run", TINY_BUG="partial_line"))
    lines = said[said.index("FAILED") :].splitlines()
    assert "reproduce: kvspec run docs/examples/tiny.yaml:1 --system tiny_adapter:TinySystem" in lines
    for line in lines:
        assert len(line) <= width or line.startswith("reproduce: "), line
    long = "index: gpu slot 2 (chat.main.2) in the reference, host slot 3 (chat.main.2) in the implementation"
    assert (f"      {long}" in lines) is (width == 160)
    assert long in " ".join(said.split())


def test_the_scenarios_of_a_word_break_between_words() -> None:
    for line in plain(on_terminal("resize", width=80, command="explain")).splitlines():
        assert len(line) <= 80, line


def test_colours_are_for_terminals_that_want_them() -> None:
    assert "\x1b[" in on_terminal(GAP, "--step", "8", "--system", "kvref", width=80)
    without = on_terminal(GAP, "--step", "8", "--system", "kvref", width=80, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", without)
    assert "\x1b[" not in show(GAP, "--step", "8", "--system", "kvref")


def test_a_failing_scenario_is_shown_up_to_and_with_the_divergence() -> None:
    args = ("docs/examples/tiny.yaml", "-k", "generates", "--system", "tiny_adapter:TinySystem")
    said = show(*args, code=1, TINY_BUG="partial_line")
    before, _, after = said.partition("\n  6  enter_decode chat  -> true\n")
    assert "\n  5  publish rows" in before
    assert "     reference  chat.main  HHGG\n     tested     chat.main  HHHG\n                differ at block 2\n" in after
    assert "FAILED a sequence generates" in after
    assert "differs level of chat.main block 2  [R6.2, R2.4]" in after
    assert not re.search(r"^  7  ", said, re.MULTILINE)
    later = show(*args, "--step", "7", code=1, TINY_BUG="partial_line")
    assert "the two systems differ at step 6 already" in later
    assert "FAILED" not in show(*args, "--step", "2", code=1, TINY_BUG="partial_line")


def test_an_expectation_that_both_fail_and_a_system_that_raises(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(FULL.replace("  - close: p\n", "  - close: p\n    expect: {free: {gpu: 1}}\n"))
    said = show(path, code=1)
    line = path.read_text().splitlines().index("    expect: {free: {gpu: 1}}") + 1
    assert f"expected free slots of gpu (line {line})" in said
    assert "both systems say the same: the scenario may be wrong" in said
    said = show(GAP, "--system", "tests.adapter.test_show:Raising", code=1)
    assert "  7  add batch rows" in said, "what was before it is shown"
    assert "the system raised in enter_decode" in said
    said = show(GAP, "--system", "tests.adapter.test_show:Raising", "--against", "tests.adapter.test_show:Raising", code=1)
    assert "raised in step 8, enter_decode: RuntimeError: not today" in said


def test_a_page_is_written(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert re.fullmatch(r".*page.html: 13 steps, \d+ kB; open it in a browser\n", show(GAP, "--html", path))
    assert path.stat().st_size > 50_000
    copy = tmp_path / "copy.yaml"
    copy.write_text((ROOT / GAP).read_text())
    assert "would overwrite the scenario" in show(copy, "--html", copy, code=2)
    assert "cannot be written: there is no folder" in show(GAP, "--html", tmp_path / "no" / "page.html", code=2)


def test_a_system_that_never_answers_is_shown_up_to_where_it_hangs(tmp_path: Path) -> None:
    hangs = "tests.audit.mortal:Hangs"
    said = show(GAP, "--system", hangs, "--timeout", "0.3", code=1)
    assert "\n  2  create request prefill" in said
    assert "no answer in resume" in said and "no answer within 0.3 s" in said
    assert re.search(r"mortal\.py:\d+ in wait_for_ever", said)
    said = show(GAP, "--system", hangs, "--against", hangs, "--timeout", "0.3", code=1)
    assert f"{hangs} gave no answer in step 3, resume: no answer within 0.3 s (at " in said
    page = tmp_path / "page.html"
    assert "page.html: 3 steps, " in show(GAP, "--system", hangs, "--timeout", "0.3", "--html", page, code=1)
    assert "no answer within 0.3 s" in page.read_text()
    assert "Invalid value for '--timeout'" in show(GAP, "--timeout", "-1", code=2)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([GAP, "--step", "99"], "--step 99: there is no such step: the last one is 12"),
        ([GAP, "--system", "tests.harness.test_run:Unable"], "tests.harness.test_run:Unable lacks verb add, verb batch"),
        ([GAP, "--request", "nobody"], "--request nobody: no step creates it: there are decoder, prefill"),
        (["no_such_folder"], "no_such_folder"),
    ],
)
def test_wrong_usage(args: list[str], says: str) -> None:
    assert says in show(*args, code=2)
