"""Operations on streams: gates, reads, captures, refused copies, waits on the CPU (sections 4, 7 and 8)."""

from __future__ import annotations

from kvgpu.adapter.fetches import check_lengths, check_published
from kvgpu.adapter.reads import Read
from kvgpu.adapter.run import Handlers, Run
from kvgpu.device.api import DeviceBlocked, Stream
from kvgpu.errors import InvalidArgument, LogicError, OutOfRange
from kvspec import ops


def _no_capture(run: Run, stream: Stream | None) -> None:
    """A stream in capture takes captured reads alone (R8.8). ``None``: every stream."""
    captured = run.manager.capturing
    if captured is not None and stream in (None, captured):
        raise LogicError(f"stream {captured.name!r} is in capture: end it first (R8.8)")


def _record_read(run: Run, op: ops.RecordRead) -> None:
    batch = None if op.batch is None else run.names.batch(op.batch)
    request = None if op.request is None else run.names.live(op.request)
    stream = run.names.stream(op.stream)
    if batch is not None and request is None:
        batch.record_read(stream)
    elif request is not None and batch is None:
        run.manager.record_read(request, stream)
    else:
        raise InvalidArgument("record_read is either of a batch or of a request")


def _read_page(run: Run, op: ops.ReadPage) -> None:
    request = run.names.live(op.request)
    stream, group = run.names.stream(op.stream), run.names.group(op.group)
    page = run.manager.read_page(request, group, op.block, op.beam, stream)
    run.marks.user_work(stream)
    run.names.reads[op.as_] = Read(run.device.position(stream), page=page)


def _read_table(run: Run, op: ops.ReadTable) -> None:
    batch = run.names.batch(op.batch)
    stream, group = run.names.stream(op.stream), run.names.group(op.group)
    read = run.reader.read_table(batch, group, stream, capturing=run.manager.capturing is stream)
    if read is not None:
        run.names.reads[op.as_] = read
        run.marks.user_work(stream)


def _begin_capture(run: Run, op: ops.BeginCapture) -> None:
    run.manager.begin_capture(run.names.stream(op.stream))


def _end_capture(run: Run, op: ops.EndCapture) -> None:
    graph = run.manager.end_capture(run.names.stream(op.stream))
    run.names.graphs[op.as_] = captured = run.reader.end_capture(graph)
    captured.fetches = run.fetcher.end_capture()


def _replay(run: Run, op: ops.Replay) -> None:
    graph, stream = run.names.graph(op.graph), run.names.stream(op.stream)
    select = op.select or {}
    for name in select:
        run.names.request(name)
    if op.select is not None and not graph.fetches:
        raise InvalidArgument(f"a selection for graph {op.graph!r}, which has no fetch in it (R15.8)")
    for _, fetch in graph.fetches:
        check_lengths(fetch, select)
    _no_capture(run, stream)
    for _, fetch in graph.fetches:
        check_published(fetch.batch, select)

    def launch() -> None:
        if graph.fetches:
            run.fetcher.replay(graph.graph, graph.fetches, select, stream)
        else:
            graph.graph.launch(stream, "replay: a user's read of page tables")

    run.names.reads[op.as_] = run.reader.replay(graph, stream, launch)
    if not graph.fetches:
        run.marks.user_work(stream)


def _fetch(run: Run, op: ops.Fetch) -> None:
    batch = run.names.batch(op.batch)
    for name in op.select:
        run.names.live(name)
    stream = run.names.stream(op.stream)
    fetch = batch.fetch(op.layer)
    check_lengths(fetch, op.select)
    batch.check_fetch(stream)
    check_published(batch, op.select)
    run.fetcher.run(fetch, op.select, stream, op.as_, capturing=run.manager.capturing is stream)


def _close_gate(run: Run, op: ops.CloseGate) -> None:
    stream = run.names.stream(op.stream)
    if run.gates.is_closed(op.as_):
        raise LogicError(f"gate {op.as_!r} is closed already: open it first, or use another label")
    _no_capture(run, stream)
    run.gates.close(op.as_, stream)
    run.marks.user_work(stream)


def _open_gate(run: Run, op: ops.OpenGate) -> None:
    if op.as_ not in run.gates.known:
        raise OutOfRange(f"no gate {op.as_!r}: there are {', '.join(sorted(run.gates.known)) or 'none'}")
    run.gates.open(op.as_)


def _fail_copy(run: Run, op: ops.FailCopy) -> None:
    run.manager.faults.arm(op.direction.value, op.call, op.queued)


def _sync(run: Run, op: ops.Sync) -> None:
    stream = None if op.stream is None else run.names.stream(op.stream)
    _no_capture(run, stream)
    try:
        run.device.sync(stream)
    except DeviceBlocked as error:
        raise LogicError(str(error)) from error


HANDLERS: Handlers = {
    ops.RecordRead: _record_read,
    ops.ReadPage: _read_page,
    ops.ReadTable: _read_table,
    ops.BeginCapture: _begin_capture,
    ops.EndCapture: _end_capture,
    ops.Replay: _replay,
    ops.Fetch: _fetch,
    ops.CloseGate: _close_gate,
    ops.OpenGate: _open_gate,
    ops.FailCopy: _fail_copy,
    ops.Sync: _sync,
}
