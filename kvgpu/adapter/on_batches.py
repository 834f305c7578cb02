"""Operations on batches (section 8), and the iterations and dense block offsets of the executor (section 11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvgpu.adapter.run import Handlers, Run
from kvgpu.batch.batch import Batch, check_shape
from kvgpu.device.api import DeviceError, Stream
from kvgpu.errors import LogicError, OutOfPages
from kvgpu.serving import executor
from kvspec import ops
from kvspec.system import OffsetTable


def _make(run: Run, op: ops.MakeBatch) -> None:
    check_shape(op.name, op.rows, op.blocks, op.beam_width)
    old = run.names.batches.get(op.name)
    if old is not None and old.open:
        raise LogicError(f"batch {op.name!r} is open already: close it first (R8.1)")
    try:
        run.names.batches[op.name] = Batch(
            run.manager, op.name, op.rows, op.blocks, op.beam_width, op.levels, op.retry is ops.Retry.LENIENT
        )
    except DeviceError as error:
        raise OutOfPages(f"no memory for the tables of batch {op.name!r}: {error}") from error


def _add(run: Run, op: ops.Add) -> int:
    batch = run.names.batch(op.batch)
    return batch.add(run.names.request(op.request), op.row)


def _remove(run: Run, op: ops.Remove) -> None:
    batch = run.names.batch(op.batch)
    batch.remove(run.names.request(op.request))


def _publish(run: Run, op: ops.Publish) -> tuple[int, ...]:
    batch = run.names.batch(op.batch)
    stream = run.names.stream(op.stream)
    with _publication(run, batch, stream):
        return batch.publish(stream)


def _wait_ready(run: Run, op: ops.WaitReady) -> None:
    batch = run.names.batch(op.batch)
    batch.wait_ready(run.names.stream(op.stream))


def _resize(run: Run, op: ops.ResizeBatch) -> tuple[bool | None, ...]:
    batch = run.names.batch(op.batch)
    stream = run.names.stream(op.stream)
    with _publication(run, batch, stream):
        return batch.resize(op.capacities, op.histories, stream)


@contextmanager
def _publication(run: Run, batch: Batch, stream: Stream) -> Iterator[None]:
    """What is published inside is work of the user's, also where the call then fails (R8.9, R11.4)."""
    upload = batch.tables.upload
    try:
        yield
        run.marks.user_work(stream)  # the stream follows the last publication, whether or not there is a new one
    except BaseException:
        if batch.tables.upload is not upload:
            run.marks.user_work(stream)
        raise


def _close(run: Run, op: ops.CloseBatch) -> None:
    run.names.any_batch(op.batch).close()


def _dense_offsets(run: Run, op: ops.DenseOffsets) -> OffsetTable:
    batch = run.names.batch(op.batch)
    offsets = executor.dense_offsets(run.manager, batch, [run.names.live(name) for name in op.requests], op.layers)
    return OffsetTable(
        {layer: each.scale for layer, each in offsets.items()},
        {layer: each.base for layer, each in offsets.items()},
        {layer: {name: tuple(values.tolist()) for name, values in each.by_request.items()} for layer, each in offsets.items()},
    )


def _iterate(run: Run, op: ops.Iterate) -> dict[str, str]:
    names = run.names
    batch = names.batch(op.batch)
    requests = [names.request(entry.request) for entry in op.requests]
    scheduled = [
        executor.Scheduled(names.live(request.name), entry.capacity, entry.history, entry.decode)
        for request, entry in zip(requests, op.requests, strict=True)
    ]
    stream = names.stream(op.stream)
    group = names.table_group(op.group)
    accepted = {entry.request: entry.accept for entry in op.requests}

    def connector(prepared: executor.Prepared) -> bool:
        return accepted[prepared.request.name]

    def read(turn: executor.Turn) -> None:
        if group is None:  # no group has a table
            return
        table = run.reader.read_table(turn.batch, group, turn.stream, capturing=False)
        if table is not None and op.as_ is not None:
            names.reads[op.as_] = table
        run.marks.user_work(turn.stream)

    # A scenario's request that resumes without a stream gets `exec` (R3.2).
    turns = executor.Executor(run.manager, batch, stream, read, connector, first_stream=names.stream("exec"))
    with _publication(run, batch, stream):
        outcomes = turns.iterate(scheduled, op.layers)
    return {name: outcome.value for name, outcome in outcomes.items()}


HANDLERS: Handlers = {
    ops.MakeBatch: _make,
    ops.Add: _add,
    ops.Remove: _remove,
    ops.Publish: _publish,
    ops.WaitReady: _wait_ready,
    ops.ResizeBatch: _resize,
    ops.CloseBatch: _close,
    ops.DenseOffsets: _dense_offsets,
    ops.Iterate: _iterate,
}
