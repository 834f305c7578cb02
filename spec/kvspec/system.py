"""What a system under test is: anything that applies operations and can be observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from kvspec.config import ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.observation import Counters, Observation
from kvspec.ops import Operation

COMMAND = "cmd:"
"""How the name of a system begins that is a command."""


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """What `dense_offsets` returns (R11.3): by layer and request, one offset per block (BAD stays BAD).

    An offset is ``slot * scale[layer] + base[layer]`` (R1.7).
    """

    scale: Mapping[str, int]
    base: Mapping[str, int]
    offsets: Mapping[str, Mapping[str, tuple[int, ...]]]


Value: TypeAlias = bool | int | tuple[int, ...] | tuple[bool | None, ...] | Counters | OffsetTable | Mapping[str, str] | None
"""What an operation may return. Row lists are tuples, ascending; `stats` returns counters; `iterate` what came of a request."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operation: a value, or an error of a known kind, with a message for the reader.

    ``message`` is not compared. With an error it says what is wrong and what to do; with a value it may say why that is false, or
    a match no longer: what was needed and what there was.
    """

    value: Value = None
    error: ErrorKind | None = None
    message: str = ""

    @classmethod
    def failed(cls, error: ErrorKind, message: str) -> Outcome:
        """An outcome that is an error."""
        return cls(None, error, message)


class DeviceLimit(Exception):
    """The device under a system cannot do what a scenario needs, whether or not the system is right.

    A system lets it out of ``apply``; its text says what cannot be done and what to do. The scenario is skipped from there on.
    """


class RemoteError(Exception):
    """A system outside of this process did something wrong: it ended, gave no answer, or one that cannot be read.

    ``str()`` of it says what; ``lines`` is what there is to see of it, such as the end of its standard error.
    """

    def __init__(self, text: str, lines: tuple[str, ...] = ()) -> None:
        """An error whose text is ``text``."""
        super().__init__(text)
        self.lines = lines


class Unsupported(Exception):
    """A system cannot do what a scenario needs, and knows that only now; what it cannot do at all it declares.

    A system lets it out of ``apply``, or while it is built; its text says in short what cannot be done. The scenario is skipped
    from there on, and counted with what the system lacks. Random lifecycles pass the call over and go on, so it must have changed
    nothing.
    """

    def __init__(self, reason: str) -> None:
        """``reason``: what cannot be done, such as ``resize by less than a block``."""
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a system is built with.

    ``streams``: the names that scenarios may use, ``exec`` first. ``options``: what the command line hands
    through, by name: ``device`` (auto, sim, cuda), ``schedule`` (fifo, adversarial, seed=N), ``mutant``,
    ``check`` (on, off), ``poison`` (on, off). A system ignores options that it does not know.
    """

    manager: ManagerConfig
    streams: tuple[str, ...] = ("exec",)
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """Of a page: its priority, and the step in which it left LOCKED or, never locked, was made (R10.2)."""

    priority: int
    since: int


class System(Protocol):
    """A cache manager under test. Build it with a ``Setup``: ``MySystem(setup)``.

    ``capabilities``, a class attribute: the verbs that it can apply, and named features (``async``: submitted work can be held
    up by gates and seen to be pending). A scenario that needs more is skipped, with the reason.

    More class attributes may be there. ``unobserved``, a frozenset: parts of an observation that the system cannot show
    (``phase``, ``eligible``, ``payloads``, ``order``, ``tree``, ``eviction``, ``counters``, ``events``, ``versions``,
    ``device``, ``staging``); the rest is compared, and every summary says what was not. ``policies``, by the names of
    ``kvspec.policies``: where the system does otherwise than the rules, and is not wrong; the reference then does the same, and
    every summary says so. ``raises``, a frozenset of error kinds: those that the system can tell; a scenario that means another
    is skipped. ``lacks``, called with a scenario: what else it needs that the system cannot do, a short text each. A method
    ``turns`` may be there, for ``kvspec explain`` alone: a `Turn` for each page of the observation, in its order; what is
    compared is the order of eviction that follows from them. ``kvspec.adapter`` builds all of it from a class with a method per
    verb.
    """

    capabilities: frozenset[str]

    def apply(self, op: Operation) -> Outcome:
        """Carry out one operation. Never raises for an error of a known kind: that is an outcome.

        Raises ``DeviceLimit``, ``Unsupported``.
        """
        ...

    def observe(self) -> Observation:
        """Everything that the harness compares, now. Changes nothing."""
        ...

    def close(self) -> None:
        """Give back every resource. Idempotent."""
        ...
