"""Refused transfers: here alone it is decided whether a submission is refused (R4.8)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """The direction of a copy submission (R4.5, R13.1). Moves between host and disk have none."""

    OFFLOAD = "offload"
    ONBOARD = "onboard"
    COPY = "copy"
    UPLOAD = "upload"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A submission is to be refused; ``queued``: after its device work was queued."""

    queued: bool


class FaultPlan:
    """Which of the next submissions are refused. ``file_accesses``: how many accesses to files were asked for so far."""

    def __init__(self) -> None:
        """None is."""
        self._armed: dict[Direction, dict[int, Refusal]] = {direction: {} for direction in Direction}
        self._made: dict[Direction, int] = dict.fromkeys(Direction, 0)
        self._bad_file_access = 0
        self.file_accesses = 0

    def arm(self, direction: str, call: int = 1, queued: bool = False) -> None:
        """Have the ``call``-th next submission of a direction refused (1: the next). Said twice of one, queued wins."""
        which = Direction(direction)
        number = self._made[which] + call
        before = self._armed[which].get(number)
        self._armed[which][number] = Refusal(queued or (before is not None and before.queued))

    def check(self, direction: str | None) -> Refusal | None:
        """To be asked once before each submission of a direction."""
        if direction is None:
            return None
        which = Direction(direction)
        self._made[which] += 1
        return self._armed[which].pop(self._made[which], None)

    def armed(self, direction: str) -> bool:
        """Whether a submission of a direction that is still to come will be refused."""
        return bool(self._armed[Direction(direction)])

    def made(self, direction: str) -> int:
        """How many submissions of a direction were asked for, refused ones included."""
        return self._made[Direction(direction)]

    def arm_file(self, access: int) -> None:
        """Have an access to a file refused: the ``access``-th of all, from 1."""
        self._bad_file_access = access

    def check_file(self) -> bool:
        """To be asked once before each submission that reads or writes a file: whether it is refused."""
        self.file_accesses += 1
        return self.file_accesses == self._bad_file_access
