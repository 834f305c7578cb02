"""Systems that are commands: ``cmd:./my_manager --flag`` is driven over its standard input and output."""

from __future__ import annotations

import importlib.metadata
import itertools
import shlex
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvspec.adapter import AdapterError, not_taken, observation
from kvspec.config import group_names
from kvspec.errors import ErrorKind
from kvspec.harness.unobserved import AspectError, checked_aspects
from kvspec.nearest import did_you_mean
from kvspec.observation import Observation
from kvspec.ops import VERBS, Operation
from kvspec.policies import PolicyError, checked_offer
from kvspec.scenario import Scenario
from kvspec.system import COMMAND, DeviceLimit, Outcome, RemoteError, Setup, Unsupported
from kvspec.wire import messages as m
from kvspec.wire import reading
from kvspec.wire.process import Process

MAX_IDLE = 2
"""How many processes of one command wait for the next manager."""


class CommandError(ValueError):
    """A command that cannot be a system: it does not start, or says nothing that can be understood."""


class Command:
    """What builds systems of a command: each has a process of its own, which goes on to the next one when it is closed."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        """Start it once and ask what it can do.

        :param name: the command behind ``cmd:``, as a shell splits it; no shell runs it.
        :param folder: where it starts; where this process is, if left out.
        :raises CommandError: it does not start, or is no such system.
        """
        self.__name__ = name
        text = name.removeprefix(COMMAND)
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise CommandError(f"{text!r} cannot be split into words: {error}") from None
        if not self._words:
            raise CommandError(f"expected a command after {COMMAND}")
        self._folder = folder or Path.cwd()
        self._idle: list[Driven] = []
        try:
            first = self.start()
        except RemoteError as error:
            raise CommandError("\n".join((str(error), *error.lines))) from None
        self.hello = first.hello
        self._idle.append(first)
        keys = {"keys"} if any("key" in names for names in self.hello.arguments.values()) else ()
        self.capabilities = frozenset(self.hello.capabilities).union(keys)
        self.unobserved = frozenset(self.hello.unobserved)
        self.policies = self.hello.policies
        self.raises = frozenset(ErrorKind if self.hello.raises is None else self.hello.raises)

    def __call__(self, setup: Setup) -> Remote:
        """Build a system: in a process that waits for one, or in a new one."""
        driven = self._take()
        try:
            return self.build(driven, setup)
        except BaseException:
            self.leave(driven)
            raise

    def build(self, driven: Driven, setup: Setup) -> Remote:
        """Build a system in a process."""
        manager = setup.manager
        message = m.ManagerMessage(
            id=driven.next(),
            manager=manager,
            groups=group_names(manager),
            streams=tuple(setup.streams),
            options=dict(setup.options),
        )
        answer = _no_limit(driven.ask(message, "for a manager"))
        return Remote(self, driven, setup, reading.or_raise(answer, m.ManagerAnswer, "manager").device)

    def lacks(self, scenario: Scenario) -> tuple[str, ...]:
        """What a scenario needs beyond verbs: arguments that are not taken, and what the system says when it is asked."""
        arguments = {verb: frozenset(_fields(verb)[name] for name in names) for verb, names in self.hello.arguments.items()}
        found = not_taken(scenario, arguments)
        if not self.hello.lacks or scenario.verbs - self.capabilities:
            return found
        driven = self._take()
        try:
            answer = driven.ask(
                m.LacksMessage(
                    id=driven.next(),
                    manager=scenario.manager,
                    streams=scenario.streams,
                    requires=scenario.requires,
                    steps=tuple(operation(step.op) for step in scenario.steps),
                ),
                "what it lacks",
            )
            return (*found, *reading.or_raise(_no_limit(answer), m.LacksAnswer, "lacks").lacks)
        finally:
            self.leave(driven)

    def leave(self, driven: Driven) -> None:
        """Let a process wait for the next manager, unless it has ended or enough wait."""
        if driven.process.alive and len(self._idle) < MAX_IDLE:
            self._idle.append(driven)
        else:
            driven.process.end()

    def _take(self) -> Driven:
        while self._idle:
            driven = self._idle.pop()
            if driven.process.alive:  # not one that another process has started
                driven.process.forget()
                return driven
        return self.start()

    def process(self) -> Process:
        """A new process, to which nobody has said hello.

        :raises CommandError: it does not start.
        """
        try:
            return Process(self._words, self._folder)
        except OSError as error:
            raise CommandError(f"{self._words[0]!r} cannot be started: {(error.strerror or str(error)).lower()}") from None

    def start(self) -> Driven:
        """A new process that has said hello.

        :raises CommandError: it does not start.
        :raises RemoteError: it gives no right answer.
        """
        process = self.process()
        try:
            return Driven(process)
        except BaseException:
            process.end(kindly=False)
            raise


class Driven:
    """A process that has said hello."""

    def __init__(self, process: Process) -> None:
        """Ask a process who is there.

        :raises RemoteError: it gives no right answer.
        """
        self.process = process
        self._numbers = itertools.count()
        message = m.HelloMessage(id=self.next(), kvspec=importlib.metadata.version("kvspec"))
        self.hello = checked_hello(reading.or_raise(self.ask(message, "to hello"), m.HelloAnswer, "hello"))

    def next(self) -> int:
        """The number of the next message."""
        return next(self._numbers)

    def ask(self, message: Any, doing: str) -> m.Answer:
        """Send a message and read its answer; a process whose answer cannot be read is ended."""
        line = self.process.ask(m.line_of(message), doing)
        try:
            return reading.answer(line, message.message, message.id)
        except RemoteError as error:
            error.lines = error.lines or self.process.last_lines()
            self.process.end(kindly=False)
            raise


class Remote:
    """A system in another process."""

    def __init__(self, command: Command, driven: Driven, setup: Setup, device: str) -> None:
        """``device``: what it says that it works on."""
        self.capabilities = command.capabilities
        self.device = device
        self.file_accesses = 0
        self._command = command
        self._driven: Driven | None = driven
        self._setup = setup
        self._step = 0

    def apply(self, op: Operation) -> Outcome:
        """Have one operation carried out."""
        driven = self._here()
        one = operation(op)
        message = m.ApplyMessage(id=driven.next(), step=self._step, verb=one.verb, arguments=one.arguments)
        self._step += 1
        found = reading.or_raise(_no_limit(driven.ask(message, f"in {op.verb}")), m.ApplyAnswer, f"apply of {op.verb}")
        self.file_accesses = found.file_accesses
        if found.error is not None:
            return Outcome.failed(found.error, found.text)
        return Outcome(reading.value(op.verb, found.value), None, found.text)

    def observe(self) -> Observation:
        """Have it show everything."""
        driven = self._here()
        found = reading.or_raise(driven.ask(m.ObserveMessage(id=driven.next()), "to observe"), m.ObserveAnswer, "observe")
        if (found.facts is None) == (found.observation is None):
            raise reading.NotUnderstood("the answer to observe has either facts or an observation, not both and not neither")
        if found.observation is not None:
            return found.observation
        assert found.facts is not None
        try:
            return observation(self._setup, found.facts, self._command.unobserved)
        except AdapterError as error:
            raise reading.NotUnderstood(f"the answer to observe cannot be: {error}") from None
        except ValidationError as error:
            raise reading.NotUnderstood(f"the answer to observe cannot be read: {reading.mistakes(error, 'facts')}") from None

    def close(self) -> None:
        """Have it give everything back. Idempotent."""
        if self._driven is None:
            return
        driven, self._driven = self._driven, None
        if not driven.process.alive:
            return
        try:
            reading.or_raise(driven.ask(m.CloseMessage(id=driven.next()), "to close"), m.CloseAnswer, "close")
        finally:
            self._command.leave(driven)

    def _here(self) -> Driven:
        if self._driven is None:
            raise RemoteError("it is closed")
        if not self._driven.process.alive:
            raise RemoteError("its process has ended before")
        return self._driven


def operation(op: Operation) -> m.WrittenOperation:
    """An operation as it is written: with all its arguments."""
    return m.WrittenOperation(verb=op.verb, arguments=op.model_dump(mode="json", by_alias=True))


def checked_hello(hello: m.HelloAnswer) -> m.HelloAnswer:
    """The answer to hello, if every word in it is known.

    :raises NotUnderstood: another version, or a word that there is not.
    """
    if hello.protocol != m.VERSION:
        raise reading.NotUnderstood(f"it speaks version {hello.protocol} of the protocol, this is version {m.VERSION}")
    try:
        checked_aspects(hello.unobserved)
        checked_offer(hello.policies)
    except (AspectError, PolicyError) as error:
        raise reading.NotUnderstood(f"the answer to hello: {error}") from None
    for verb, names in hello.arguments.items():
        if verb not in VERBS:
            raise reading.NotUnderstood(f"the answer to hello: arguments: {_unknown(verb, VERBS)}")
        known = _fields(verb)
        for name in names:
            if name not in known:
                raise reading.NotUnderstood(f"the answer to hello: arguments of {verb}: {_unknown(name, known)}")
        required = VERBS[verb].model_fields
        missing = [name for name, field in known.items() if required[field].is_required() and name not in names]
        if missing:
            text = f"must have {', '.join(missing)}, which every use of the verb gives"
            raise reading.NotUnderstood(f"the answer to hello: arguments of {verb}: {text}")
    return hello


def _fields(verb: str) -> dict[str, str]:
    """By its name on the wire, each argument of a verb as Python calls it."""
    return {field.alias or name: name for name, field in VERBS[verb].model_fields.items()}


def _unknown(word: str, known: Any) -> str:
    return f"there is no {word!r}." + (did_you_mean(word, known) or f" There are: {', '.join(known)}")


def _no_limit(found: m.Answer) -> m.Answer:
    if isinstance(found, m.Limit):
        raise DeviceLimit(found.limit)
    if isinstance(found, m.Unsupported):
        raise Unsupported(found.unsupported)
    return found
