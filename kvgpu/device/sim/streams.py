"""Streams as queues, events as positions in them, gates, and the vector clocks that go with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Clock = Mapping[str, int]
"""By stream name, a number of submissions. Never changed once it is shared."""

NOTHING: Clock = {}


def joined(a: Clock, b: Clock) -> Clock:
    """The least clock that includes both. Returns ``a`` itself where ``b`` adds nothing."""
    if a is b or not b:
        return a
    news = {name: count for name, count in b.items() if count > a.get(name, 0)}
    return {**a, **news} if news else a


@dataclass(slots=True, eq=False)
class SimGate:
    """A gate: an item of a stream that is over once ``open`` was called."""

    label: str
    closed: bool = True

    def open(self) -> None:
        """Let the stream go on. Runs nothing by itself. Idempotent."""
        self.closed = False


Gates = frozenset[SimGate]


@dataclass(slots=True)
class Item:
    """One entry of a queue: work, a wait for an event or a gate. ``order``: its number among all items of the device."""

    order: int
    work: Callable[[], None] | None = None
    event: SimEvent | None = None
    gate: SimGate | None = None


@dataclass(slots=True, eq=False)
class SimStream:
    """A queue of items. ``others``: what is known of other streams (what it says of itself counts for nothing beside
    ``submitted``).

    ``appended`` and ``retired`` count the items ever queued and over. ``gates``: every gate upstream of the next item (those
    that have opened may still be in it). ``waiters``: streams whose first item waits for this one. ``clocked``: whether it is a
    component of clocks. ``given_back``: whether its user needs it no more.
    """

    name: str
    handle: int
    clocked: bool = True
    queue: deque[Item] = field(default_factory=deque)
    appended: int = 0
    retired: int = 0
    submitted: int = 0
    others: Clock = field(default_factory=dict)
    gates: Gates = frozenset()
    waiters: dict[SimStream, None] = field(default_factory=dict)
    given_back: bool = False

    def clock(self) -> Clock:
        """What the next submission runs after."""
        if self.clocked and self.submitted:
            return {**self.others, self.name: self.submitted}
        return self.others

    def closed_gates(self) -> Gates:
        """The closed gates upstream of the next item."""
        if self.gates:
            self.gates = frozenset(gate for gate in self.gates if gate.closed)
        return self.gates


@dataclass(slots=True, eq=False)
class SimEvent:
    """A position in a stream: passed once ``position`` items of it are over. ``stream`` is ``None`` for the empty position.

    ``force`` runs the work before it and tells the CPU; ``told``: whether it has.
    """

    stream: SimStream | None
    position: int
    others: Clock
    count: int
    gates: Gates
    force: Callable[[SimEvent], None]
    told: bool = False

    def passed(self) -> bool:
        """Whether the work before it has in fact run."""
        return self.stream is None or self.stream.retired >= self.position

    def clock(self) -> Clock:
        """By stream name, how many submissions it comes after: its vector clock."""
        if self.stream is not None and self.stream.clocked and self.count:
            return {**self.others, self.stream.name: self.count}
        return self.others

    def closed_gates(self) -> Gates:
        """The labels of closed gates that it runs behind."""
        if self.gates:
            self.gates = frozenset(gate for gate in self.gates if gate.closed)
        return self.gates

    def done(self) -> bool:
        """See ``api.Event.done``: no closed gate upstream; the work before it is then made to have run."""
        if not self.told:
            if self.closed_gates():
                return False
            self.force(self)
            self.told = True
        return True
