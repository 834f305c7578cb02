"""What a process does with some states of a small model: everything that can be tried in each, and what comes of it.

A state is given by its path, the moves from the beginning, so that a process keeps none; states that follow one another mostly
have the same parent, which is then gone on from.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path as File
from typing import Any, TypeAlias

from kvspec import ops
from kvspec.audit.explore.alphabet import operations
from kvspec.audit.explore.models import SmallModel, small_model
from kvspec.config import Ownership
from kvspec.exploring import Broken, Exploring
from kvspec.harness.systems import find_system
from kvspec.ops import Direction, Operation
from kvspec.system import Outcome, Setup

Move: TypeAlias = int
"""Which of the operations of a state, and which copy of it is refused: `operation_of`, `fault_of`."""
Path: TypeAlias = tuple[Move, ...]
Kind: TypeAlias = tuple[str, str, str, str, str]
"""A kind of transition: `kinds_of`."""

_DIRECTIONS = tuple(Direction)
_OPERATIONS = 1 << 8
"""More than are tried in any state."""
HAS_AN_OUTCOME = "every operation has an outcome", "section 9"
CAN_BE_LOOKED_AT = "every state can be looked at", "section 2"
"""What holds besides the invariants of a reference."""
MOST_CHECKED = 1 << 20
"""So many states that were in order are remembered by a process."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What every process is told: the small model and its ownership, and the name of the reference."""

    model: str
    ownership: str = Ownership.SHARED.value
    against: str = "kvref"

    def small(self) -> SmallModel:
        """The small model. Raises `NoModel`."""
        return small_model(self.model).owned(Ownership(self.ownership))


@dataclass(frozen=True, slots=True)
class Violation:
    """A path whose last move breaks something; ``at``: the number of the state before it, and the move."""

    at: tuple[int, Move]
    path: Path
    broken: tuple[Broken, ...]


@dataclass(slots=True)
class Expanded:
    """What came of some states.

    ``found``: of each state that was reached, by its digest, the least path to it: the place of its parent among the states, and
    the move. ``outcomes``: how often each operation came to what. ``kinds``: of each kind of transition the first.
    ``seconds``: of the processor.
    """

    transitions: int = 0
    seconds: float = 0.0
    found: dict[bytes, tuple[int, Move]] = field(default_factory=dict)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    kinds: dict[Kind, tuple[int, Move]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transition:
    """A move from a state: the refusal that comes before its operation, if one does, the outcome and the state after.

    ``raised``: what came instead of an outcome; that is a mistake of the reference.
    """

    move: Move
    fault: ops.FailCopy | None
    op: Operation
    outcome: Outcome
    before: Any
    after: Any
    raised: str = ""

    @property
    def result(self) -> str:
        """``done``, ``false``, or the kind of error."""
        if self.outcome.error is not None:
            return self.outcome.error.value
        return "false" if self.outcome.value is False else "done"


class Walker:
    """Goes through the states of a small model, one at a time."""

    def __init__(self, plan: Plan) -> None:
        """:raises SystemNotFound: the reference is not there. :raises NoModel: there is no such model."""
        self.model = plan.small()
        self.exploring: Exploring[Any] = exploring_of(plan.against)
        self.first: Any = self.exploring.initial(Setup(self.model.manager, self.model.streams))
        for op in self.model.begin:
            self.first, _ = self.exploring.step(self.first, op)
        self.trail: list[tuple[Move, Any]] = []

    def at(self, path: Path) -> Any:
        """The state at the end of a path."""
        same = 0
        while same < min(len(path), len(self.trail)) and self.trail[same][0] == path[same]:
            same += 1
        del self.trail[same:]
        state = self.trail[-1][1] if self.trail else self.first
        for move in path[same:]:
            state = self.take(state, move).after
            self.trail.append((move, state))
        return state

    def take(self, state: Any, move: Move) -> Transition:
        """One move from a state."""
        op = operations(self.model, self.exploring.facts(state))[move % _OPERATIONS]
        return self.tried(state, move, op)

    def tried(self, state: Any, move: Move, op: Operation) -> Transition:
        """An operation, and what the move says besides, in a state."""
        fault = _fault(move // _OPERATIONS)
        begun = state if fault is None else self.exploring.step(state, fault)[0]
        try:
            after, outcome = self.exploring.step(begun, op)
        except Exception as error:  # whatever it is, it is no outcome
            return Transition(move, fault, op, Outcome(), begun, begun, _said(error))
        return Transition(move, fault, op, outcome, begun, after)

    def transitions(self, state: Any) -> Iterator[Transition]:
        """Everything that is tried in a state: each operation, then with each of its copies refused."""
        faults = "fail_copy" in self.model.verbs
        for number, op in enumerate(operations(self.model, self.exploring.facts(state))):
            made = self.tried(state, number, op)
            yield made
            if faults and made.outcome.error is None and not made.raised:
                for kind, count in self.exploring.submitted(made.before, op, made.after).items():
                    for call in range(1, count + 1):
                        for queued in (False, True):
                            yield self.tried(state, number + _OPERATIONS * _code(kind, call, queued), op)


def expand(plan: Plan, paths: Sequence[Path], kinds: bool = False) -> Expanded:
    """Everything that can be done in the states at the end of these paths.

    :param kinds: whether the kinds of transitions are wanted, which takes time.
    """
    walker, checked = _of_process(plan)
    exploring, done, start = walker.exploring, Expanded(), time.process_time()
    for place, path in enumerate(paths):
        state = walker.at(path)
        own = exploring.key(state)
        for made in walker.transitions(state):
            done.transitions += 1
            done.outcomes[made.op.verb, made.result] += 1
            for kind in kinds_of(exploring, made) if kinds and not made.raised else ():
                done.kinds.setdefault(kind, (place, made.move))
            if made.outcome.error is not None and exploring.same(made.before, made.after) and made.fault is None:
                continue  # nothing to look at: most calls that are refused for their arguments
            key, broken = look(exploring, made, checked)
            if broken:
                done.violations.append(Violation((place, made.move), (*path, made.move), tuple(broken)))
                continue
            checked.add(key)
            if key != own and key not in done.found:
                done.found[key] = place, made.move
    if len(checked) > MOST_CHECKED:
        checked.clear()
    done.seconds = time.process_time() - start
    return done


def look(exploring: Exploring[Any], made: Transition, checked: Container[bytes]) -> tuple[bytes, list[Broken]]:
    """The key of the state after a transition, and what is broken. ``checked``: the states that are known to be in order."""
    if made.raised:
        return b"", [Broken(*HAS_AN_OUTCOME, made.raised)]
    try:
        broken = list(exploring.broken_by(made.before, made.op, made.outcome, made.after))
        key = exploring.key(made.after)
        return key, broken if key in checked else [*broken, *exploring.broken_in(made.after)]
    except Exception as error:  # a state so broken that it cannot be looked at
        return b"", [Broken(*CAN_BE_LOOKED_AT, _said(error))]


def _said(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {File(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


def kinds_of(exploring: Exploring[Any], made: Transition) -> tuple[Kind, Kind]:
    """The kinds of a transition: verb, result, which copy was refused; with the kind of state before, and with what happens."""
    refused = "" if made.fault is None else f"{made.fault.direction.value} refused"
    situation, events = exploring.kind(made.before, made.op, made.outcome, made.after)
    return (made.op.verb, made.result, refused, "in", situation), (made.op.verb, made.result, refused, "does", events)


def exploring_of(name: str) -> Exploring[Any]:
    """What explores a reference. Raises `SystemNotFound`, and `CannotExplore` if its states are no values."""
    found: Exploring[Any] | None = getattr(find_system(name), "exploring", None)
    if found is None:
        raise CannotExplore(f"{name} cannot be explored: it has no class attribute 'exploring' (kvspec.exploring.Exploring)")
    return found


class CannotExplore(Exception):
    """A system is not made to be explored. ``str()`` of it says what it lacks."""


@lru_cache(maxsize=2)
def _of_process(plan: Plan) -> tuple[Walker, set[bytes]]:
    """The walker of a process, and the states that it has found to be in order."""
    return Walker(plan), set()


def forget() -> None:
    """Forget what this process knows of the reference: it may be another one."""
    _of_process.cache_clear()


def _code(kind: Direction, call: int, queued: bool) -> int:
    return 1 + (_DIRECTIONS.index(kind) + len(_DIRECTIONS) * (call - 1)) * 2 + queued


def _fault(code: int) -> ops.FailCopy | None:
    if not code:
        return None
    rest, queued = divmod(code - 1, 2)
    call, kind = divmod(rest, len(_DIRECTIONS))
    return ops.FailCopy(direction=_DIRECTIONS[kind], call=call + 1, queued=bool(queued))
