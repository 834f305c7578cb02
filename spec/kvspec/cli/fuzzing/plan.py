"""What a run of lifecycles is told, and what has come out so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvspec.audit.lifecycles import Found
    from kvspec.audit.managers import Profile
    from kvspec.audit.reached import Reached
    from kvspec.harness.difference import Failure
    from kvspec.harness.workers import Ended

SMALL, BIG = "small", "big"
ANY = "any"
"""Shared or private ownership, as it is drawn."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What every process is told. ``profile``: ``small``, ``big``, or one of the suite (`kvspec.profiles`)."""

    steps: int
    system: str
    against: str
    options: dict[str, str]
    gates: bool
    faults: bool
    profile: str
    timeout: float
    ownership: str = ANY
    fetches: str = ANY
    steer: bool = False

    def contents(self) -> Profile:
        """What its lifecycles may contain."""
        from kvspec.audit.managers import Fetches, Profile
        from kvspec.config import Ownership
        from kvspec.profiles import profile

        allowed = None if self.profile in (SMALL, BIG) else profile(self.profile)
        ownership = None if self.ownership == ANY else Ownership(self.ownership)
        return Profile(
            gates=self.gates,
            faults=self.faults,
            big=self.profile == BIG,
            allowed=allowed,
            ownership=ownership,
            fetches=Fetches(self.fetches),
            steer=self.steer,
        )


def _none_reached() -> Reached:
    from kvspec.audit.reached import Reached  # only a run needs it, the command line does not

    return Reached()


@dataclass(slots=True)
class Tally:
    """What has come out so far.

    ``unfinished``: why some were not finished, and how many. ``lost``: by seed, what came instead of an answer.
    ``under_way``: seeds that were stopped, with the failure that says where each was, if it is known.
    ``reached``: the states that the lifecycles came to. ``before``: seeds that failed in an earlier run.
    ``passed_over``: how often a call was passed over, by verb and what the system lacks.
    """

    done: int = 0
    unfinished: Counter[str] = field(default_factory=Counter)
    found: dict[int, Found] = field(default_factory=dict)
    lost: dict[int, Ended] = field(default_factory=dict)
    under_way: dict[int, Failure | Ended | None] = field(default_factory=dict)
    reached: Reached = field(default_factory=_none_reached)
    before: tuple[int, ...] = ()
    passed_over: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """How many lifecycles failed."""
        return len(self.found) + len(self.lost) + len(self.before)
