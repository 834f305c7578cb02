"""What the loader makes of files that are right: values, positions, YAML's own features, limits."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from kvspec import ops
from kvspec.errors import ErrorKind
from kvspec.language import ScenarioFileError, load_file, load_paths
from kvspec.language.loader import read, read_bytes
from kvspec.language.reader import MAX_FILE_BYTES, MAX_NODES
from kvspec.scenario import UNSET, Position, Scenario

PAGE = Path(__file__).parents[2] / "docs" / "scenario-language.md"
MANAGER = """\
kvspec: 1
name: base
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 4}, {kind: host, slots: 4}]
  layers:
    - {name: main, buffers: [{role: key, bytes: 64, sparse: true}]}
    - {name: index, buffers: [{role: key, bytes: 64}]}
"""
HERE = Path("here.yaml")


def example() -> str:
    """The example of the language page."""
    return PAGE.read_text().split("```yaml\n")[1].split("```")[0]


def load(steps: str, head: str = MANAGER) -> Scenario:
    loaded = read_bytes(HERE, (head + "steps:\n" + textwrap.indent(textwrap.dedent(steps), "  ")).encode())
    assert loaded.problems == ()
    return loaded.scenarios[0]


def test_example_of_the_page() -> None:
    loaded = read_bytes(HERE, example().encode())
    assert loaded.problems == ()
    (scenario,) = loaded.scenarios
    assert scenario.rules == ("R4.2", "R4.3", "R4.4", "R6.3", "R8.4")
    assert scenario.streams == ("exec", "side")
    assert scenario.requires == ("async",)
    assert [step.op.verb for step in scenario.steps][:4] == ["seed_prefix", "create", "create", "resume"]
    assert scenario.position == Position(HERE, 1, 1)
    assert scenario.verbs >= {"publish", "enter_decode"}


def test_places_and_last_line() -> None:
    source = example().split("\n")
    (scenario,) = read_bytes(HERE, example().encode()).scenarios
    step = next(step for step in scenario.steps if step.op.verb == "enter_decode")
    assert source[step.position.line - 1].strip() == "- enter_decode: decoder"
    assert source[step.last_line - 1].strip() == "eligible: {decoder.main: 0}"
    for path, text in [
        (("returns",), "true"),
        (("levels",), "levels:"),
        (("owners", "decoder.main.0"), "decoder.main.0:"),
        (("levels", "decoder.main", "1"), "host"),
    ]:
        position = step.positions[path]
        assert source[position.line - 1][position.column - 1 :].startswith(text), path
    nexts = [following.position.line for following in scenario.steps[step.number + 1 :]]
    assert step.last_line < nexts[0]


def test_last_line_of_a_step_before_a_comment_and_of_the_last() -> None:
    scenario = load(
        """\
        - create: a
        # about the next

        - resume: a
          note: |
            two
            lines
        - suspend: a
          expect:
            status:
              a: suspended
        """
    )
    assert [(step.position.line, step.last_line) for step in scenario.steps] == [(10, 10), (13, 16), (17, 20)]


def test_forms_of_a_verb() -> None:
    scenario = load(
        """\
        - create: {request: a}
        - create: b
        - clear_reusable
        - clear_reusable:
        - clear_reusable: {}
        - sync
        - sync: exec
        - sync: {stream: exec}
        - resume: {request: a, stream: null}
          raises: invalid_argument
        - resume: a
        - take_slots: {level: gpu, group: main, count: all, as: taken}
        - give_slots: taken
        - stats:
        - prefetch: {request: b, level: host}
          returns: true
        - stats: {reset: false}
          returns: {main: {offload_pages: 0}}
        """
    )
    made = [step.op for step in scenario.steps]
    assert made[0] == ops.Create(request="a")
    assert made[2] == made[3] == made[4] == ops.ClearReusable()
    assert made[5] == ops.Sync()
    assert made[6] == made[7] == ops.Sync(stream="exec")
    assert isinstance(made[8], ops.Resume) and made[8].stream is None
    assert isinstance(made[9], ops.Resume) and made[9].stream == "default"
    assert made[11] == ops.GiveSlots(**{"as": "taken"})
    assert scenario.steps[8].raises is ErrorKind.INVALID_ARGUMENT
    assert scenario.steps[0].returns is UNSET
    assert scenario.steps[13].returns is True
    assert scenario.steps[14].returns == {"main": {"offload_pages": 0}}


def test_iterate_introduces_its_read() -> None:
    scenario = load(
        """\
        - create: a
        - batch: {name: rows, rows: 1, blocks: 4}
        - iterate: {batch: rows, requests: [{request: a, capacity: 4}]}
          returns: {a: ran}
        - iterate: {batch: rows, requests: [{request: a, accept: false}], layers: [index], as: r}
          expect: {sees: {r: [["-"]]}, done: ["read:r"]}
        """
    )
    assert scenario.steps[2].returns == {"a": "ran"}


def test_raises_lets_unknown_names_through() -> None:
    scenario = load(
        """\
        - resume: nobody
          raises: out_of_range
        - write: {request: nobody, blocks: [0], groups: [none]}
          raises: out_of_range
        - seed_prefix: {tokens: [0], level: disk}
          raises: invalid_argument
        - is_sparse: {layer: none, role: none}
          raises: out_of_range
        - create: {request: a, tokens: [-1]}
          raises: invalid_argument
        - give_slots: none
          raises: out_of_range
        """
    )
    assert len(scenario.steps) == 6


def test_names_last_after_their_end() -> None:
    assert load("- create: a\n- close: a\n- resume: a\n  raises: logic_error\n- create: a\n- resume: a\n")


def test_anchors_aliases_and_merge_keys() -> None:
    scenario = load(
        """\
        - create: &first {request: a, tokens: [1, 2], priority: 3}
        - create: {<<: *first, request: b}
        - create: {<<: [{request: c, priority: 4}, *first]}
        - resume: a
          expect: &same
            status: {a: active}
        - resume: b
          expect: *same
        """
    )
    made = [step.op for step in scenario.steps]
    assert made[1] == ops.Create(request="b", tokens=(1, 2), priority=3)
    assert made[2] == ops.Create(request="c", tokens=(1, 2), priority=4)
    assert scenario.steps[4].expect == scenario.steps[3].expect
    # An alias does not stretch the step over the lines of its anchor.
    assert (scenario.steps[4].position.line, scenario.steps[4].last_line) == (16, 17)


def test_a_step_that_ends_in_an_alias_ends_there() -> None:
    scenario = load("- create: {request: a, tokens: &t [1, 2]}\n- create:\n    request: b\n    tokens:\n      *t\n- sync\n")
    assert [(step.position.line, step.last_line) for step in scenario.steps] == [(10, 10), (11, 14), (15, 15)]


def test_an_anchor_on_a_key_and_one_that_is_set_again() -> None:
    scenario = load("- create: &n a\n- create: &n b\n- resume: *n\n- &v sync: exec\n- *v\n")
    assert [step.op for step in scenario.steps][2:] == [ops.Resume(request="b"), ops.Sync(stream="exec"), ops.Sync()]


def test_a_problem_in_an_alias_is_reported_where_it_is_written() -> None:
    text = MANAGER + "steps:\n  - create: &who {request: a, tokens: [one]}\n  - create: *who\n"
    assert {problem.position.line for problem in read_bytes(HERE, text.encode()).problems} == {10}


def test_several_documents(tmp_path: Path) -> None:
    one = MANAGER + "steps:\n  - create: a\n"
    (tmp_path / "two.yaml").write_text("---\n" + one + "---\n" + one.replace("base", "other"))
    scenarios = load_file(tmp_path / "two.yaml")
    assert [(scenario.name, scenario.index, scenario.position.line) for scenario in scenarios] == [
        ("base", 0, 2),
        ("other", 1, 13),
    ]


def test_every_mistake_of_a_file_is_reported_once() -> None:
    text = MANAGER + "steps:\n  - craete: a\n  - resume: a\n  - resume: b\n  - resize: {request: a, capcity: 4}\n"
    found = [(problem.position.line, problem.text) for problem in read_bytes(HERE, text.encode()).problems]
    assert found == [
        (10, "unknown verb 'craete'; did you mean 'create'?"),
        (12, "unknown request 'b': expected a"),
        (13, "unknown key 'capcity' in resize: expected request, capacity or history; did you mean 'capacity'?"),
    ]


def test_one_wrong_document_refuses_the_file(tmp_path: Path) -> None:
    good = MANAGER + "steps:\n  - create: a\n"
    (tmp_path / "bad.yaml").write_text(good + "---\n" + good.replace("create", "creat"))
    with pytest.raises(ScenarioFileError) as error:
        load_file(tmp_path / "bad.yaml")
    assert str(error.value) == f"{tmp_path / 'bad.yaml'}:21:5: unknown verb 'creat'; did you mean 'create'?"
    (tmp_path / "good.yaml").write_text(good)
    scenarios, problems = load_paths([tmp_path / "bad.yaml", tmp_path / "good.yaml", tmp_path / "none.yaml"])
    assert [scenario.position.path.name for scenario in scenarios] == ["good.yaml"]
    assert [problem.position.path.name for problem in problems] == ["bad.yaml", "none.yaml"]


def test_unreadable(tmp_path: Path) -> None:
    assert read(tmp_path / "none.yaml").problems[0].text == "cannot be read: no such file or directory"
    assert read(tmp_path).problems[0].text == "cannot be read: is a directory"
    (problem,) = read(Path("/dev/zero")).problems
    assert problem.text == f"the file has more than {MAX_FILE_BYTES} bytes"


def test_byte_order_mark_and_windows_line_ends() -> None:
    text = "\ufeff" + (MANAGER + "steps:\n  - creat: a\n").replace("\n", "\r\n")
    (problem,) = read_bytes(HERE, text.encode()).problems
    assert (problem.position.line, problem.position.column) == (10, 5)


def test_numbers_as_keys_are_names() -> None:
    scenario = load("- create: '1'\n- resume: '1'\n  expect: {status: {1: active}, owners: {1.index.0: []}}\n")
    assert scenario.steps[1].expect.status is not None and list(scenario.steps[1].expect.status) == ["1"]


def test_the_memory_limit_is_exact() -> None:
    # 2 levels of 2 pool groups (sparse and dense never share on the GPU, one page size on the host): 4 + 4 + 4 slots.
    text = (MANAGER.replace("bytes: 64", "bytes: 2048") + "steps:\n  - create: a\n").encode()
    total = (4 + 4) * 2048 + 4 * 2048
    assert read_bytes(HERE, text, max_pool_bytes=total).problems == ()
    (problem,) = read_bytes(HERE, text, max_pool_bytes=total - 1).problems
    assert f"ask for {total} bytes" in problem.text


def test_many_values_are_refused_quickly() -> None:
    text = MANAGER + "tags: [" + "x," * (MAX_NODES + 1) + "]\nsteps:\n  - create: a\n"
    (problem,) = read_bytes(HERE, text.encode()).problems
    assert problem.text == f"the file has more than {MAX_NODES} values"


def test_many_mistakes_are_cut() -> None:
    text = MANAGER + "steps:\n" + "  - creat: a\n" * 5000
    assert 100 <= len(read_bytes(HERE, text.encode()).problems) < 200


def test_messages_are_one_line_and_short() -> None:
    text = MANAGER + 'steps:\n  - create: a\n    expect: {status: {"a\\nb": on}}\n  - resume: ' + "x" * 5000 + "\n"
    problems = read_bytes(HERE, text.encode()).problems
    assert len(problems) == 2
    for problem in problems:
        assert "\n" not in str(problem) and len(str(problem)) < 1200
