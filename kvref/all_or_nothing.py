"""The acting part of an operation, all or nothing (R3.14, R4.8); operations that are parts of a call (R8.9, R11.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kvref.copies import start, undo
from kvref.failure import Failure, NoRoom, Refused
from kvref.pages import next_part, renew
from kvref.policies.failed_operation import evicted
from kvref.state import State
from kvref.values import replace
from kvref.why import Reason, Why
from kvspec.errors import ErrorKind

T = TypeVar("T")
Acting = Callable[[State], State]
"""The acting part of an operation. Raises `NoRoom` if its plan does not fit, `Refused` if a copy is refused."""


def attempt(base: State, acting: Acting) -> State:
    """Carry out the acting part, all or nothing; R4.8, R14.11 if a copy is refused (`copy_failed`). Raises `NoRoom`."""
    try:
        return acting(start(base))
    except Refused as refused:
        raise Failure(ErrorKind.COPY_FAILED, refused.message, undo(base, refused.state)) from None


def because(state: State, request: str, reason: Reason) -> State:
    """The state whose trace says why an operation of a request is false, or a match not longer. Nothing else changes."""
    return replace(state, trace=replace(state.trace, why=(*state.trace.why, Why(request, reason))))


def fits(base: State, request: str, acting: Acting) -> tuple[State, bool]:
    """R3.14, R5.5: carry it out for a request; false, and nothing has happened, if the plan does not fit."""
    try:
        return attempt(base, acting), True
    except NoRoom as full:
        return because(left_behind(base, full), request, full.reason), False


def must_fit(base: State, acting: Acting, what: str = "") -> State:
    """R3.14, section 9: carry it out; `out_of_pages`, and nothing has happened, if the plan does not fit. ``what``: of which."""
    try:
        return attempt(base, acting)
    except NoRoom as full:
        raise Failure(ErrorKind.OUT_OF_PAGES, what + full.message, left_behind(base, full)) from None


def left_behind(base: State, full: NoRoom) -> State:
    """What an operation that does not fit leaves: nothing has happened, but for what policy ``failed_operation`` evicts."""
    return attempt(base, lambda state: evicted(state, full))


def part(state: State, operation: Callable[[State], tuple[State, T]]) -> tuple[State, T]:
    """R8.9, R11.1: an operation by itself inside a call: what has left LOCKED in it has left before the next (R10.1, R10.2).

    If it fails, what the call had done before it stays.
    """
    begun = next_part(state)
    try:
        done, value = operation(begun)
    except Failure as failure:
        raise Failure(failure.kind, failure.message, renew(begun, failure.state or begun)) from None
    return renew(begun, done), value
