"""The other side: any system that Python can build, for a test in another language that steps it (`kvspec serve`)."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from kvspec.harness.policies import offer_of
from kvspec.harness.systems import Factory, capabilities, device_of, unobserved_by
from kvspec.ops import VERBS, Operation
from kvspec.policies import USUAL
from kvspec.scenario import UNSET, Expect, Position, Scenario, Step
from kvspec.system import DeviceLimit, Outcome, Setup, System, Unsupported
from kvspec.wire import messages as m
from kvspec.wire.reading import mistakes

FRAMES = 5
"""How many of the innermost frames of an exception are told."""
_NOWHERE = Position(Path("message"), 0, 0)


class Misunderstood(Exception):
    """A message that cannot be answered; ``str()`` of it says why."""


class Server:
    """A system that is driven by lines."""

    def __init__(self, name: str, factory: Factory) -> None:
        """``name``: what it is called. Nothing is built before it is asked for."""
        self._name = name
        self._factory = factory
        self._system: System | None = None
        self._greeted = False

    def answer(self, line: bytes) -> bytes:
        """The line that answers a line."""
        number: int | None = None
        try:
            given = _object(line)
            number = given.get("id") if isinstance(given.get("id"), int) else None
            found = self._answer(_message(given))
        except Misunderstood as error:
            found = m.Wrong(id=number, wrong=str(error))
        except DeviceLimit as limit:
            assert number is not None
            found = m.Limit(id=number, limit=str(limit))
        except Unsupported as error:
            assert number is not None
            found = m.Unsupported(id=number, unsupported=str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a system lets out is told
            assert number is not None
            found = _failed(number, error)
        return m.line_of(found)

    def close(self) -> None:
        """Give back the manager, if there is one."""
        if self._system is not None:
            system, self._system = self._system, None
            system.close()

    def serve(self, read: BinaryIO, write: BinaryIO) -> None:
        """Answer lines until there are no more."""
        for line in read:
            if line.strip():
                write.write(self.answer(line))
                write.flush()
        self.close()

    def _answer(self, message: m.Message) -> m.Answer:
        if not self._greeted and not isinstance(message, m.HelloMessage):
            raise Misunderstood("expected hello as the first message")
        do: Callable[[Any], m.Answer] = getattr(self, f"_{MESSAGE_NAMES[type(message)]}")
        return do(message)

    def _hello(self, message: m.HelloMessage) -> m.Answer:
        if message.protocol != m.VERSION:
            raise Misunderstood(f"version {message.protocol} of the protocol is not spoken here, version {m.VERSION} is")
        self._greeted = True
        raises = getattr(self._factory, "raises", None)
        return m.HelloAnswer(
            id=message.id,
            protocol=m.VERSION,
            name=self._name,
            capabilities=tuple(sorted(capabilities(self._factory))),
            unobserved=tuple(sorted(unobserved_by(self._factory))),
            policies={name: values for name, values in offer_of(self._factory).items() if values != USUAL[name]},
            raises=None if raises is None else tuple(sorted(raises)),
            lacks=getattr(self._factory, "lacks", None) is not None,
        )

    def _lacks(self, message: m.LacksMessage) -> m.Answer:
        steps = tuple(_step(number, one) for number, one in enumerate(message.steps))
        scenario = Scenario("asked", (), (), message.requires, message.manager, message.streams, steps, _NOWHERE, 0)
        own = getattr(self._factory, "lacks", None)  # the rest has been said in hello
        return m.LacksAnswer(id=message.id, lacks=() if own is None else tuple(own(scenario)))

    def _manager(self, message: m.ManagerMessage) -> m.Answer:
        self.close()
        self._system = self._factory(Setup(message.manager, message.streams, message.options))
        return m.ManagerAnswer(id=message.id, device=device_of(self._system))

    def _apply(self, message: m.ApplyMessage) -> m.Answer:
        system = self._there()
        op = _operation(message.verb, message.arguments)
        if op.verb not in capabilities(self._factory):
            raise Misunderstood(f"this system has no verb {op.verb!r}: hello says which it has")
        outcome: Outcome = system.apply(op)
        return m.ApplyAnswer(
            id=message.id,
            value=outcome.value,
            error=outcome.error,
            text=outcome.message,
            file_accesses=int(getattr(system, "file_accesses", 0)),
        )

    def _observe(self, message: m.ObserveMessage) -> m.Answer:
        return m.ObserveAnswer.model_construct(id=message.id, facts=None, observation=self._there().observe())

    def _close(self, message: m.CloseMessage) -> m.Answer:
        self._there()
        self.close()
        return m.CloseAnswer(id=message.id)

    def _there(self) -> System:
        if self._system is None:
            raise Misunderstood("there is no manager: expected the message manager before")
        return self._system


MESSAGE_NAMES: Mapping[type[m.Message], str] = {model: name for name, model in m.MESSAGES.items()}
"""The name of each message."""


def _object(line: bytes) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise Misunderstood(f"no JSON: {error}") from None
    if not isinstance(given, dict):
        raise Misunderstood("expected a JSON object")
    return given


def _message(given: dict[str, Any]) -> m.Message:
    name = given.get("message")
    model = m.MESSAGES.get(name) if isinstance(name, str) else None
    if model is None:
        raise Misunderstood(f"message: expected {', '.join(m.MESSAGES)}, this is {json.dumps(name)}")
    known = {key: value for key, value in given.items() if key in model.model_fields}  # a later kvspec may say more
    try:
        return model.model_validate_json(json.dumps(known))
    except ValidationError as error:
        raise Misunderstood(f"{name}: {mistakes(error)}") from None


def _operation(verb: str, arguments: Mapping[str, Any]) -> Operation:
    model = VERBS.get(verb)
    if model is None:
        raise Misunderstood(f"there is no verb {verb!r}")
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        raise Misunderstood(f"{verb}: {mistakes(error, 'arguments')}") from None


def _step(number: int, one: m.WrittenOperation) -> Step:
    return Step(number, _operation(one.verb, one.arguments), UNSET, None, Expect(), None, _NOWHERE, 0, {})


def _failed(number: int, error: BaseException) -> m.Failed:
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename != __file__][-FRAMES:]
    lines = tuple(f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in reversed(inside))
    text = traceback.format_exception_only(error)[-1].strip()
    return m.Failed(id=number, failed=text or type(error).__name__, lines=lines)
