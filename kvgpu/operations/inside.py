"""What a batch and an executor do inside a manager, whose lock they hold: no method here takes it again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvgpu.device.api import Stream
from kvgpu.errors import CopyFailed
from kvgpu.operations import deferral, growth
from kvgpu.operations.capture import Capture
from kvgpu.operations.fetching import Fetches, note_reads
from kvgpu.operations.state import Core
from kvgpu.operations.table_reads import TableReads
from kvgpu.requests.request import Membership, Request
from kvgpu.requests.reservation import Reservation
from kvgpu.requests.row_entries import RequestEntries
from kvgpu.storage.fences import Point


class Inside:
    """A manager from inside. The caller has made the checks, and holds the manager's lock (``Manager.exclusive``)."""

    def __init__(self, core: Core, capture: Capture) -> None:
        """Of the manager with this state, and its capture."""
        self._core, self._capture = core, capture

    def refuse_capture(self, what: str, streams: Iterable[Stream]) -> None:
        """``LogicError`` for ``what`` while the manager captures, or while somebody else captures one of ``streams`` (R8.8)."""
        self._capture.refuse(what, *streams)

    def join(self, request: Request, batch: Membership, row: int) -> None:
        """Note that a request is in a batch now (R8.2). The version is newer if the row changes."""
        if request.row != row:
            self._core.renew(request)
        request.batch, request.row = batch, row

    def leave(self, request: Request) -> None:
        """Note that it is in no batch any more; it has no row then."""
        request.batch, request.row = None, None
        self._core.renew(request)

    def retry_deferred(self, requests: Iterable[Request], lenient: bool = False) -> None:
        """Move the deferred pages of active decoding requests that may move, in order, each request all or nothing (R8.4).

        One operation: what it has evicted for one request it does not evict again for the next (R10.1).

        ``OutOfPages`` if one finds no host slot, unless ``lenient`` (R8.6), ``CopyFailed``. Cheap where none is deferred.
        """
        found = [request for request in requests if request.maybe_deferred and request.active and request.decoding]
        if found:
            scope = self._core.scope()
            for request in found:
                deferral.retry_deferred(self._core, scope, request, lenient)

    def resize(self, request: Request, capacity: int | None, history: int | None) -> bool:
        """Set the lengths of an active request, ``None`` for what is kept; they were checked (R3.6)."""
        return growth.resize(
            self._core,
            request,
            request.capacity if capacity is None else capacity,
            request.history if history is None else history,
        )

    def resize_each(self, wanted: Iterable[tuple[Request, int | None, int | None]]) -> list[bool | CopyFailed]:
        """The same for several, each by itself: the result of each, or the copy that failed (R8.9)."""
        return growth.resize_each(
            self._core,
            [
                (each, each.capacity if capacity is None else capacity, each.history if history is None else history)
                for each, capacity, history in wanted
            ],
        )

    def give_back(self, request: Request, capacity: int) -> None:
        """Shrink an active request to a capacity, not below its history, and do nothing else (R11.5)."""
        growth.give_back(self._core, request, max(capacity, request.history))

    def undone(self, request: Request, version: int) -> None:
        """Note that an operation of several parts has undone all that it did to a request: its version is the old one."""
        request.version = version
        self._core.versions += 1  # versions have changed, though no newer one was given

    @property
    def versions(self) -> int:
        """Another number whenever the version of any request has changed."""
        return self._core.versions

    def record(self, stream: Stream, site: str) -> Point:
        """An event after all work submitted to a stream so far."""
        return self._core.fences.record(stream, site)

    def wait(self, stream: Stream, points: Iterable[Point], site: str) -> None:
        """Order a stream after points."""
        self._core.fences.wait(stream, points, site)

    def fetches(self, group: int, rows: int) -> Fetches:
        """The fetches of a batch with so many rows in a group that reserves slots: see ``Fetches``."""
        return Fetches(self._core, group, rows)

    def note_fetched_reads(self, rows: Iterable[Iterable[Reservation]], reads: Point) -> None:
        """Reads are recorded that may be of what was fetched for these rows (R15.7)."""
        if self._core.reserving:
            note_reads(self._core, rows, reads)

    def captures(self, stream: Stream) -> bool:
        """Whether the manager has a stream in capture."""
        return self._capture.stream is stream

    def table_reads(self, groups: Sequence[int], shown: Sequence[RequestEntries | None]) -> TableReads:
        """What keeps the recorded reads of tables: see ``TableReads``."""
        return TableReads(self._core, groups, shown)
