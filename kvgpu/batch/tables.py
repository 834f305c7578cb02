"""The tables of a batch on the device: their memory, staging, uploads, and what orders them (R7.5-R7.7, R8.1, R8.7)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from kvgpu.batch.export import ExportedArray, TableStorage
from kvgpu.device.api import Access, DeviceError, Event, Memory, Stream
from kvgpu.errors import CopyFailed
from kvgpu.manager import Manager
from kvgpu.storage.faults import Refusal
from kvgpu.storage.fences import Fence, Point
from kvgpu.upload.packing.form import NARROW_SLOTS, ROW, PackedForm, padded
from kvgpu.upload.packing.packer import Packer, prepare
from kvgpu.upload.scatter_kernels import SCATTER, THREADS, scatter_shape
from kvgpu.upload.staging import StagingBuffer, StagingPool
from kvgpu.upload.table_layout import TableLayout

_numbers = itertools.count()


class Packing(NamedTuple):
    """A publication that is being packed. ``buffer``: where. ``refusal``: its upload will be refused once it is queued."""

    packer: Packer
    buffer: StagingBuffer
    refusal: Refusal | None


class Tables:
    """The tables of one batch, and what has to run before they may be written again.

    ``layout``: where each table lies. ``form``, ``staging_nbytes``: of what travels, and of a staging buffer that holds every
    block of every row. ``storage``: the memory, which exports keep alive. ``published``: the end of the last
    publication, if there was one. Calls are made under the manager's lock.
    """

    def __init__(self, manager: Manager, name: str, layout: TableLayout) -> None:
        """Allocate the tables and two staging buffers, and give the tables their first values: -1, 0, -1 (R8.1).

        ``name``: of the batch. Raises ``DeviceError`` if there is not enough memory.
        """
        self.layout = layout
        most = max(pool.slots for level in manager.layout.levels[:2] for pool in level)
        self.form = PackedForm(layout.levels, wide=most > NARROW_SLOTS)
        self.published: Point | None = None
        self._manager = manager
        self._device = manager.device
        self._name = name
        self._number = next(_numbers)
        self._reads = Fence()
        self._refused = Fence()
        self.storage = TableStorage(self._device, layout, f"tables of batch {name} ({self._number})", manager.lock)
        pairs = layout.rows * layout.groups
        self.staging_nbytes = self.form.nbytes(pairs, pairs * padded(layout.blocks))
        self._staging = StagingPool(self._device, self._number, self.staging_nbytes)
        prepare(self.form, self.staging_nbytes)
        self._filled = self._fill()

    @property
    def staging_buffers(self) -> int:
        """How many staging buffers exist (R7.6)."""
        return len(self._staging)

    @property
    def upload(self) -> Event:
        """The end of the last publication, or of giving the tables their first values."""
        return (self.published or self._filled).event

    # ---- exports (R8.7) ----------------------------------------------------------------------------------------------

    def page_table(self, number: int, publication: Callable[[], Event]) -> ExportedArray:
        """The page table int32 ``[rows, blocks]`` of the ``number``-th group. ``publication``: see ``ExportedArray``."""
        layout = self.layout
        offset = 4 * number * layout.rows * layout.blocks
        return ExportedArray(self.storage, offset, (layout.rows, layout.blocks), np.int32, publication)

    def num_blocks(self, number: int, publication: Callable[[], Event]) -> ExportedArray:
        """The counts int32 ``[rows]`` of the ``number``-th group."""
        layout = self.layout
        return ExportedArray(self.storage, layout.counts_offset + 4 * number * layout.rows, (layout.rows,), np.int32, publication)

    def page_level(self, number: int, publication: Callable[[], Event]) -> ExportedArray:
        """The levels int8 ``[rows, blocks]`` of the ``number``-th group; only with levels."""
        layout = self.layout
        offset = layout.levels_offset + number * layout.rows * layout.blocks
        return ExportedArray(self.storage, offset, (layout.rows, layout.blocks), np.int8, publication)

    def read_accesses(self) -> tuple[Access, ...]:
        """What a submission that reads the tables declares for the ordering check."""
        return self._row_accesses(range(self.layout.rows), write=False)

    # ---- writing (R8.4) ----------------------------------------------------------------------------------------------

    def note_reads(self, reads: Point) -> None:
        """The next publication runs after these reads (R7.7)."""
        self._reads = Fence((*self._reads.points, reads))

    @contextmanager
    def packing(self, rows: int) -> Iterator[Packing]:
        """A publication of so many rows, to be packed and then written (``publish``).

        Raises ``CopyFailed`` if it is refused: the tables are as they were.
        """
        refusal = self._manager.faults.check("upload")
        if refusal is not None and not refusal.queued:
            raise CopyFailed(
                f"the upload of a publication of batch {self._name!r} was refused; its tables are as they were (R8.6)"
            )
        try:
            buffer = self._staging.acquire()
        except DeviceError as error:
            raise CopyFailed(f"the upload of a publication of batch {self._name!r} was refused (R8.6): {error}") from error
        layout = self.layout
        packer = Packer(self._staging.host_bytes(buffer), self.form, rows * layout.groups, layout.blocks)
        try:
            yield Packing(packer, buffer, refusal)
        finally:
            packer.finish()

    def publish(self, stream: Stream, rows: Sequence[int], packing: Packing, ready: Sequence[Point]) -> None:
        """Write ``rows``, which are packed, on ``stream``, as one upload, after all that R7.5 names.

        ``ready``: the readiness of the pages in them. Raises ``CopyFailed`` if it is refused: the tables are as they were.
        """
        manager, (packer, buffer, refusal) = self._manager, packing
        # Threads may be at work in the buffer still: the waits cost no time.
        manager.inside.wait(stream, ready, "R7.5 publication: readiness of the pages in its rows")
        manager.inside.wait(stream, self._reads.points, "R7.5 publication: recorded reads of the tables")
        manager.inside.wait(stream, self._refused.points, "R8.4 publication: what a refused upload had queued")
        if self.published is None:
            manager.inside.wait(stream, (self._filled,), "R8.1 first publication: the tables have their first values")
        else:
            manager.inside.wait(stream, (self.published,), "R7.5 publication: the previous publication")
        packer.finish()
        if refusal is not None:
            # What was queued may still read the buffer (R7.6), and the next publication follows it; the tables stay as they were.
            self._staging.submitted(buffer, stream)
            queued = manager.inside.record(stream, "R8.4 what a refused upload had queued")
            self._refused = Fence((*self._refused.points, queued))
            raise CopyFailed(f"the upload of a publication of batch {self._name!r} was refused after it was queued (R8.6)")
        reads = self._staging.read_access(buffer)
        self._scatter(stream, buffer.memory, rows, packer.entries, packer.work, (reads,), "R8.4 publication: upload and scatter")
        self._staging.submitted(buffer, stream)
        self.published = manager.inside.record(stream, "R7.5 publication: the tables are written")
        # The publication comes after these, and all that follows on the tables comes after the publication.
        self._reads = self._refused = Fence()

    def free(self) -> None:
        """Give the staging buffers back, and the tables once no export holds them."""
        self._staging.free()
        del self.storage

    def _fill(self) -> Point:
        layout, stream = self.layout, self.storage.stream
        pairs = layout.rows * layout.groups
        memory = self._device.allocate(
            "pinned", self.form.nbytes(pairs, 0), f"first values of batch {self._name} ({self._number})"
        )
        heads = self.form.sections(memory.host_array(), pairs, 0).heads
        heads.fill(0)
        heads[:, ROW] = np.repeat(np.arange(layout.rows), layout.groups)
        self._scatter(stream, memory, range(layout.rows), 0, 0, (), "R8.1 the tables get their first values")
        memory.free()
        return self._manager.inside.record(stream, "R8.1 the tables have their first values")

    def _scatter(
        self, stream: Stream, staging: Memory, rows: Sequence[int], entries: int, work: int, reads: tuple[Access, ...], site: str
    ) -> None:
        layout = self.layout
        blocks, chunks = scatter_shape(layout, len(rows), work)
        if not blocks:
            return  # SSM groups alone: there is no table
        numbers = (
            len(rows) * layout.groups,
            layout.groups,
            layout.rows,
            layout.blocks,
            entries,
            int(self.form.wide),
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
            (staging, self.storage.memory, *numbers),
            lambda: (*reads, *self._row_accesses(rows, write=True)),
            site,
        )

    def _row_accesses(self, rows: Sequence[int], write: bool) -> tuple[Access, ...]:
        return tuple(Access(("table", self._number, row), write) for row in rows)
