"""The checks of a batch's resize that need no action, over all rows before any is resized (R8.9)."""

from __future__ import annotations

from collections.abc import Sequence

from kvgpu.errors import InvalidArgument, LogicError
from kvgpu.requests.request import Request

Lengths = tuple[int | None, int | None]
"""Capacity and history to be, ``None`` for what is kept."""


def batch_lengths(
    batch: str,
    members: Sequence[Request | None],
    limit: int,
    capacities: Sequence[int | None] | None,
    histories: Sequence[int | None] | None,
) -> list[Lengths]:
    """The lengths by row, checked. ``limit``: the most tokens of a row.

    Raises ``InvalidArgument`` for values that can never be right, in any row, then ``LogicError`` for those that the state of a
    member does not allow.
    """
    rows = len(members)
    for what, values in (("capacities", capacities), ("histories", histories)):
        if values is not None and len(values) != rows:
            raise InvalidArgument(f"batch {batch!r} has {rows} rows, but {what} has {len(values)} entries (R8.9)")
    nothing = (None,) * rows
    lengths = list(zip(capacities or nothing, histories or nothing, strict=True))
    for row, (member, wanted) in enumerate(zip(members, lengths, strict=True)):
        _possible(f"row {row} of batch {batch!r}", member, wanted, limit)
    for row, (member, wanted) in enumerate(zip(members, lengths, strict=True)):
        if member is not None and wanted != (None, None):
            _allowed(f"row {row} of batch {batch!r}", member, wanted)
    return lengths


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
