"""The checks of a batch's resize that need no action, over all rows before any is resized (R8.9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvgpu.errors import InvalidArgument, LogicError
from kvgpu.requests.request import Request
from kvspec.observation import Phase, RequestStatus

Lengths = tuple[int | None, int | None]
"""Capacity and history to be, ``None`` for what is kept."""


def by_row(batch: str, rows: int, what: str, values: Sequence[int | None] | None) -> Sequence[int | None]:
    """The given lengths, or none for each row. ``InvalidArgument`` if they are not as many as rows."""
    if values is None:
        return (None,) * rows
    if len(values) != rows:
        raise InvalidArgument(f"batch {batch!r} has {rows} rows, but {what} has {len(values)} entries (R8.9)")
    return values


def other_rows(
    members: Sequence[Request | None], limit: int, capacities: Sequence[int | None], histories: Sequence[int | None]
) -> list[int]:
    """The rows of which more than the lengths of a member may change, or that may be refused, ascending: few in a decode step.

    Of the others no check fails, and a resize sets the lengths (``Request.steady``). ``limit``: the most tokens of a row.
    """
    # Asked for every row of every iteration: no calls, no properties, nothing is made.
    active, decode = RequestStatus.ACTIVE, Phase.DECODE
    found = []
    for row, (member, capacity, history) in enumerate(zip(members, capacities, histories, strict=True)):
        if member is not None and member.status is active and not member.ended:
            had, was = member.capacity, member.history
            room = had if capacity is None else capacity
            now = was if history is None else history
            least, most, first, last = member.steady
            if (
                least <= had <= most
                and least <= room <= most
                and first <= was <= now <= last
                and now <= had
                and now <= room <= limit
                and not (member.maybe_deferred and member.phase is decode)
            ):
                continue
        found.append(row)
    return found


def check_lengths(batch: str, rows: Iterable[tuple[int, Request | None, Lengths]], limit: int) -> None:
    """Check the lengths that rows are to have: number, member, lengths. ``limit``: the most tokens of a row.

    Raises ``InvalidArgument`` for values that can never be right, in any row, then ``LogicError`` for those that the state of a
    member does not allow.
    """
    every = [(f"row {row} of batch {batch!r}", member, wanted) for row, member, wanted in rows]
    for where, member, wanted in every:
        _possible(where, member, wanted, limit)
    for where, member, wanted in every:
        if member is not None and wanted != (None, None):
            _allowed(where, member, wanted)


def _possible(where: str, member: Request | None, wanted: Lengths, limit: int) -> None:
    for what, value in zip(("capacity", "history"), wanted, strict=True):
        if value is not None and not 0 <= value <= limit:
            raise InvalidArgument(f"{where}: {what} {value} is not between 0 and the {limit} tokens of a row (R8.9)")
    if member is None:
        if wanted != (None, None):
            raise InvalidArgument(f"{where} is empty and cannot be resized: give null for it (R8.9)")
        return
    capacity = member.capacity if wanted[0] is None else wanted[0]
    history = member.history if wanted[1] is None else wanted[1]
    if history < member.history:
        raise InvalidArgument(
            f"{where}: history {history} of {member.name!r} is less than its {member.history}: it never shrinks (R3.6)"
        )
    if wanted != (None, None) and capacity < history:
        raise InvalidArgument(f"{where}: capacity {capacity} of {member.name!r} is less than its history {history} (R3.6)")
    if member.decoding and any(member.sparse) and history > member.capacity:
        raise InvalidArgument(
            f"{where}: history {history} of {member.name!r}, which decodes, is beyond its capacity {member.capacity}: "
            f"grow the capacity in an earlier step (R3.6)"
        )


def _allowed(where: str, member: Request, wanted: Lengths) -> None:
    if not member.active:
        raise LogicError(f"{where}: {member.name!r} is suspended: resume it first, or give null for it (R8.9)")
    grows = (wanted[0] is not None and wanted[0] > member.capacity) or (wanted[1] is not None and wanted[1] > member.history)
    if member.ended and grows:
        raise LogicError(f"{where}: {member.name!r} has committed its end and grows no more (R3.9)")
