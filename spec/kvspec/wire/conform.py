"""Whether a command speaks the protocol: each message once, and what must come of those that are wrong (`kvspec conform`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig, group_names
from kvspec.observation import Observation
from kvspec.ops import VERBS, Operation
from kvspec.system import DeviceLimit, RemoteError, Setup
from kvspec.wire import messages as m
from kvspec.wire import reading
from kvspec.wire.client import Command, Driven, Remote
from kvspec.wire.process import TO_LEAVE, Process, shown

NOBODY = "nobody"
"""A name of which there is no request, batch, label or stream."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One thing that was checked: what must hold, and what is wrong, empty if it holds."""

    title: str
    wrong: str = ""


class Unfit(Exception):
    """A check does not hold; ``str()`` of it says why."""


def manager_to_ask() -> ManagerConfig:
    """The smallest manager that there is: one dense group, the GPU alone."""
    layer = LayerConfig(name="main", buffers=(BufferConfig(role="key", bytes=64),))
    return ManagerConfig(tokens_per_block=4, levels=(LevelConfig(kind=LevelKind.GPU, slots=8),), layers=(layer,))


def conform(command: Command, manager: ManagerConfig | None = None) -> Iterator[Checked]:
    """Check a command that has said hello, thing by thing.

    :param manager: one that it can build; the smallest if left out.
    """
    checks = _Checks(command, manager or manager_to_ask())
    yield Checked(f"hello: {command.hello.name}, {len(command.capabilities & VERBS.keys())} verbs")
    for title, check in (
        ("a message before hello is answered with wrong", checks.before_hello),
        ("a line that is no JSON, and one that is no object, are answered with wrong, and the process goes on", checks.no_json),
        ("an unknown message, and one without its keys, are answered with wrong and the id", checks.bad_messages),
        ("apply, observe and close without a manager are answered with wrong", checks.too_early),
        ("keys that the system does not know are passed over, in a line of a million characters", checks.unknown_keys),
        ("a manager is built, and shows itself", checks.manager),
        ("observe changes nothing", checks.observe_twice),
        ("a verb that hello did not name is answered with wrong", checks.no_verb),
        ("every verb of hello is understood: with names of nothing it is an error of a known kind", checks.verbs),
        ("an operation that fails changes nothing", checks.unchanged),
        ("a second manager takes the place of the first, which is forgotten", checks.again),
        ("lacks is answered, if hello asks for it", checks.lacks),
        ("close gives the manager back, and the process goes on", checks.close),
        (f"the process ends by itself within {TO_LEAVE:g} s of the end of its input, with exit code 0", checks.end),
    ):
        yield _checked(title, check)
    checks.leave()


def _checked(title: str, check: Callable[[], None]) -> Checked:
    try:
        check()
    except Unfit as error:
        return Checked(title, str(error))
    except RemoteError as error:
        return Checked(title, "; ".join((str(error), *error.lines)))
    except DeviceLimit as error:
        return Checked(title, f"answered with limit, where nothing asks for much: {error}")
    return Checked(title)


class _Checks:
    """The checks, in one process as long as it lives."""

    def __init__(self, command: Command, manager: ManagerConfig) -> None:
        self._command = command
        self._setup = Setup(manager, ("exec",), {})
        self._driven: Driven | None = None
        self._remote: Remote | None = None
        self._first: Observation | None = None

    def before_hello(self) -> None:
        process = self._command.process()
        try:
            self._is_wrong(process, b'{"id": 7, "message": "observe"}\n', 7)
        finally:
            process.end(kindly=False)

    def no_json(self) -> None:
        for line in (b"this is no JSON\n", b'{"id": 1, "message": \n', b"[1, 2]\n", b"3\n", b'"hello"\n'):
            self._is_wrong(self._there().process, line, None)
        self._answers()

    def bad_messages(self) -> None:
        wrong: tuple[dict[str, Any], ...] = (
            {"id": 101, "message": "nothing of the kind"},
            {"id": 102},
            {"id": 103, "message": 5},
            {"id": 104, "message": "manager"},
            {"id": 105, "message": "manager", "manager": {}, "groups": [], "streams": [], "options": {}},
        )
        for given in wrong:
            self._is_wrong(self._there().process, _line(given), given["id"])
        self._answers()

    def too_early(self) -> None:
        for number, message in enumerate(({"message": "observe"}, {"message": "close"}, self._apply("sync", {"stream": None}))):
            self._is_wrong(self._there().process, _line({"id": number, **message}), number)

    def unknown_keys(self) -> None:
        driven = self._there()
        line = _line({"id": 5, "message": "hello", "protocol": m.VERSION, "kvspec": "9", "news": "x" * 1_000_000})
        reading.or_raise(reading.answer(driven.process.ask(line, "to hello"), "hello", 5), m.HelloAnswer, "hello")

    def manager(self) -> None:
        self._first = self._built().observe()
        if self._first.requests or self._first.pages or self._first.batches:
            raise Unfit("a new manager has no requests, pages and batches")
        if self._first.groups != group_names(self._setup.manager):
            raise Unfit(f"groups: expected {group_names(self._setup.manager)}, this is {self._first.groups}")

    def observe_twice(self) -> None:
        if self._built().observe() != self._first:
            raise Unfit("the second answer to observe is another one")

    def no_verb(self) -> None:
        self._built()
        absent = next((verb for verb in VERBS if verb not in self._command.capabilities), None)
        for verb in ("fly", *([absent] if absent is not None else [])):
            arguments = {} if verb == "fly" else _with_names_of_nothing(VERBS[verb])
            self._is_wrong(self._there().process, _line({"id": 9, **self._apply(verb, arguments)}), 9)

    def verbs(self) -> None:
        remote = self._built()
        for verb in sorted(self._command.capabilities & VERBS.keys()):
            arguments = _with_names_of_nothing(VERBS[verb])
            outcome = remote.apply(VERBS[verb].model_validate(arguments))
            named = {"request", "batch", "snapshot", "graph"} & {name for name, given in arguments.items() if given == NOBODY}
            if named and verb != "create" and outcome.error is None:
                raise Unfit(f"{verb} of a {min(named)} that there is not must be out_of_range (R3.13), this is {outcome.value}")
            if named and verb != "create" and outcome.error is not None and outcome.error.value != "out_of_range":
                raise Unfit(f"{verb} of a {min(named)} that there is not must be out_of_range (R3.13), this is {outcome.error}")
            if verb in ("create", "batch") and outcome.error is None:
                self._restart()
                remote = self._built()
            remote.observe()

    def unchanged(self) -> None:
        self._restart()
        verb = next((one for one in ("close", "suspend", "resume", "commit") if one in self._command.capabilities), None)
        if verb is None:
            return
        remote = self._built()
        before = remote.observe()
        remote.apply(VERBS[verb].model_validate(_with_names_of_nothing(VERBS[verb])))
        if replace(remote.observe(), events=before.events) != before:
            raise Unfit(f"{verb} of a request that there is not has changed something")

    def again(self) -> None:
        if "create" in self._command.capabilities:
            self._built().apply(VERBS["create"].model_validate({"request": "left behind"}))
        self._restart()
        if self._built().observe() != self._first:
            raise Unfit("the new manager does not look like the first one did")

    def lacks(self) -> None:
        if not self._command.hello.lacks:
            return
        driven = self._there()
        asked = m.LacksMessage(id=driven.next(), manager=self._setup.manager, streams=("exec",), requires=(), steps=())
        reading.or_raise(driven.ask(asked, "what it lacks"), m.LacksAnswer, "lacks")

    def close(self) -> None:
        driven = self._built_in()
        for expected in (m.CloseAnswer, m.Wrong):
            found = driven.ask(m.CloseMessage(id=driven.next()), "to close")
            if not isinstance(found, expected):
                raise Unfit(f"expected {_names(expected)}, this is {found.model_dump_json(by_alias=True)}")
        self._remote = None
        self._built().observe()

    def end(self) -> None:
        process = self._there().process
        code = process.end()
        if code != 0:
            raise Unfit("it had to be ended" if code == -9 else f"its exit code is {code}")

    def leave(self) -> None:
        """Leave no process behind."""
        if self._driven is not None:
            self._driven.process.end(kindly=False)

    def _there(self) -> Driven:
        if self._driven is None or not self._driven.process.alive:
            self._driven, self._remote = self._command.start(), None
        return self._driven

    def _built(self) -> Remote:
        driven = self._there()
        if self._remote is None:
            self._remote = self._command.build(driven, self._setup)
        return self._remote

    def _built_in(self) -> Driven:
        self._built()
        return self._there()

    def _restart(self) -> None:
        self._remote = None

    def _answers(self) -> None:
        """The process still answers."""
        driven = self._there()
        reading.or_raise(driven.ask(m.HelloMessage(id=driven.next()), "to hello"), m.HelloAnswer, "hello")

    def _apply(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"message": "apply", "step": 0, "verb": verb, "arguments": arguments}

    def _is_wrong(self, process: Process, line: bytes, number: int | None) -> None:
        answer = process.ask(line, f"to {shown(line)}")
        try:
            found = m.Wrong.model_validate_json(answer)
        except ValueError:
            raise Unfit(f"{shown(line)} must be answered with id and wrong, this is {shown(answer)}") from None
        if number is not None and found.id != number:
            raise Unfit(f"{shown(line)} must be answered with the id {number}, this is {found.id}")


def _names(answer: type[m.Answer]) -> str:
    return "wrong" if answer is m.Wrong else "the answer of close"


def _line(given: dict[str, Any]) -> bytes:
    return json.dumps(given).encode() + b"\n"


def _with_names_of_nothing(model: type[Operation]) -> dict[str, Any]:
    """Arguments for a verb: the shortest that can be, with names of nothing."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        found[name] = _dummy(field) if default is PydanticUndefined else default
    return model.model_validate(found, by_name=True).model_dump(mode="json", by_alias=True)


def _dummy(field: FieldInfo) -> Any:
    """The first of a few values that an argument can have: a name of nothing, if it can be a name."""
    form: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    nothing: dict[str, object] = {}
    for given in (NOBODY, 1, [1, 2, 3, 4], [], "gpu", "copy", nothing):
        try:
            TypeAdapter(form, config={"strict": True}).validate_python(given)
        except ValidationError:
            continue
        return given
    raise TypeError(f"no value is known for {field}")
