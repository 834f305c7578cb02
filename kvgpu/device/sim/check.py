"""The check of the order: two conflicting accesses that no path of streams and events orders are a fault, however they ran.

Submissions are numbered by their stream, and a stream knows, for each other stream, up to which submission its next one runs
after it. An access by submission ``n`` of stream ``a`` is before the one being made on stream ``b`` if ``a`` is ``b`` or ``b``
knows at least ``n`` of ``a``. Per resource only the last write and the reads since are kept, one a stream (later accesses that
are ordered after these are ordered after all that went before, or else a fault was reported then). So it is with a write of the
CPU, too: it comes after what the CPU was told is over, and before all that is submitted later. To be told, or to look, orders
nothing on the device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

from kvgpu.device.api import Access, Resource
from kvgpu.device.sim.streams import Clock, SimStream

DEVICE_FOLDER = str(Path(__file__).resolve().parent.parent)
PROJECT = Path(DEVICE_FOLDER).parent.parent
LEVELS = ("gpu", "host", "disk")
BY_USER = "of a user"
"""How the sites of what a user of the library asked for end."""
SHOWN = 3
"""Resources that one fault names; it counts the others."""


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """One submission, as a report names it. ``stream`` is ``None`` for an access of the CPU, ordered before all that is
    submitted later."""

    stream: SimStream | None
    count: int
    site: str
    where: str
    step: tuple[int, str]

    def __str__(self) -> str:
        """One line."""
        who = f"submission {self.count} on stream {self.stream.name!r}" if self.stream is not None else "the CPU"
        return f"{self.site} ({who}, {self.where}, step {self.step[0]}: {self.step[1]})"


def caller() -> str:
    """``file:line`` of the innermost frame outside ``kvgpu/device``."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(DEVICE_FOLDER) and frame.f_back is not None:
        frame = frame.f_back
    return f"{_shown(frame.f_code.co_filename)}:{frame.f_lineno}"


@cache
def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else Path(*path.parts[-2:]))


class _History:
    """The last write of a resource and the reads since, by stream name."""

    __slots__ = ("reads", "write")

    def __init__(self) -> None:
        self.write: Mark | None = None
        self.reads: dict[str, Mark] = {}


Found: TypeAlias = dict[tuple[Mark, str], list[Resource]]


@dataclass(slots=True)
class OrderCheck:
    """What was accessed so far, and the faults found."""

    history: dict[Resource, _History] = field(default_factory=dict)
    host_knows: Clock = field(default_factory=dict)

    def submitted(self, mark: Mark, accesses: Iterable[Access]) -> list[str]:
        """Note the accesses of a submission (or of the CPU). Returns the faults, one for each earlier submission in
        conflict."""
        found: Found = {}
        history = self.history
        stream = mark.stream
        knows = self.host_knows if stream is None else stream.others
        name = "" if stream is None else stream.name
        for resource, write in accesses:
            past = history.get(resource)
            if past is None:
                past = history[resource] = _History()
            last = past.write
            if last is not None:
                before = last.stream
                if before is not stream and before is not None and knows.get(before.name, 0) < last.count:
                    found.setdefault((last, "writes"), []).append(resource)
            if not write:
                past.reads[name] = mark
                continue
            past.write = mark
            if past.reads:
                for read in past.reads.values():
                    before = read.stream
                    if before is not stream and before is not None and knows.get(before.name, 0) < read.count:
                        found.setdefault((read, "reads"), []).append(resource)
                past.reads = {}
        if not found:
            return []
        writes = {access.resource for access in accesses if access.write}
        return [_text(earlier, verb, mark, resources, writes, knows) for (earlier, verb), resources in found.items()]


def _text(earlier: Mark, verb: str, later: Mark, resources: list[Resource], writes: set[Resource], knows: Clock) -> str:
    names = ", ".join(map(_named, resources[:SHOWN]))
    more = f" and {len(resources) - SHOWN} more" if len(resources) > SHOWN else ""
    does = "writes" if any(resource in writes for resource in resources) else "reads"
    assert earlier.stream is not None
    known = knows.get(earlier.stream.name, 0)
    later_name = f"stream {later.stream.name!r}" if later.stream is not None else "the CPU"
    return (
        f"unordered accesses to {names}{more}:\n"
        f"  {earlier} {verb} it;\n"
        f"  {later} {does} it.\n"
        f"  {later_name} is ordered after submission {known} of {earlier.stream.name!r} only: "
        f"an event recorded after the first must be waited for"
        f" before the second.{_advice(earlier, later)}"
    )


def _advice(earlier: Mark, later: Mark) -> str:
    if later.site.endswith(BY_USER):
        return (
            "\n  The second is the user's own: a read waits for nothing by itself. If nothing in kvgpu should have ordered its "
            "stream (a resume, wait_ready, wait_snapshot), read on the stream of the first, or sync it before."
        )
    if earlier.site.endswith(BY_USER):
        return "\n  The first is the user's own: it counts for what comes later once it is recorded (record_read)."
    return ""


def _named(resource: Resource) -> str:
    """A resource as reports call it."""
    match resource:
        case ("slot", int(level), pool_group, slot, _):
            return f"{LEVELS[level]} slot {slot} of pool group {pool_group}"
        case ("file", pool_group, slot, _):
            return f"disk slot {slot} of pool group {pool_group}"
        case _:
            return " ".join(map(str, resource))
