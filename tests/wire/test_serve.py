"""The reference and the implementation behind a pipe do what they do without one."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest

from kvspec.config import Level
from kvspec.harness.difference import Verdict
from kvspec.harness.policies import offer_of
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import capabilities, find_system, lacking, setup_for
from kvspec.language import load_file
from kvspec.observation import LevelChanged, Observation, Removed, Stored
from kvspec.ops import VERBS
from kvspec.policies import USUAL
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files, suite_path
from kvspec.system import Setup
from kvspec.wire import messages as m
from kvspec.wire.client import Remote, checked_hello
from kvspec.wire.conform import manager_to_ask
from kvspec.wire.reading import NotUnderstood
from kvspec.wire.schema import protocol_schema
from kvspec.wire.server import Server
from tests.harness.rich import Numbers, script
from tests.paths import PATHS, ROOT

RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
OPTIONS = {"device": "sim"}


def served(system: str) -> str:
    words = ["env", f"PYTHONPATH={PATHS}", sys.executable, "-c", RUN, "serve", "--system", system]
    return f"cmd:{shlex.join(words)}"


@lru_cache(maxsize=1)
def suite() -> tuple[Scenario, ...]:
    return tuple(one for path in scenario_files([suite_path()]) for one in load_file(path))


@lru_cache(maxsize=1)
def sample() -> tuple[Scenario, ...]:
    """The shortest scenario of each verb; a release runs all of them."""
    plain = [one for one in suite() if not one.manager.policy.asked]
    shortest = [min((one for one in plain if verb in one.verbs), key=lambda one: len(one.steps)) for verb in VERBS]
    return tuple({one.name: one for one in shortest}.values())


@pytest.mark.parametrize(("system", "against"), [(served("kvgpu"), "kvref"), ("kvgpu", served("kvref"))], ids=["kvgpu", "kvref"])
def test_a_sample_of_the_suite_passes_over_a_pipe(system: str, against: str) -> None:
    named = Named(system, find_system(system)), Named(against, find_system(against))
    for scenario in sample():
        result = replay(scenario, *named, OPTIONS, timeout=60)
        assert (result.verdict, result.reason) == (Verdict.PASSED, ""), f"{scenario.name}: {result.failure}"


@pytest.mark.parametrize("system", ["kvref", "kvgpu"])
def test_what_is_seen_is_the_same_after_it_was_written_and_read(system: str) -> None:
    """Without a pipe, so that many are seen."""
    kinds: set[str] = set()
    for scenario in sample():
        built = find_system(system)(setup_for(scenario, OPTIONS))
        for step in scenario.steps:
            built.apply(step.op)
            seen = built.observe()
            line = m.line_of(m.ObserveAnswer.model_construct(id=1, facts=None, observation=seen))
            assert m.ObserveAnswer.model_validate_json(line).observation == seen, f"{scenario.name}, step {step.number}"
            kinds |= {name for name in ("batches", "labels", "reads", "events", "tree") if getattr(seen, name)}
        built.close()
    assert kinds == {"batches", "labels", "reads", "events", "tree"}


def written(seen: Observation) -> dict[str, Any]:
    line = m.line_of(m.ObserveAnswer.model_construct(id=1, facts=None, observation=seen))
    assert m.ObserveAnswer.model_validate_json(line).observation == seen
    found: dict[str, Any] = json.loads(line)["observation"]
    return found


def test_the_written_form() -> None:
    """Levels by name, beams as a list, pool groups by level, bytes as hexadecimal digits, events as scenarios write them."""
    named, raw = (script(Numbers(bytes=raw))[-1][1] for raw in (False, True))
    found = written(named)
    assert found["pools"].keys() == {level.label for level, _ in named.pools}
    for name, request in found["requests"].items():
        for (group, beam), view in named.requests[name].snapshots.items():
            assert request["snapshots"][group][beam]["indices"] == list(view.indices)
    assert found["pages"][2]["payload"] == {"source": "d", "group": "main", "block": 1}
    assert bytes.fromhex(written(raw)["pages"][2]["payload"]) == raw.pages[2].payload
    assert found["pages"][0]["refs"] == [{"request": name, "group": "main", "block": 0} for name in ("d", "s")]
    events = (Stored((1, 2)), Removed((1,)), LevelChanged((1, 2), "main", Level.GPU, Level.HOST))
    assert written(replace(named, events=events))["events"] == [
        {"stored": [1, 2]},
        {"removed": [1]},
        {"level": [1, 2], "group": "main", "from": "gpu", "to": "host"},
    ]


def exchange(lines: list[bytes], system: str = "kvref") -> list[dict[str, Any]]:
    server = Server(system, find_system(system))
    return [json.loads(server.answer(line)) for line in lines]


def conversation() -> list[bytes]:
    """Every message, and what every scenario of one file asks for."""
    config = manager_to_ask()
    (scenario, *_) = [one for one in suite() if one.position.path.name == "entering_decode.yaml"]
    setup = setup_for(scenario, {})
    lines = [m.line_of(m.HelloMessage(id=0))]
    lines.append(m.line_of(m.ManagerMessage(id=1, manager=config, groups=("main",), streams=("exec",), options={})))
    groups = ("main",)
    lines.append(m.line_of(m.ManagerMessage(id=2, manager=setup.manager, groups=groups, streams=setup.streams, options={})))
    from kvspec.wire.client import operation

    for number, step in enumerate(scenario.steps):
        one = operation(step.op)
        lines.append(m.line_of(m.ApplyMessage(id=3 + 2 * number, step=number, verb=one.verb, arguments=one.arguments)))
        lines.append(m.line_of(m.ObserveMessage(id=4 + 2 * number)))
    steps = tuple(operation(step.op) for step in scenario.steps)
    lines.append(m.line_of(m.LacksMessage(id=90, manager=config, streams=("exec",), requires=("async",), steps=steps)))
    lines.append(m.line_of(m.CloseMessage(id=91)))
    lines += [b"no json", b'{"id": 92, "message": "observe"}', b'{"id": 93, "message": "fly"}']
    return lines


VALIDATOR = jsonschema.Draft202012Validator(protocol_schema())


def test_every_line_satisfies_the_schema() -> None:
    lines = conversation()
    answers = exchange(lines)
    for given in (*(json.loads(line) for line in lines if line != b"no json"), *answers):
        if given.get("message") == "fly":
            continue
        error = next(VALIDATOR.iter_errors(given), None)
        assert error is None, f"{given}: {error and error.message}"
    assert [one["wrong"].split(":")[0] for one in answers[-3:]] == ["no JSON", "there is no manager", "message"]
    assert all("observation" in one for one in answers[4:-5:2])


@pytest.mark.parametrize(
    "given",
    [
        {"id": 1, "message": "observe", "manager": 3},
        {"id": 1, "value": True, "eror": "logic_error"},
        {"id": 1, "error": "no_memory"},
        {"id": 1, "facts": {"requests": {}}},
        {"id": 1, "message": "apply", "step": 0, "verb": "resize", "arguments": {"capacity": 3}},
        {"id": 1, "message": "apply", "step": 0, "verb": "fly", "arguments": {}},
        {"id": "1", "message": "close"},
        {"message": "close"},
    ],
    ids=str,
)
def test_what_is_no_line_does_not_satisfy_the_schema(given: dict[str, Any]) -> None:
    valid = VALIDATOR.is_valid(given)
    assert valid == (given.get("manager") == 3), "a message may have keys that a system does not know, an answer may not"


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([b'{"id": 4, "message": "close"}'], "expected hello as the first message"),
        ([b'{"id": 4, "message": "hello", "protocol": 9}'], "version 9 of the protocol is not spoken here, version 1 is"),
        ([b'{"id": "4", "message": "hello"}'], 'hello: id: Input should be a valid integer, this is "4"'),
        ([b'{"id": 0, "message": "hello"}', b'{"id": 4, "message": "aply"}'], "message: expected hello, lacks, manager"),
        ([b'{"id": 0, "message": "hello"}', b'{"id": 4, "message": "apply", "step": 0, "verb": "create"}'], "arguments: missing"),
    ],
)
def test_wrong_messages_are_told(lines: list[bytes], wrong: str) -> None:
    assert wrong in exchange(lines)[-1]["wrong"]


def test_wrong_operations_are_told() -> None:
    begin = conversation()[:2]
    for verb, arguments, wrong in (
        ("fly", {}, "there is no verb 'fly'"),
        ("resize", {"request": "a", "capacity": "4"}, 'resize: arguments.capacity: Input should be a valid integer, this is "4"'),
        ("resize", {}, "resize: arguments.request: missing"),
    ):
        line = m.line_of(m.ApplyMessage(id=7, step=0, verb=verb, arguments=arguments))
        assert exchange([*begin, line])[-1] == {"id": 7, "wrong": wrong}


class Broken:
    """A system that raises, prints to standard output, and lacks what it is asked for."""

    capabilities = frozenset({"create", "sync"})

    def __init__(self, setup: Setup) -> None:
        print("built")

    @staticmethod
    def lacks(scenario: Scenario) -> tuple[str, ...]:
        return tuple(f"request {step.op.request}" for step in scenario.steps if step.op.verb == "create")  # type: ignore[attr-defined]

    def apply(self, op: object) -> None:
        raise MemoryError("none left")

    def observe(self) -> None:
        return None

    def close(self) -> None:
        return None


def test_what_a_served_system_lets_out_is_told_with_its_frames() -> None:
    name = served("tests.wire.test_serve:Broken")
    factory = find_system(name)
    scenario = suite()[0]
    assert capabilities(factory) == Broken.capabilities
    whole = next(one for one in suite() if "create" in one.verbs and not any(step.raises for step in one.steps))
    assert len(lacking(whole, factory)) == len(whole.verbs - Broken.capabilities), "it is not asked where verbs are lacking"
    creates = replace(whole, steps=tuple(step for step in whole.steps if step.op.verb == "create"))
    assert lacking(creates, factory) == Broken.lacks(creates) != ()
    built = factory(setup_for(scenario, {}))
    assert isinstance(built, Remote)
    with pytest.raises(Exception, match="MemoryError: none left") as error:
        built.apply(next(step.op for one in suite() for step in one.steps if step.op.verb == "create"))
    assert any("test_serve.py" in line and "in apply" in line for line in error.value.lines)  # type: ignore[attr-defined]
    built.close()


class Choosy(Broken):
    policies: ClassVar = {"match": "block", "match_renews": [True, False], "held": "evictable"}


def test_policies_are_carried() -> None:
    for name in ("tests.wire.test_serve:Choosy", "kvref"):
        assert offer_of(find_system(served(name))) == offer_of(find_system(name)) != USUAL
    wrong = m.HelloAnswer(id=0, protocol=1, name="x", capabilities=(), policies={"match": "blocks"})
    with pytest.raises(NotUnderstood, match=r"policy match is 'blocks'. Did you mean 'block'\?"):
        checked_hello(wrong)


def test_serve_answers_lines_until_its_input_ends() -> None:
    lines = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in conversation())
    command = [sys.executable, "-c", RUN, "serve"]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=60, check=False, cwd=Path(ROOT))
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(line) for line in done.stdout.splitlines()] == exchange(conversation())
