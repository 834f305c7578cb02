"""Operations on one request (sections 3, 4 and 6)."""

from __future__ import annotations

from kvgpu.adapter.run import Handlers, Run
from kvgpu.adapter.tokens import spans_of
from kvgpu.serving import executor
from kvspec import ops


def _create(run: Run, op: ops.Create) -> int:
    return run.manager.create(op.request, op.tokens, op.prompt_length, op.priority, key=op.key, spans=spans_of(op.spans)).history


def _resume(run: Run, op: ops.Resume) -> bool:
    request = run.names.live(op.request)
    name = op.stream
    if name == "default":
        name = "exec" if request.stream is None else None
    stream = None if name is None else run.names.stream(name)
    return run.manager.resume(request, stream, op.decode)


def _resize(run: Run, op: ops.Resize) -> bool:
    return run.manager.resize(run.names.live(op.request), op.capacity, op.history)


def _enter_decode(run: Run, op: ops.EnterDecode) -> bool:
    return run.manager.enter_decode(run.names.live(op.request))


def _admit_generation(run: Run, op: ops.AdmitGeneration) -> bool:
    request = run.names.live(op.request)
    return executor.admit_generation(run.manager, request, run.names.stream("exec"))


def _commit(run: Run, op: ops.Commit) -> None:
    run.manager.commit(run.names.live(op.request), op.tokens, op.end, key=op.key)


def _stop_committing(run: Run, op: ops.StopCommitting) -> None:
    run.manager.stop_committing(run.names.live(op.request))


def _suspend(run: Run, op: ops.Suspend) -> None:
    run.manager.suspend(run.names.live(op.request))


def _close(run: Run, op: ops.Close) -> None:
    run.manager.close(run.names.request(op.request))


def _prefetch(run: Run, op: ops.Prefetch) -> bool:
    return run.manager.prefetch(run.names.live(op.request), int(op.level.level))


def _offload(run: Run, op: ops.Offload) -> None:
    request = run.names.live(op.request)
    run.manager.offload(request, op.blocks, run.names.some_groups(op.groups))


def _set_beam_width(run: Run, op: ops.SetBeamWidth) -> bool:
    return run.manager.set_beam_width(run.names.live(op.request), op.width)


def _set_stream(run: Run, op: ops.SetStream) -> None:
    request = run.names.live(op.request)
    run.manager.set_stream(request, run.names.stream(op.stream))


def _write(run: Run, op: ops.Write) -> None:
    request = run.names.live(op.request)
    run.payloads.write(request, run.manager.writable(request, op.blocks, run.names.some_groups(op.groups)))


def _acknowledge(run: Run, op: ops.Acknowledge) -> bool:
    request = run.names.live(op.request)
    version = request.version if op.version == "latest" else run.names.snapshot(op.version).version
    return run.manager.acknowledge(request, version)


def _snapshot(run: Run, op: ops.TakeSnapshot) -> None:
    request = run.names.request(op.request)
    run.names.snapshots[op.as_] = run.manager.snapshot(request, run.names.group(op.group), op.beam)


def _wait_snapshot(run: Run, op: ops.WaitSnapshot) -> None:
    snapshot = run.names.snapshot(op.snapshot)
    run.manager.wait_snapshot(snapshot, run.names.stream(op.stream))


def _bind_row(run: Run, op: ops.BindRow) -> None:
    run.manager.bind_row(run.names.live(op.request), op.row)


HANDLERS: Handlers = {
    ops.Create: _create,
    ops.Resume: _resume,
    ops.Resize: _resize,
    ops.EnterDecode: _enter_decode,
    ops.AdmitGeneration: _admit_generation,
    ops.Commit: _commit,
    ops.StopCommitting: _stop_committing,
    ops.Suspend: _suspend,
    ops.Close: _close,
    ops.Prefetch: _prefetch,
    ops.Offload: _offload,
    ops.SetBeamWidth: _set_beam_width,
    ops.SetStream: _set_stream,
    ops.Write: _write,
    ops.Acknowledge: _acknowledge,
    ops.TakeSnapshot: _snapshot,
    ops.WaitSnapshot: _wait_snapshot,
    ops.BindRow: _bind_row,
}
