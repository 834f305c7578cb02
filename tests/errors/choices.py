"""What can be wrong with a call, and which of several errors section 9 says it is: worked out here, from neither system."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

from kvspec.errors import ErrorKind

Arguments: TypeAlias = Mapping[str, Any]


class Stage(IntEnum):
    """The order of section 9. ``OWN``: what a rule of the verb puts before the values that can never be right."""

    NAME = 0
    RANGE = 1
    OWN = 2
    INVALID = 3
    LOGIC = 4
    SLOTS = 5


def _always(_: Arguments) -> bool:
    return True


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong. ``place``: among names, in which place they are given."""

    kind: ErrorKind
    stage: Stage
    place: int = 0
    when: Callable[[Arguments], bool] = _always


@dataclass(frozen=True)
class Choice:
    """A value for an argument, and what is wrong with it, if anything is."""

    value: Any
    faults: tuple[Fault, ...] = ()


def right(value: Any) -> Choice:
    return Choice(value)


def unknown(value: Any, place: int = 0) -> Choice:
    return Choice(value, (Fault(ErrorKind.OUT_OF_RANGE, Stage.NAME, place),))


def closed(value: Any, place: int = 0) -> Choice:
    return Choice(value, (Fault(ErrorKind.LOGIC_ERROR, Stage.NAME, place),))


def missing(value: Any) -> Choice:
    """No such stream, group, layer, buffer, label."""
    return Choice(value, (Fault(ErrorKind.OUT_OF_RANGE, Stage.RANGE),))


def never(value: Any, when: Callable[[Arguments], bool] = _always) -> Choice:
    """A value that can never be right."""
    return Choice(value, (Fault(ErrorKind.INVALID_ARGUMENT, Stage.INVALID, when=when),))


def not_now(value: Any, when: Callable[[Arguments], bool] = _always, stage: Stage = Stage.LOGIC) -> Choice:
    """What the state does not allow."""
    return Choice(value, (Fault(ErrorKind.LOGIC_ERROR, stage, when=when),))


def full(value: Any) -> Choice:
    """More than there are slots."""
    return Choice(value, (Fault(ErrorKind.OUT_OF_PAGES, Stage.SLOTS),))


def both(one: Choice, *others: Choice) -> Choice:
    """All that is wrong with one value."""
    return Choice(one.value, tuple(fault for choice in (one, *others) for fault in choice.faults))


@dataclass(frozen=True)
class Verb:
    """The choices for each argument, the right one first. ``also``: what is wrong with arguments together, or with the state."""

    arguments: Mapping[str, tuple[Choice, ...]]
    also: tuple[Fault, ...] = field(default=())

    def calls(self, most: int = 3) -> Iterator[tuple[Arguments, ErrorKind]]:
        """Every call with up to ``most`` arguments other than the right ones in which something is wrong, and its error."""
        names = list(self.arguments)
        for chosen in itertools.product(*(range(len(choices)) for choices in self.arguments.values())):
            if sum(map(bool, chosen)) > most:
                continue
            picked = {name: self.arguments[name][number] for name, number in zip(names, chosen, strict=True)}
            given = {name: choice.value for name, choice in picked.items()}
            found = [fault for choice in picked.values() for fault in choice.faults]
            wrong = [fault for fault in (*found, *self.also) if fault.when(given)]
            if wrong:
                yield given, min(wrong, key=lambda fault: (fault.stage, fault.place)).kind
