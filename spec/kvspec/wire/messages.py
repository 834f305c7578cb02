"""The messages of the protocol and the answers to them: one model each, of which docs/protocol.schema.json is made.

A message or an answer is a JSON object on a line of its own. Keys may be added to messages while the version stays, so a system
passes over keys that it does not know; an answer with one is refused, since it is a slip of the pen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from kvspec.adapter import Facts
from kvspec.config import ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.observation import Observation
from kvspec.policies import PolicyValue

VERSION = 1
"""The version of the protocol; it rises when an old system could not follow any more."""


class Part(BaseModel):
    """Base of everything on the wire. Bytes are written as hexadecimal digits."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_bytes="hex", val_json_bytes="hex", use_attribute_docstrings=True
    )


class Message(Part):
    """Base of the messages to a system."""

    id: int
    """The number of the message; its answer has the same."""


class WrittenOperation(Part):
    """A verb and all its arguments, those with a default too."""

    verb: str
    arguments: Mapping[str, Any]


class HelloMessage(Message):
    """The first message: who is there?"""

    message: Literal["hello"] = "hello"
    protocol: int = VERSION
    """The version that is spoken."""
    kvspec: str = ""
    """The version of kvspec, for the log."""


class LacksMessage(Message):
    """What does a scenario need that the system cannot do? Only a system that said ``lacks: true`` is asked."""

    message: Literal["lacks"] = "lacks"
    manager: ManagerConfig
    streams: tuple[str, ...]
    requires: tuple[str, ...]
    """The capabilities that it asks for by name."""
    steps: tuple[WrittenOperation, ...]


class ManagerMessage(Message):
    """Build a manager. The one before, if there is one, is given back first."""

    message: Literal["manager"] = "manager"
    manager: ManagerConfig
    groups: tuple[str, ...]
    """The names of the layer groups, in order (R1.5)."""
    streams: tuple[str, ...]
    """The streams that may be named, ``exec`` first."""
    options: Mapping[str, str]
    """What the command line hands through, such as ``device``; unknown ones are passed over."""


class ApplyMessage(Message):
    """Carry out one operation."""

    message: Literal["apply"] = "apply"
    step: int
    """How many operations this manager has carried out before."""
    verb: str
    arguments: Mapping[str, Any]
    """All arguments of the verb, those with a default too."""


class ObserveMessage(Message):
    """Show everything that can be seen now, and change nothing."""

    message: Literal["observe"] = "observe"


class CloseMessage(Message):
    """Give the manager back. The process stays for the next one."""

    message: Literal["close"] = "close"


class Answer(Part):
    """Base of the answers of a system."""

    id: int
    """The number of the message that is answered."""


class HelloAnswer(Answer):
    """Who is there, and what it can do."""

    protocol: int
    """The version that the system speaks."""
    name: str
    """What the system is called, for reports."""
    capabilities: tuple[str, ...]
    """The verbs that it can do, and features beside them (``async``: gates hold its streams)."""
    arguments: Mapping[str, tuple[str, ...]] = {}
    """By verb the arguments that it takes; a verb that is left out takes all."""
    unobserved: tuple[str, ...] = ()
    """What it cannot show, in the words of docs/adapter.md; the rest is compared."""
    policies: Mapping[str, PolicyValue | tuple[PolicyValue, ...]] = {}
    """Where it does otherwise than the rules, and is not wrong: a value, or several, its own first (docs/adapter.md)."""
    raises: tuple[ErrorKind, ...] | None = None
    """The kinds of errors that it can tell, null for all: a scenario that means another is skipped."""
    lacks: bool = False
    """Whether it wants to be asked of each scenario what it lacks for it."""


class LacksAnswer(Answer):
    """What is lacking, a short text each; the scenario is skipped unless the list is empty."""

    lacks: tuple[str, ...]


class ManagerAnswer(Answer):
    """The manager is there."""

    device: str = "unknown"
    """What it works on: ``sim``, ``cuda``, or a word of its own."""


class ApplyAnswer(Answer):
    """What the operation returned, or the error that it ended in."""

    value: Any = None
    """What it returned: true, false, a whole number, null, a list of these, or what the verb says."""
    error: ErrorKind | None = None
    """The kind of error that it ended in; ``value`` is null then."""
    text: str = ""
    """For the reader, not compared: why it is an error, or false."""
    file_accesses: int = 0
    """How many accesses to files were made so far, so that ``kvspec sweep`` can have each refused; 0 if there are none."""


class ObserveAnswer(Answer):
    """What is seen: in short as facts, or all of it as an observation."""

    facts: Facts | None = None
    observation: Observation | None = None


class CloseAnswer(Answer):
    """The manager is gone."""


class Wrong(Answer):
    """In the place of any answer: the message could not be understood, or comes at a wrong moment."""

    id: int | None  # type: ignore[assignment]
    """The number of the message, null if it has none."""
    wrong: str
    """What is wrong with it."""


class Limit(Answer):
    """In the place of an answer: the device cannot do it, whether or not the system is right. The scenario is skipped."""

    limit: str
    """What cannot be done, and what to do."""


class Unsupported(Answer):
    """In the place of an answer: the system cannot do it, and knows that only now. The scenario is skipped."""

    unsupported: str
    """What cannot be done, in short: it is counted with what the system lacks."""


class Failed(Answer):
    """In the place of an answer: the system itself is broken, it let an exception out. The scenario fails."""

    failed: str
    """The exception, in a line."""
    lines: tuple[str, ...] = ()
    """Where it was, the innermost first."""


MESSAGES: Mapping[str, type[Message]] = {
    "hello": HelloMessage,
    "lacks": LacksMessage,
    "manager": ManagerMessage,
    "apply": ApplyMessage,
    "observe": ObserveMessage,
    "close": CloseMessage,
}
"""By its name, each message."""

ANSWERS: Mapping[str, type[Answer]] = {
    "hello": HelloAnswer,
    "lacks": LacksAnswer,
    "manager": ManagerAnswer,
    "apply": ApplyAnswer,
    "observe": ObserveAnswer,
    "close": CloseAnswer,
}
"""By the name of a message, its answer."""

Instead: TypeAlias = Wrong | Limit | Unsupported | Failed
INSTEAD: Mapping[str, type[Instead]] = {"wrong": Wrong, "limit": Limit, "unsupported": Unsupported, "failed": Failed}
"""What may come in the place of any answer, by the key that tells it."""

Anything: TypeAlias = Message | Answer


def line_of(thing: Anything) -> bytes:
    """A message or an answer as it goes over the wire, the end of the line included. An answer leaves out what is the default."""
    short = isinstance(thing, Answer)
    text = thing.model_dump_json(by_alias=True, exclude_defaults=short, warnings=False, fallback=dict)
    return text.encode("utf-8", errors="backslashreplace") + b"\n"
