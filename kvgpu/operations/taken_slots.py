"""Slots that were taken away from a pool group, by label (R10.5)."""

from __future__ import annotations

from kvgpu.errors import InvalidArgument, LogicError, OutOfPages, OutOfRange
from kvgpu.runs import Int32
from kvgpu.storage.pools import FREE, TAKEN, SlotPool


class TakenSlots:
    """Free slots that somebody keeps under a label: no page gets them."""

    def __init__(self) -> None:
        """None yet."""
        self._kept: dict[str, tuple[SlotPool, Int32]] = {}

    def take(self, pool: SlotPool, label: str, count: int | None) -> None:
        """Take free slots (``None``: all), never by eviction. ``InvalidArgument``, ``LogicError``, ``OutOfPages``."""
        wanted = pool.free if count is None else count
        if count is not None and count < 1:
            raise InvalidArgument(f"take_slots of {count} slots: at least 1")
        if label in self._kept:
            raise LogicError(f"take_slots as {label!r}: slots are kept under that label already")
        if wanted > pool.free:
            level, number = pool.key
            raise OutOfPages(f"take_slots of {wanted} slots: level {level}, pool group {number} has {pool.free} free ones")
        slots = pool.take(wanted)
        pool.page[slots] = TAKEN
        self._kept[label] = (pool, slots)

    def give(self, label: str) -> None:
        """Give them back. ``OutOfRange`` for an unknown label."""
        if label not in self._kept:
            raise OutOfRange(f"no slots are kept under {label!r}: there are {', '.join(self._kept) or 'none'}")
        pool, slots = self._kept.pop(label)
        pool.page[slots] = FREE
        pool.give(slots)
