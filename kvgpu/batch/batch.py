"""A batch: requests in rows that keep their number, and tables on the device at addresses that never change (section 8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kvgpu.batch.batch_lengths import by_row, check_lengths, other_rows
from kvgpu.batch.export import ExportedArray
from kvgpu.batch.fetch import Fetch
from kvgpu.batch.publication import publication
from kvgpu.batch.tables import Tables
from kvgpu.device.api import Event, Stream
from kvgpu.errors import CopyFailed, InvalidArgument, LogicError, OutOfRange
from kvgpu.manager import Manager
from kvgpu.operations.fetching import Fetches
from kvgpu.operations.table_reads import TableReads
from kvgpu.requests.request import Request
from kvgpu.requests.reservation import Reservation
from kvgpu.requests.row_entries import RequestEntries, RowEntries
from kvgpu.storage.fences import Point
from kvgpu.upload.table_layout import TableLayout
from kvspec.observation import RequestStatus

NEVER = -2
"""What a row that was never published has published. The others have the version of their member: no two requests share one."""
EMPTY = -1
"""What an empty row publishes."""


def check_shape(name: str, rows: int, blocks: int, beam_width: int) -> None:
    """Raise ``InvalidArgument`` for fewer than one row or block and for a beam width other than 1 (R8.1)."""
    if rows < 1 or blocks < 1:
        raise InvalidArgument(f"batch {name!r} needs at least one row and one block, got {rows} and {blocks} (R8.1)")
    if beam_width != 1:
        raise InvalidArgument(f"batch {name!r}: the beam width of a batch is 1, got {beam_width} (R8.1)")


class Batch:
    """Requests in stable rows, and for each layer group the device tables that kernels read (section 8).

    Numbers of rows and blocks, and the addresses of the tables, never change while the batch lives (R8.1). ``groups``: the layer
    groups that have tables, which are all but SSM groups (R1.3). ``tables``: the tables on the device.

    On a closed batch every method but ``close`` raises ``LogicError`` (R8.2).
    """

    def __init__(
        self,
        manager: Manager,
        name: str,
        rows: int,
        blocks: int,
        beam_width: int = 1,
        levels: bool = False,
        lenient: bool = False,
    ) -> None:
        """Make the tables, which read -1 and 0 until the first publication, and two staging buffers.

        ``name``: for messages. ``rows``: members at most. ``blocks``: of a member at most. ``levels``: have a third table,
        ``page_level``. ``lenient``: a deferred page that finds no host slot stays on the GPU, and a publication shows the lower
        count instead of raising ``OutOfPages`` (R8.6). Raises ``InvalidArgument`` for fewer than one row or block and for a
        beam width other than 1, and ``DeviceError`` if there is not enough memory (R8.1).
        """
        check_shape(name, rows, blocks, beam_width)
        self.name = name
        self.rows = rows
        self.blocks = blocks
        self._tokens = blocks * manager.layout.tokens_per_block
        self.levels = levels
        self.lenient = lenient
        self.groups = tuple(group.number for group in manager.layout.groups if not group.ssm)
        self._manager = manager
        self._members: list[Request | None] = [None] * rows
        self._written: list[int] = [NEVER] * rows
        self._lengths, self._countable = [0] * rows, [0] * rows
        self._entries: list[RequestEntries | None] = [None] * rows
        self._table_reads: TableReads | None = None
        self._reserved: list[tuple[Reservation, ...]] = [()] * rows
        self._published_members: list[Request | None] = [None] * rows
        self._fetches: dict[int, Fetches] = {}
        self._open = True
        self._clean_at = NEVER
        with manager.exclusive():
            self.tables = Tables(manager, name, TableLayout(len(self.groups), rows, blocks, levels))

    # ---- membership (R8.2) ------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether ``close`` has not been called."""
        return self._open

    @property
    def members(self) -> tuple[Request | None, ...]:
        """The member of each row, ``None`` for an empty one."""
        return tuple(self._members)

    def add(self, request: Request, row: int | None = None) -> int:
        """Give ``request`` a row, the given or the first free one, and return its number; a member keeps the row it has (R8.2).

        Raises ``LogicError`` (closed, of another manager, in another row or batch), ``InvalidArgument`` (the row is taken or not
        there, none is free, more than one beam, more blocks than a row of the batch).
        """
        with self._manager.exclusive():
            self._must_be_open()
            if request.manager is not self._manager or request.closed:
                raise LogicError(
                    f"request {request.name!r} is closed, or of another manager: it cannot join batch {self.name!r} (R8.2)"
                )
            if request.batch is self:
                assert request.row is not None
                if row is None or row == request.row:
                    return request.row
                raise LogicError(
                    f"request {request.name!r} is in row {request.row} of {self.name!r}: remove it before taking row {row}"
                )
            if request.batch is not None:
                raise LogicError(f"request {request.name!r} is in batch {request.batch.name!r}: remove it there first")
            taken = self._row_for(request, row)
            self._members[taken] = request
            self._clean_at = NEVER
            self._manager.inside.join(request, self, taken)
            return taken

    def remove(self, request: Request) -> None:
        """Free the row of a request; one in no batch stays as it is. Raises ``LogicError`` (closed, in another batch) (R8.2)."""
        with self._manager.exclusive():
            self._must_be_open()
            if request.closed:
                raise LogicError(f"request {request.name!r} is closed, which took it out of its batch (R3.13)")
            if request.batch is None:
                return
            if request.batch is not self:
                raise LogicError(f"request {request.name!r} is in batch {request.batch.name!r}, not in {self.name!r}")
            assert request.row is not None
            self._members[request.row] = None
            self._clean_at = NEVER
            self._manager.inside.leave(request)

    def member_closed(self, request: Request) -> None:
        """A member was closed: its row is empty now (R8.2)."""
        self._members[self._members.index(request)] = None
        self._clean_at = NEVER

    def close(self) -> None:
        """Release the members without closing them, and the memory that no export holds. Idempotent (R8.2)."""
        with self._manager.exclusive():
            if not self._open:
                return
            self._open = False
            for member in self._members:
                if member is not None:
                    self._manager.inside.leave(member)
            self._members, self._entries = [None] * self.rows, [None] * self.rows
            if self._table_reads is not None:
                self._table_reads.close()
                self._table_reads = None
            self.tables.free()

    def _row_for(self, request: Request, row: int | None) -> int:
        if request.beam_width != 1:
            raise InvalidArgument(
                f"request {request.name!r} has beam width {request.beam_width}: a batch takes width 1 alone (R3.12)"
            )
        if row is None:
            row = next((number for number, member in enumerate(self._members) if member is None), None)
            if row is None:
                raise InvalidArgument(f"batch {self.name!r} has no free row of {self.rows} (R8.2)")
        elif not 0 <= row < self.rows:
            raise InvalidArgument(f"batch {self.name!r} has rows 0 to {self.rows - 1}, not {row} (R8.2)")
        elif (member := self._members[row]) is not None:
            raise InvalidArgument(f"row {row} of batch {self.name!r} is taken by {member.name!r} (R8.2)")
        self._must_fit(request)
        return row

    def _must_fit(self, request: Request) -> None:
        if request.capacity > self._tokens:
            raise InvalidArgument(
                f"request {request.name!r} has {request.blocks} blocks, more than the {self.blocks} of batch {self.name!r}: "
                f"shrink it or make a larger batch"
            )

    def _must_be_open(self) -> None:
        if not self._open:
            raise LogicError(f"batch {self.name!r} is closed (R8.2)")

    def refuse_capture(self, what: str, stream: Stream, *, members: bool = False) -> None:
        """``LogicError`` while the manager captures, or while somebody else captures ``stream`` (R8.8).

        ``members``: or the stream of an active member.
        """
        self._refuse_capture(what, [stream, *(self._streams() if members else ())])

    def _refuse_capture(self, what: str, streams: Iterable[Stream]) -> None:
        self._manager.inside.refuse_capture(f"{what} of batch {self.name!r}", {each.name: each for each in streams}.values())

    def _streams(self) -> list[Stream]:
        """The streams of the active members, in order of the rows, each once."""
        # Asked for every row of every iteration: no calls.
        active = RequestStatus.ACTIVE
        streams = dict.fromkeys([member.stream for member in self._members if member is not None and member.status is active])
        return [stream for stream in streams if stream is not None]

    # ---- publication (R8.3-R8.7) --------------------------------------------------------------------------------------

    def dirty_rows(self) -> tuple[int, ...]:
        """The numbers of the rows that show something else than they last published, ascending (R8.3)."""
        with self._manager.shared():
            return self._dirty_rows()

    def _dirty_rows(self) -> tuple[int, ...]:
        versions = self._manager.inside.versions
        if versions == self._clean_at:
            return ()
        # Asked for each row several times an iteration: no calls.
        now = [EMPTY if member is None else member.version for member in self._members]
        if now == self._written:
            self._clean_at = versions
            return ()
        return tuple(row for row, (version, written) in enumerate(zip(now, self._written, strict=True)) if version != written)

    def publish(self, stream: Stream) -> tuple[int, ...]:
        """Write the dirty rows into the tables, on ``stream``, and return their numbers, ascending (R8.4).

        Deferred pages of active decoding members are tried first (R4.3). The versions that are written count as acknowledged.
        With nothing dirty nothing is written; ``stream`` is ordered after the last publication all the same.

        Raises ``LogicError`` (in capture, R8.8), ``InvalidArgument`` (a member has outgrown the batch, R8.10), ``OutOfPages`` (a
        deferred page finds no host slot, unless the batch is lenient) and ``CopyFailed``: the tables are as before and no row is
        clean, but members whose pages have moved stay so (R8.6).
        """
        with self._manager.exclusive():
            self._must_be_open()
            self.refuse_capture("publish", stream)
            return self._publish(stream)

    def _publish(self, stream: Stream) -> tuple[int, ...]:
        limit = self._tokens
        for member in self._members:
            if member is not None and member.capacity > limit:
                self._must_fit(member)
        deferred = [member for member in self._members if member is not None and member.maybe_deferred]
        self._manager.inside.retry_deferred(deferred, self.lenient)
        rows = self._dirty_rows()
        if rows:
            self._upload(stream, rows)
        elif self.tables.published is not None:
            self._manager.inside.wait(
                stream, (self.tables.published,), "R8.4 nothing dirty: the stream follows the last publication"
            )
        return rows

    def wait_ready(self, stream: Stream) -> None:
        """Order ``stream`` after the last publication, so that work on it may read the tables (R8.7).

        Raises ``LogicError`` while anything is unpublished, and in capture (R8.8).
        """
        with self._manager.exclusive():
            published = self._last_publication()
            self.refuse_capture("wait_ready", stream)
            self._manager.inside.wait(stream, (published,), "R8.7 wait_ready: the publication")

    def page_table(self, group: int) -> ExportedArray:
        """The table int32 ``[rows, blocks]`` of a layer group: raw slots, -1 for none (R8.1, R1.9).

        A batch that is closed raises ``LogicError``, a group without tables ``OutOfRange``; so do the next two.
        """
        return self.tables.page_table(self._table_number(group), self._publication_event)

    def num_blocks(self, group: int) -> ExportedArray:
        """int32 ``[rows]`` of a layer group: how many leading blocks of each row may be fetched from the host (R8.5)."""
        return self.tables.num_blocks(self._table_number(group), self._publication_event)

    def page_level(self, group: int) -> ExportedArray:
        """The levels int8 ``[rows, blocks]`` of a layer group, -1 for none. ``LogicError`` for a batch without (R8.1)."""
        number = self._table_number(group)
        if not self.levels:
            raise LogicError(f"batch {self.name!r} has no page_level: make it with levels=True")
        return self.tables.page_level(number, self._publication_event)

    def _table_number(self, group: int) -> int:
        self._must_be_open()
        if group not in self.groups:
            raise OutOfRange(f"batch {self.name!r} has no tables of group {group}: it has those of {self.groups} (R1.3)")
        return self.groups.index(group)

    def _publication_event(self) -> Event:
        with self._manager.exclusive():
            return self._last_publication().event

    def _last_publication(self) -> Point:
        self._must_be_open()
        dirty = self._dirty_rows()
        if dirty or self.tables.published is None:
            raise LogicError(f"rows {list(dirty)} of batch {self.name!r} are not published: publish first (R8.7)")
        return self.tables.published

    def _upload(self, stream: Stream, rows: Sequence[int]) -> None:
        members = [self._members[row] for row in rows]
        before = [self._entries[row] for row in rows]
        with self.tables.packing(len(rows)) as packing:
            found = publication(rows, members, len(self.groups), before, self._manager.fences, packing.packer)
            self.tables.publish(stream, rows, packing, found.ready)
        if self._table_reads is not None:
            self._table_reads.published(before, found.shows.entries, found.changes)
        for row, member, length, countable, entries in zip(rows, members, *found.shows, strict=True):
            self._lengths[row], self._countable[row], self._entries[row] = length, countable, entries
            self._written[row] = EMPTY if member is None else member.version
            self._published_members[row] = member
            self._reserved[row] = () if member is None else tuple(member.reserved.values())
            if member is not None:
                member.acknowledged = member.version

    # ---- readers and lengths (R7.7, R8.9) ----------------------------------------------------------------------------

    def record_read(self, stream: Stream) -> None:
        """Say that work so far on ``stream`` reads the tables and the pages that they name, so that nothing disturbs it (R7.7).

        Ordered after it are later publications, later work of the active members' streams, and later use of every slot that the
        tables name. Raises ``LogicError`` in capture (R8.8).
        """
        manager = self._manager
        with manager.exclusive():
            self._must_be_open()
            streams = self._streams()
            self._refuse_capture("record_read", [stream, *streams])
            reads = manager.inside.record(stream, "R7.7 record_read: the reads of the tables so far")
            self.tables.note_reads(reads)
            for each in streams:
                manager.inside.wait(each, (reads,), "R7.7 record_read: the stream of an active member")
            self._reads_of_tables().record(reads, self)
            manager.inside.note_fetched_reads(self._reserved, reads)

    def _reads_of_tables(self) -> TableReads:
        if self._table_reads is None:  # a batch of which nobody records reads pays nothing for them
            self._table_reads = self._manager.inside.table_reads(self.groups, self._entries)
        return self._table_reads

    # ---- fetches (section 15) ----------------------------------------------------------------------------------------

    def fetch(self, layer: str) -> Fetch:
        """A fetch of a layer's history, to be run as often as wanted, or captured (R15.4).

        Raises ``OutOfRange`` (no such layer), ``InvalidArgument`` (its group reserves nothing), ``DeviceError`` (no memory).
        """
        with self._manager.exclusive():
            self._must_be_open()
            group, _ = self._manager.layout.buffer(layer)
            if not group.selected:
                raise InvalidArgument(
                    f"layer {layer!r}: its group has no selected and reserve, so nothing of it is fetched (R15.1)"
                )
            if group.number not in self._fetches:
                self._fetches[group.number] = self._manager.inside.fetches(group.number, self.rows)
            return Fetch(self, self._fetches[group.number], layer)

    def run_fetch(self, fetch: Fetch, stream: Stream) -> None:
        """See ``Fetch.run``."""
        with self._manager.exclusive():
            published = self.check_fetch(stream)
            if self._manager.inside.captures(stream):
                fetch.launch(stream)
                return
            each = fetch.fetches
            each.before(stream, self.served, published)
            fetch.launch(stream)
            self._note(each.after(stream))
            each.noted(stream, published)

    def check_fetch(self, stream: Stream) -> Point:
        """``LogicError`` if nothing can be fetched on a stream now (R15.7, R15.8). The last publication."""
        published = self._last_publication()
        if not self._manager.inside.captures(stream):
            self.refuse_capture("fetch", stream)
        return published

    @contextmanager
    def replaying(self, stream: Stream, fetches: Sequence[Fetch]) -> Iterator[None]:
        """Frames the replay, on ``stream``, of a graph in which these fetches of the batch were captured (R15.8).

        Inside, write the selections, then launch the graph. Rows that are not as published are not served.
        """
        with self._manager.exclusive():
            published = self.tables.published
            assert published is not None  # nothing was captured before
            groups = list({fetch.fetches.group.number: fetch.fetches for fetch in fetches}.values())
            with self._framed(stream, groups, published):
                yield

    @contextmanager
    def _framed(self, stream: Stream, fetches: Sequence[Fetches], published: Point) -> Iterator[None]:
        for each in fetches:
            each.before(stream, self.served, published)
        yield
        for each in fetches:
            self._note(each.after(stream))
        for each in fetches:
            each.noted(stream, published)

    def _note(self, done: Point) -> None:
        """Fetches have read the tables up to here."""
        self.tables.note_reads(done)
        if self._open:
            self._reads_of_tables().note(done)

    def served(self) -> list[Request | None]:
        """By row that is as published, its member: whom a fetch serves (R15.8)."""
        return [
            member if member is not None and member.version == written else None
            for member, written in zip(self._members, self._written, strict=True)
        ]

    def published_members(self) -> tuple[Request | None, ...]:
        """Who was in each row when it was last published."""
        return tuple(self._published_members)

    def resize(
        self, capacities: Sequence[int | None] | None, histories: Sequence[int | None] | None, stream: Stream
    ) -> tuple[bool | None, ...]:
        """Resize every active member, each by itself, then publish on ``stream`` (R8.9).

        ``capacities``, ``histories``: in tokens, by row; ``None`` keeps, an entry or all. Returns the result of each row,
        ``None`` for empty rows and suspended members.

        Raises, before anything happens, ``LogicError`` (in capture, values for a suspended member, growth after the end of
        committing) and ``InvalidArgument`` (lists that are not one entry a row, values that ``Manager.resize`` refuses or that
        are more than a row holds, values for an empty row). A ``CopyFailed`` of one row is raised when the others are done and
        published; an error of the publication is raised at once, and the resizes stand.
        """
        manager = self._manager
        with manager.exclusive():
            self._must_be_open()
            self.refuse_capture("resize", stream, members=True)
            capacities = by_row(self.name, self.rows, "capacities", capacities)
            histories = by_row(self.name, self.rows, "histories", histories)
            others = other_rows(self._members, self._tokens, capacities, histories)
            wanted = [(row, self._members[row], (capacities[row], histories[row])) for row in others]
            check_lengths(self.name, wanted, self._tokens)
            results: list[bool | None] = [True] * self.rows
            refused: CopyFailed | None = None
            self._set_lengths(others, capacities, histories)
            active = [(row, member, lengths) for row, member, lengths in wanted if member is not None and member.active]
            for row in others:
                results[row] = None
            found = manager.inside.resize_each((member, *lengths) for _, member, lengths in active)
            for (row, _, _), result in zip(active, found, strict=True):
                if isinstance(result, CopyFailed):
                    refused = refused or result
                else:
                    results[row] = result
            self._publish(stream)
            if refused is not None:
                raise refused
            return tuple(results)

    def _set_lengths(self, others: Sequence[int], capacities: Sequence[int | None], histories: Sequence[int | None]) -> None:
        """Set the lengths of members of which nothing else changes: of all rows but ``others``, which ascend."""
        first = 0
        for end in (*others, self.rows):
            rows = slice(first, end)
            for member, capacity, history in zip(self._members[rows], capacities[rows], histories[rows], strict=True):
                assert member is not None
                if capacity is not None:
                    member.capacity = capacity
                if history is not None:
                    member.history = history
            first = end + 1

    # ---- for observers -----------------------------------------------------------------------------------------------

    def row_entries(self, row: int) -> RowEntries | None:
        """The entries that a row last published; ``None``: nothing yet. From the host's record, for observers."""
        entries = self._entries[row]
        return None if entries is None else RowEntries(self._lengths[row], self._countable[row], entries)
