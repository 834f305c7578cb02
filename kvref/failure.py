"""How an operation fails (section 9, R3.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvref.why import Reason
from kvspec.errors import ErrorKind

if TYPE_CHECKING:
    from kvref.state import State


class Failure(Exception):
    """An error of a known kind. ``state``: what stays, where a rule names something (R3.9, R4.8, R8.6, R8.9), or ``None``."""

    def __init__(self, kind: ErrorKind, message: str, state: State | None = None) -> None:
        """``message``: for the reader."""
        super().__init__(message)
        self.kind, self.message, self.state = kind, message, state


class NoRoom(Exception):
    """A plan that does not fit (R3.14). ``reason``: what was needed and what there was; ``message``: the same for the reader.

    ``leaving``: the pages, by number and in order, that it had found before it ran out.
    """

    def __init__(self, reason: Reason, leaving: tuple[int, ...] = ()) -> None:
        """``reason``: what was needed and what there was."""
        super().__init__(str(reason))
        self.reason, self.message, self.leaving = reason, str(reason), leaving


class Refused(Exception):
    """A copy submission was refused (R4.8). ``state``: the candidate that had been reached."""

    def __init__(self, state: State, message: str) -> None:
        """``message``: for the reader."""
        super().__init__(message)
        self.state, self.message = state, message


def out_of_range(message: str) -> Failure:
    """No such request, batch, buffer, group, layer, stream or label."""
    return Failure(ErrorKind.OUT_OF_RANGE, message)


def invalid(message: str) -> Failure:
    """A value that can never be right."""
    return Failure(ErrorKind.INVALID_ARGUMENT, message)


def logic(message: str) -> Failure:
    """A call that the state does not allow."""
    return Failure(ErrorKind.LOGIC_ERROR, message)
