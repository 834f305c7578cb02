"""The names of reached states: each with what it is, and the function of a step that recognises it.

To add one, write a function of a `Moment` in a module here and put ``@state(name, title)`` before it; every table has it then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvspec.audit.moment import Moment

Recognise = Callable[[Moment], bool]


@dataclass(frozen=True, slots=True)
class Reachable:
    """A named state: ``title`` says what it is, ``recognise`` whether a step came to it."""

    name: str
    title: str
    recognise: Recognise


STATES: dict[str, Reachable] = {}
"""Every named state, in the order of the table."""


def state(name: str, title: str) -> Callable[[Recognise], Recognise]:
    """Name a state that the function recognises. Raises ``ValueError`` for a name that is taken."""

    def add(recognise: Recognise) -> Recognise:
        if name in STATES:
            raise ValueError(f"two states are called {name!r}")
        STATES[name] = Reachable(name, title, recognise)
        return recognise

    return add
