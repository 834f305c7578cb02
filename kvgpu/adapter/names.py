"""What the names of a scenario stand for: streams, batches, labels, groups. An unknown name is ``out_of_range`` (R3.13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from kvgpu.adapter.reads import Graph, Read
from kvgpu.batch.batch import Batch
from kvgpu.device.api import Stream
from kvgpu.errors import InvalidArgument, LogicError, OutOfRange
from kvgpu.manager import Manager
from kvgpu.requests.request import Request, Snapshot
from kvspec.config import LevelKind
from kvspec.refs import RefError, one_group

ThingT = TypeVar("ThingT")


def _found(things: Mapping[str, ThingT], name: str, what: str) -> ThingT:
    if name not in things:
        raise OutOfRange(f"no {what} {name!r}: there are {', '.join(things) or 'none'}")
    return things[name]


class Names:
    """Everything that an operation may name. Batches stay known when they are closed, so that calls on them say so."""

    def __init__(self, manager: Manager, streams: Mapping[str, Stream]) -> None:
        """``streams``: the user streams by name."""
        self.manager = manager
        self.streams = streams
        self.batches: dict[str, Batch] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.reads: dict[str, Read] = {}
        self.graphs: dict[str, Graph] = {}
        self.groups = tuple(group.name for group in manager.layout.groups)

    def request(self, name: str) -> Request:
        """A request, closed or not."""
        return self.manager.request(name)

    def live(self, name: str) -> Request:
        """A request that is not closed: ``LogicError`` if it is (R3.13)."""
        request = self.request(name)
        if request.closed:
            raise LogicError(f"request {name!r} is closed (R3.13)")
        return request

    def stream(self, name: str) -> Stream:
        """The device's stream that a scenario calls so. Raises ``OutOfRange`` for an unknown name."""
        return _found(self.streams, name, "stream")

    def batch(self, name: str) -> Batch:
        """A batch that is open: ``LogicError`` if it is closed (R8.2)."""
        batch = _found(self.batches, name, "batch")
        if not batch.open:
            raise LogicError(f"batch {name!r} is closed (R8.2)")
        return batch

    def any_batch(self, name: str) -> Batch:
        """A batch, open or closed."""
        return _found(self.batches, name, "batch")

    def snapshot(self, label: str) -> Snapshot:
        """The snapshot under a label. Raises ``OutOfRange`` for an unknown one."""
        return _found(self.snapshots, label, "snapshot")

    def graph(self, label: str) -> Graph:
        """The captured graph under a label. Raises ``OutOfRange`` for an unknown one."""
        return _found(self.graphs, label, "graph")

    def group(self, name: str | None) -> int:
        """A layer group's number; the only one if it is left out."""
        try:
            return self.groups.index(one_group(name, self.groups))
        except RefError as error:
            if name is None:
                raise InvalidArgument(str(error)) from error
            raise OutOfRange(str(error)) from error

    def table_group(self, name: str | None) -> int | None:
        """The number of a layer group that has tables; the first attention group, if there is one, if it is left out (R11.1)."""
        if name is None:
            return next((group.number for group in self.manager.layout.groups if not group.ssm), None)
        number = self.group(name)
        if self.manager.layout.groups[number].ssm:
            raise OutOfRange(f"group {name!r} is an SSM group: its state is in no table (R1.3)")
        return number

    def some_groups(self, names: Sequence[str] | None) -> list[int] | None:
        """The numbers of layer groups; ``None`` stays."""
        return None if names is None else [self.group(name) for name in names]

    def pool_group(self, kind: LevelKind, group: str | None) -> tuple[int, int]:
        """The level, and the number there of the pool group that serves a layer group (or is the only one)."""
        level = int(kind.level)
        served = None if group is None else self.group(group)
        pools = self.known_level(kind)
        if served is not None:
            return level, self.manager.layout.groups[served].pool_groups[level]
        if len(pools) > 1:
            raise InvalidArgument(f"{kind.level.label} has {len(pools)} pool groups: name a layer group of the one that is meant")
        return level, 0

    def known_level(self, kind: LevelKind) -> Sequence[object]:
        """The pool groups of a level: ``InvalidArgument`` if the manager has no such level."""
        levels = self.manager.layout.levels
        if kind.level >= len(levels):
            raise InvalidArgument(f"the manager has no {kind.level.label} level")
        return levels[kind.level]
