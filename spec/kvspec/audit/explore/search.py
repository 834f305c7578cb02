"""The breadth-first search: states in layers by their depth, each state once, by the least path to it.

What comes out hangs neither on the number of processes nor on who of them is quick: of several paths of the same length the one
whose moves come first is kept.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kvspec.audit.explore.expanding import Expanded, Kind, Move, Path, Plan, Violation, Walker, expand, forget
from kvspec.harness.workers import Ended

CHUNK = 128
"""So many states make a question."""


class Answering(Protocol):
    """Whoever answers questions: processes, the workers of a cluster, or this process."""

    @property
    def ahead(self) -> int:
        """How many questions to have asked, so that nobody waits."""
        ...

    @property
    def unanswered(self) -> int:
        """How many questions have no answer yet."""
        ...

    def ask(self, key: Hashable, function: Callable[..., Any], *args: Any) -> None:
        """Have ``function(*args)`` answered."""
        ...

    def answers(self) -> Iterator[tuple[Hashable, Any]]:
        """The key and the answer of each question, as they come."""
        ...


class Here:
    """Answers in this process."""

    ahead = 1

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self._asked: deque[tuple[Hashable, Callable[..., Any], tuple[Any, ...]]] = deque()

    @property
    def unanswered(self) -> int:
        """How many questions have no answer yet."""
        return len(self._asked)

    def ask(self, key: Hashable, function: Callable[..., Any], *args: Any) -> None:
        """Keep a question until its answer is wanted."""
        self._asked.append((key, function, args))

    def answers(self) -> Iterator[tuple[Hashable, Any]]:
        """Answer what was asked, one after the other."""
        while self._asked:
            key, function, args = self._asked.popleft()
            yield key, function(*args)


@dataclass(slots=True)
class Layer:
    """What was found in going on from the states of one depth: ``depth`` is that of the states found."""

    depth: int
    states: int = 0
    transitions: int = 0
    expanded: int = 0
    asked: int = 0


@dataclass(slots=True)
class Explored:
    """What was gone through. Layer 0 has the first state alone.

    ``parents``, ``moves``, ``keys``: by number, the state that each one was found from, how, and its digest.
    ``violations``: those of the least depth. ``kinds``: of each kind of transition the first, by the number of its state.
    ``lost``: questions without an answer.
    ``seconds``: of all processors.
    """

    plan: Plan
    layers: list[Layer] = field(default_factory=lambda: [Layer(0, 1)])
    parents: array[int] = field(default_factory=lambda: array("I", [0]))
    moves: array[int] = field(default_factory=lambda: array("I", [0]))
    keys: list[bytes] = field(default_factory=list)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    kinds: dict[Kind, tuple[int, Move]] = field(default_factory=dict)
    lost: list[Ended] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.parents)

    @property
    def transitions(self) -> int:
        """How many operations were carried out."""
        return sum(layer.transitions for layer in self.layers)

    def path(self, number: int) -> Path:
        """The moves to a state."""
        found: list[Move] = []
        while number:
            found.append(self.moves[number])
            number = self.parents[number]
        return tuple(reversed(found))


Tell = Callable[[Explored], None]
"""Called as the search goes on."""


def explore(plan: Plan, depth: int, answering: Answering, tell: Tell = lambda _: None, kinds: bool = False) -> Explored:
    """Go through all states up to a depth. Ends at the first depth at which something is broken, or where nothing new is found.

    :param kinds: whether the kinds of transitions are wanted.
    """
    forget()
    done = Explored(plan, keys=[_first_key(plan)])
    seen = set(done.keys)
    numbers = range(1)
    for deep in range(1, depth + 1):
        found = _layer(done, numbers, Layer(deep, asked=len(numbers)), answering, tell, kinds)
        new = sorted((at, key) for key, at in found.items() if key not in seen)
        numbers = range(done.states, done.states + len(new))
        for (parent, move), key in new:
            seen.add(key)
            done.parents.append(parent)
            done.moves.append(move)
            done.keys.append(key)
        done.layers[-1].states = len(new)
        tell(done)
        if not new or done.violations or done.lost:
            break
    return done


def _first_key(plan: Plan) -> bytes:
    walker = Walker(plan)
    return walker.exploring.key(walker.first)


def _layer(
    done: Explored, numbers: range, layer: Layer, answering: Answering, tell: Tell, kinds: bool
) -> dict[bytes, tuple[int, Move]]:
    """Go on from the states of a layer: of each state that is reached, the least parent and move."""
    done.layers.append(layer)
    found: dict[bytes, tuple[int, Move]] = {}
    chunks = iter([numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)])

    def more() -> None:
        if not done.violations and not done.lost:
            for chunk in itertools.islice(chunks, max(0, answering.ahead - answering.unanswered)):
                answering.ask(chunk.start, expand, done.plan, [done.path(number) for number in chunk], kinds)

    more()
    while answering.unanswered:
        for start, answer in answering.answers():
            assert isinstance(start, int)
            if isinstance(answer, Ended):
                done.lost.append(answer)
                continue
            _take(done, layer, start, answer, found)
            layer.expanded += min(CHUNK, numbers.stop - start)
            tell(done)
            more()
    done.violations.sort(key=lambda one: one.at)
    return found


def _take(done: Explored, layer: Layer, start: int, answer: Expanded, found: dict[bytes, tuple[int, Move]]) -> None:
    layer.transitions += answer.transitions
    done.seconds += answer.seconds
    done.outcomes.update(answer.outcomes)
    done.violations += [replace(one, at=(start + one.at[0], one.at[1])) for one in answer.violations]
    for key, (place, move) in answer.found.items():
        at = start + place, move
        if key not in found or at < found[key]:
            found[key] = at
    for kind, (place, move) in answer.kinds.items():
        at = start + place, move
        if kind not in done.kinds or at < done.kinds[kind]:
            done.kinds[kind] = at
