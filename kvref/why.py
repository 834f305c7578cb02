"""Why an operation is false, or a match no longer: values that travel with the operation, beside what it returns.

They are in the state's trace while the operation lasts; `kvref.step.step` hands them out in the outcome's message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kvspec.config import Level
from kvspec.ops import Operation
from kvspec.tokens import Token


@dataclass(frozen=True, slots=True)
class Shortage:
    """R3.14: a plan that does not fit. ``needed``: slots of a pool group, named by ``group``, the first that it serves.

    ``free``: those free for it; ``evictable``: those that pages can leave for it (R10.1); ``stuck``: evictable pages that cannot
    leave, as they are held and the level below has no room.
    """

    level: Level
    group: str
    needed: int
    free: int
    evictable: int
    stuck: int

    def __str__(self) -> str:
        """What was needed and what there was."""
        slots = f"{self.level.label} slot{'s' if self.needed != 1 else ''}"
        there = f"{self.free + self.evictable} there: {self.free} free, {self.evictable} evictable"
        stuck = f"; {self.stuck} held with nowhere to go" if self.stuck else ""
        return f"{self.needed} {slots} needed for {self.group}, {there}{stuck}"


@dataclass(frozen=True, slots=True)
class InUse:
    """R3.5: the GPU is too full to resume: ``used`` of ``slots`` in the fullest pool group, and the share that is allowed."""

    used: int
    slots: int
    limit: float

    def __str__(self) -> str:
        """How much is in use, and how much may be."""
        share = f"{self.used / self.slots:.2f}"
        return f"{self.used} of {self.slots} gpu slots are in use ({share}), above max_util_for_resume {self.limit:g}"


@dataclass(frozen=True, slots=True)
class TooFew:
    """R10.5: only ``can`` of the ``asked`` pages can leave a level."""

    level: Level
    asked: int
    can: int

    def __str__(self) -> str:
        """How many can leave, and what to do."""
        return f"only {self.can} of {self.asked} page(s) can leave level {self.level.label}: take fewer, or free slots below"


@dataclass(frozen=True, slots=True)
class Shorter:
    """R3.1: a match that covers ``matched`` of ``given`` tokens although the tree has ``known`` of them.

    ``group``, ``block``: the page that the longest match lacks, if it lacks one; ``inside``: it would end inside that block,
    where a state of an SSM group is of no use (R1.3). ``token``: else the first that the tree does not go on with.
    """

    matched: int
    given: int
    known: int
    group: str = ""
    block: int = 0
    inside: bool = False
    token: Token | None = None

    def __str__(self) -> str:
        """What the longer match lacks."""
        said = f"{self.matched} of {self.given} tokens matched"
        if not self.group:
            return f"{said}: the tree does not go on with token {self.token} there"
        known = f"{said}, though the tree has {self.known}"
        if self.inside:
            return f"{known}: they end inside block {self.block}, and a state of {self.group} is of whole blocks"
        return f"{known}: {self.group} lacks block {self.block}"


@dataclass(frozen=True, slots=True)
class NotNewest:
    """R6.5: the version in the snapshot ``label`` is not the newest any more."""

    label: str

    def __str__(self) -> str:
        """Which version it is."""
        return f"the version in snapshot {self.label} is not the newest any more"


Reason: TypeAlias = Shortage | InUse | TooFew | Shorter | NotNewest


@dataclass(frozen=True, slots=True)
class Why:
    """A reason, and the request whose operation, or part of a call, it speaks of."""

    request: str
    reason: Reason


def message(op: Operation, why: tuple[Why, ...]) -> str:
    """Reasons for the reader; each with its request where the operation is not of one request."""
    named = not hasattr(op, "request")
    return "; ".join(f"{one.request}: {one.reason}" if named else str(one.reason) for one in why)
