"""The order of device work (section 7): what a piece of work runs behind, as a value.

A piece of work is the set of gates that it is behind and, for each stream, how many of the stream's user-visible items (payload
writes, reads, gates, uploads) it runs after. Ordering one piece after others is `join`. Whether it is pending is a question
about the gates that are still closed, so opening a gate touches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvref.maps import Map
from kvspec.observation import Order


@dataclass(frozen=True)
class Work:
    """A node of the device's order. ``gates``: by number, opened ones included. ``after``: items by stream."""

    gates: frozenset[int] = frozenset()
    after: Map[str, int] = Map()  # noqa: RUF009 - immutable


NOTHING = Work()
"""Work that has nothing before it: done from the start."""


@dataclass(frozen=True)
class Stream:
    """A stream: ``last``, what the work submitted next follows; ``log``, the step of each user-visible item so far.

    The log is as long as the scenario: any order that is shown may name any of its steps.
    """

    last: Work = NOTHING
    log: tuple[int, ...] = ()


def join(*works: Work) -> Work:
    """The least order that is behind all of ``works``; the one that is, where that is one of them."""
    several = {id(work): work for work in works if work.gates or work.after}
    if len(several) < 2:
        return next(iter(several.values()), NOTHING)
    after: dict[str, int] = {}
    for work in several.values():
        for stream, item in work.after.items():
            if item > after.get(stream, 0):
                after[stream] = item
    gates = frozenset().union(*(work.gates for work in several.values()))
    last = Work(gates, Map(after))
    return next((work for work in several.values() if work == last), last)


def pending(work: Work, closed: Map[str, int]) -> bool:
    """Whether a closed gate holds the work up. ``closed``: the number of each closed gate by label."""
    return bool(work.gates) and any(gate in work.gates for gate in closed.values())


def observed(work: Work, closed: Map[str, int], streams: Map[str, Stream]) -> Order:
    """The work as it is observed: labels of closed gates; by stream, the last step all of whose items it runs after."""
    after: dict[str, int] = {}
    for name, item in work.after.items():
        log = streams[name].log
        whole = item == len(log) or log[item] > log[item - 1]  # else the step has items that came later
        step = log[item - 1] if whole else log[item - 1] - 1
        if step >= 0:
            after[name] = step
    return Order(frozenset(label for label, gate in closed.items() if gate in work.gates), after)
