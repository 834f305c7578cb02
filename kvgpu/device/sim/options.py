"""What a simulated device can be told."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvgpu.device.api import DeviceError
from kvgpu.device.sim.streams import SimStream

GIB = 1 << 30

Choice = Callable[[Sequence[SimStream]], SimStream]
"""Which of the streams whose first item may run goes next. Never called with none."""


@dataclass(frozen=True, slots=True)
class SimOptions:
    """Options of ``SimDevice``.

    ``schedule``: ``fifo`` (the oldest submission that may run), ``adversarial`` (see ``adversarial``), ``seed=N`` (at random,
    repeatably). ``check``: check the order of all declared accesses. ``poison``: overwrite what may be reused. ``drop_sites``:
    names of waits and records that do nothing (the named mutants). ``memory_limit``: bytes that may be allocated at a time.
    """

    schedule: str = "fifo"
    check: bool = True
    poison: bool = False
    drop_sites: frozenset[str] = frozenset()
    memory_limit: int = GIB


def choice(schedule: str) -> Choice:
    """The policy that a schedule names. Raises ``DeviceError`` for an unknown one."""
    if schedule == "fifo":
        return fifo
    if schedule == "adversarial":
        return adversarial
    kind, equals, number = schedule.partition("=")
    if kind == "seed" and equals and number.strip().isdecimal():
        return random.Random(int(number)).choice
    raise DeviceError(f"unknown schedule {schedule!r}: expected fifo, adversarial or seed=N with a whole number N")


def fifo(ready: Sequence[SimStream]) -> SimStream:
    """The stream whose first item was submitted first."""
    return min(ready, key=lambda stream: stream.queue[0].order)


def adversarial(ready: Sequence[SimStream]) -> SimStream:
    """The stream whose newest item is the newest of all.

    So whatever was submitted late runs as early as its edges allow, before the older writers and copies that it should have
    waited for: only an edge holds it back.
    """
    return max(ready, key=lambda stream: stream.queue[-1].order)
