"""A batch: requests in rows that keep their number, and tables on the device at addresses that never change (section 8)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvgpu.batch_lengths import batch_lengths
from kvgpu.device.api import Access, Event, Memory, Stream
from kvgpu.errors import CopyFailed, InvalidArgument, LogicError, OutOfRange
from kvgpu.export import ExportedArray, TableStorage
from kvgpu.fences import Fence, Point
from kvgpu.manager import Manager
from kvgpu.publication import Publication, pack, publication
from kvgpu.publish_kernels import SCATTER, THREADS, TableLayout, packed_size, scatter_shape, sections
from kvgpu.request import Request
from kvgpu.staging import StagingPool
from kvgpu.table_reads import named_slots

_numbers = itertools.count()
NEVER = (-1, -1)
"""What a row that was never published has published."""
EMPTY = (-1, 0)
"""What an empty row publishes."""


@dataclass(frozen=True, slots=True)
class RowWords:
    """What a row last published: the ``number``-th row of a publication."""

    publication: Publication
    number: int


def check_shape(name: str, rows: int, blocks: int, beam_width: int) -> None:
    """Raise ``InvalidArgument`` for fewer than one row or block and for a beam width other than 1 (R8.1)."""
    if rows < 1 or blocks < 1:
        raise InvalidArgument(f"batch {name!r} needs at least one row and one block, got {rows} and {blocks} (R8.1)")
    if beam_width != 1:
        raise InvalidArgument(f"batch {name!r}: the beam width of a batch is 1, got {beam_width} (R8.1)")


class Batch:
    """Rows and blocks are fixed; so are the addresses of the tables while the batch lives (R8.1).

    ``groups``: the layer groups that have tables: all but SSM groups (R1.3).
    """

    def __init__(self, manager: Manager, name: str, rows: int, blocks: int, beam_width: int = 1, levels: bool = False) -> None:
        """Make the tables, which read -1 and 0 until the first publication, and two staging buffers.

        ``levels``: have a third table, ``page_level``. Raises ``InvalidArgument`` for fewer than one row or block and for a
        beam width other than 1, and ``DeviceError`` if there is not enough memory (R8.1).
        """
        check_shape(name, rows, blocks, beam_width)
        self.name = name
        self.rows = rows
        self.blocks = blocks
        self.levels = levels
        self.groups = tuple(group.number for group in manager.layout.groups if not group.ssm)
        self._manager = manager
        self._device = manager.device
        self._members: list[Request | None] = [None] * rows
        self._written: list[tuple[int, int]] = [NEVER] * rows
        self._words: list[RowWords | None] = [None] * rows
        self._reads = Fence()
        self._refused = Fence()
        self._open = True
        self._uid = next(_numbers)
        with manager.exclusive():
            self.layout = TableLayout(len(self.groups), rows, blocks, levels)
            self._storage = TableStorage(self._device, self.layout, f"tables of batch {name} ({self._uid})")
            self._staging = StagingPool(self._device, self._uid, self.layout.staging_nbytes)
            self._published: Point | None = None
            self._filled = self._fill()

    # ---- membership (R8.2) ------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether it has not been closed."""
        return self._open

    @property
    def members(self) -> tuple[Request | None, ...]:
        """The member of each row."""
        return tuple(self._members)

    def add(self, request: Request, row: int | None = None) -> int:
        """Take a row, the given or the first free one, and return its number (R8.2)."""
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
            self._manager.join(request, self, taken)
            return taken

    def remove(self, request: Request) -> None:
        """Free the row of a request; nothing for a request in no batch, ``LogicError`` for one in another (R8.2)."""
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
            self._manager.leave(request)

    def member_closed(self, request: Request) -> None:
        """A member was closed: its row is empty now (R8.2)."""
        self._members[self._members.index(request)] = None

    def close(self) -> None:
        """Release the members without closing them, and the memory that no export holds. Idempotent (R8.2)."""
        with self._manager.exclusive():
            if not self._open:
                return
            self._open = False
            for member in self._members:
                if member is not None:
                    self._manager.leave(member)
            self._members = [None] * self.rows
            self._staging.free()
            del self._storage

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
        if request.blocks > self.blocks:
            raise InvalidArgument(
                f"request {request.name!r} has {request.blocks} blocks, more than the {self.blocks} of batch {self.name!r}: "
                f"shrink it or make a larger batch"
            )

    def _must_be_open(self) -> None:
        if not self._open:
            raise LogicError(f"batch {self.name!r} is closed (R8.2)")

    def _no_capture(self, what: str) -> None:
        stream = self._manager.capturing
        if stream is not None:
            raise LogicError(f"{what} of batch {self.name!r} during the capture on stream {stream.name!r}: end it first (R8.8)")

    # ---- publication (R8.3-R8.7) --------------------------------------------------------------------------------------

    def dirty_rows(self) -> tuple[int, ...]:
        """The rows that would publish something else than they last did, ascending (R8.3)."""
        with self._manager.shared():
            return self._dirty_rows()

    def _dirty_rows(self) -> tuple[int, ...]:
        return tuple(row for row in range(self.rows) if self._shows(row) != self._written[row])

    def _shows(self, row: int) -> tuple[int, int]:
        member = self._members[row]
        return EMPTY if member is None else (member.uid, member.version)

    def publish(self, stream: Stream) -> tuple[int, ...]:
        """Write the dirty rows into the tables, on ``stream``, and return their numbers, ascending (R8.4).

        Raises ``LogicError`` (closed, in capture), ``InvalidArgument`` (a member larger than the batch), ``OutOfPages`` and
        ``CopyFailed`` (R8.6).
        """
        with self._manager.exclusive():
            self._must_be_open()
            self._no_capture("publish")
            for member in self._members:
                if member is not None:
                    self._must_fit(member)
            for member in self._members:
                if member is not None and member.active and member.decoding:
                    self._manager.retry_deferred(member)
            rows = self._dirty_rows()
            if rows:
                self._upload(stream, rows)
            elif self._published is not None:
                self._manager.wait(stream, (self._published,), "R8.4 nothing dirty: the stream follows the last publication")
            return rows

    def wait_ready(self, stream: Stream) -> None:
        """Order ``stream`` after the publication. ``LogicError`` while anything is unpublished, and in capture (R8.7)."""
        with self._manager.exclusive():
            published = self._last_publication()
            self._no_capture("wait_ready")
            self._manager.wait(stream, (published,), "R8.7 wait_ready: the publication")

    def page_table(self, group: int) -> ExportedArray:
        """The table int32 ``[rows, blocks]`` of a layer group: raw slots, BAD for none (R8.1)."""
        place = self._place(group)
        return self._export(4 * place * self.rows * self.blocks, (self.rows, self.blocks), np.dtype(np.int32))

    def num_blocks(self, group: int) -> ExportedArray:
        """The counts int32 ``[rows]`` of a layer group (R8.5)."""
        place = self._place(group)
        return self._export(self.layout.counts_offset + 4 * place * self.rows, (self.rows,), np.dtype(np.int32))

    def page_level(self, group: int) -> ExportedArray:
        """The levels int8 ``[rows, blocks]`` of a layer group, -1 for none. ``LogicError`` for a batch without (R8.1)."""
        place = self._place(group)
        if not self.levels:
            raise LogicError(f"batch {self.name!r} has no page_level: make it with levels=True")
        return self._export(
            self.layout.levels_offset + place * self.rows * self.blocks, (self.rows, self.blocks), np.dtype(np.int8)
        )

    def _place(self, group: int) -> int:
        self._must_be_open()
        if group not in self.groups:
            raise OutOfRange(f"batch {self.name!r} has no tables of group {group}: it has those of {self.groups} (R1.3)")
        return self.groups.index(group)

    def _export(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[np.int32] | np.dtype[np.int8]) -> ExportedArray:
        return ExportedArray(self._storage, offset, shape, dtype, self._publication_event)

    def _publication_event(self) -> Event:
        with self._manager.exclusive():
            return self._last_publication().event

    def _last_publication(self) -> Point:
        self._must_be_open()
        dirty = self._dirty_rows()
        if dirty or self._published is None:
            raise LogicError(f"rows {list(dirty)} of batch {self.name!r} are not published: publish first (R8.7)")
        return self._published

    def _upload(self, stream: Stream, rows: Sequence[int]) -> None:
        manager = self._manager
        members = [self._members[row] for row in rows]
        refusal = manager.faults.check("upload")
        if refusal is not None and not refusal.queued:
            raise CopyFailed(
                f"the upload of a publication of batch {self.name!r} was refused; its tables are as they were (R8.6)"
            )
        live = [member for member in members if member is not None]
        manager.wait(stream, manager.readiness(live), "R7.5 publication: readiness of the pages in its rows")
        manager.wait(stream, self._reads.points, "R7.5 publication: recorded reads of the tables")
        manager.wait(stream, self._refused.points, "R8.4 publication: what a refused upload had queued")
        if self._published is None:
            manager.wait(stream, (self._filled,), "R8.1 first publication: the tables have their first values")
        else:
            manager.wait(stream, (self._published,), "R7.5 publication: the previous publication")
        buffer = self._staging.acquire()
        if refusal is not None:
            # What was queued may still read the buffer (R7.6), and the next publication follows it; the tables stay as they were.
            self._staging.submitted(buffer, stream)
            queued = manager.record(stream, "R8.4 what a refused upload had queued")
            self._refused = Fence((*self._refused.points, queued))
            raise CopyFailed(f"the upload of a publication of batch {self.name!r} was refused after it was queued (R8.6)")
        words = publication(rows, members, self.groups)
        pack(words, self._staging.host_bytes(buffer), self.levels)
        reads = self._staging.read_access(buffer)
        self._scatter(stream, buffer.memory, rows, words.total, (reads,), "R8.4 publication: upload and scatter")
        self._staging.submitted(buffer, stream)
        self._published = manager.record(stream, "R7.5 publication: the tables are written")
        # The publication comes after these, and all that follows on the tables comes after the publication.
        self._reads = self._refused = Fence()
        for number, (row, member) in enumerate(zip(rows, members, strict=True)):
            self._words[row] = RowWords(words, number)
            if member is not None:
                manager.acknowledge(member, member.version)
            self._written[row] = self._shows(row)

    def _fill(self) -> Point:
        """Give the tables their first values: -1, 0, -1 (R8.1)."""
        stream = self._storage.stream
        rows = range(self.rows)
        size = packed_size(self.rows * len(self.groups), self.rows, 0, self.levels)
        memory = self._device.allocate("pinned", size, f"first values of batch {self.name} ({self._uid})")
        packed = sections(memory.host_array(), self.rows, len(self.groups), 0, self.levels)
        packed.rows[:] = rows
        for zeros in (packed.starts, packed.lengths, packed.counts):
            zeros.fill(0)
        self._scatter(stream, memory, rows, 0, (), "R8.1 the tables get their first values")
        memory.free()
        return self._manager.record(stream, "R8.1 the tables have their first values")

    def _scatter(
        self, stream: Stream, staging: Memory, rows: Sequence[int], entries: int, reads: tuple[Access, ...], site: str
    ) -> None:
        layout = self.layout
        blocks, chunks = scatter_shape(layout, len(rows))
        if not blocks:
            return  # SSM groups alone: there is no table
        numbers = (
            len(rows),
            layout.groups,
            layout.rows,
            layout.blocks,
            entries,
            layout.counts_offset,
            layout.levels_offset,
            int(layout.levels),
            chunks,
        )
        self._device.launch(
            stream,
            SCATTER,
            blocks,
            THREADS,
            (staging, self._storage.memory, *numbers),
            lambda: (*reads, *self._row_accesses(rows, write=True)),
            site,
        )

    def read_accesses(self) -> tuple[Access, ...]:
        """What a submission that reads the tables declares for the ordering check."""
        return self._row_accesses(range(self.rows), write=False)

    def _row_accesses(self, rows: Sequence[int], write: bool) -> tuple[Access, ...]:
        return tuple(Access(("table", self._uid, row), write) for row in rows)

    # ---- readers and lengths (R7.7, R8.9) ----------------------------------------------------------------------------

    def record_read(self, stream: Stream) -> None:
        """Order what could disturb them after the reads so far on ``stream`` (R7.7).

        That is: later table writes, later work of the active members' streams, later use of every slot that the tables name.
        """
        manager = self._manager
        with manager.exclusive():
            self._must_be_open()
            self._no_capture("record_read")
            reads = manager.record(stream, "R7.7 record_read: the reads of the tables so far")
            self._reads = Fence((*self._reads.points, reads))
            for member in self._members:
                if member is not None and member.active:
                    assert member.stream is not None
                    manager.wait(member.stream, (reads,), "R7.7 record_read: the stream of an active member")
            rows = [(words.publication, words.number) for words in self._words if words is not None]
            manager.reads_of_slots(reads, named_slots(manager.layout, self.groups, rows))

    def resize(
        self, capacities: Sequence[int | None] | None, histories: Sequence[int | None] | None, stream: Stream
    ) -> tuple[bool | None, ...]:
        """Resize every active member, then publish on ``stream`` (R8.9). Lists are by row, ``None`` keeps.

        Returns each result, ``None`` for empty rows and suspended members. The errors of R8.9.
        """
        manager = self._manager
        with manager.exclusive():
            self._must_be_open()
            self._no_capture("resize")
            lengths = batch_lengths(
                self.name, self._members, self.blocks * manager.layout.tokens_per_block, capacities, histories
            )
            results: list[bool | None] = []
            refused: CopyFailed | None = None
            for member, (capacity, history) in zip(self._members, lengths, strict=True):
                if member is None or not member.active:
                    results.append(None)
                    continue
                try:
                    results.append(manager.resize(member, capacity, history))
                except CopyFailed as error:
                    results.append(None)
                    refused = refused or error
            self.publish(stream)
            if refused is not None:
                raise refused
            return tuple(results)

    # ---- for observers -----------------------------------------------------------------------------------------------

    @property
    def staging_buffers(self) -> int:
        """How many staging buffers exist (R7.6)."""
        return len(self._staging)

    @property
    def upload(self) -> Event:
        """The end of the last publication, or of giving the tables their first values."""
        return (self._published or self._filled).event

    @property
    def storage(self) -> TableStorage:
        """The memory of the tables."""
        return self._storage

    def row_words(self, row: int) -> RowWords | None:
        """What a row last published; ``None``: nothing yet."""
        return self._words[row]
