"""Captures that somebody else begins, as torch.cuda.graph does: noticed stream by stream, and never broken (R8.8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Device, DeviceError, Stream
from kvgpu.device.open import open_device, why_no_gpu
from kvgpu.device.sim import SimDevice
from kvgpu.errors import LogicError
from kvgpu.manager import Manager
from kvgpu.requests.request import Request
from kvgpu.serving.executor import Executor, Scheduled, Turn
from kvspec.config import ManagerConfig
from tests.kvgpu.device import fake_driver

CONFIG = ManagerConfig.model_validate(
    {
        "tokens_per_block": 4,
        "levels": [{"kind": "gpu", "slots": 16}, {"kind": "host", "slots": 16}],
        "layers": [{"name": "main", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]}],
    }
)
REFUSED = r"is being captured: wait for the end of the capture \(R8\.8\)"
Captures = Callable[[Stream], AbstractContextManager[Any]]


@dataclass(slots=True)
class Scene:
    """A manager with a batch of two members on streams of their own, and a way in which somebody else captures a stream."""

    device: Device
    captured: Captures
    manager: Manager
    batch: Batch
    a: Request
    b: Request
    c: Request
    exec: Stream
    side: Stream

    @classmethod
    def on(cls, device: Device, captured: Captures) -> Scene:
        manager = Manager(CONFIG, device)
        batch = Batch(manager, "rows", rows=2, blocks=4)
        streams = device.stream("exec"), device.stream("side")
        members = []
        for name, stream in zip("ab", streams, strict=True):
            request = manager.create(name)
            assert manager.resume(request, stream)
            assert manager.resize(request, 8, 5)
            batch.add(request)
            members.append(request)
        return cls(device, captured, manager, batch, *members, manager.create("c"), *streams)


@contextmanager
def captured_on_the_pretended_gpu(stream: Stream) -> Iterator[None]:
    begin = fake_driver.cuStreamBeginCapture(stream.handle, fake_driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    assert begin == fake_driver.OK
    try:
        yield
    finally:
        assert fake_driver.cuStreamEndCapture(stream.handle)[0] == fake_driver.CUresult.CUDA_SUCCESS, "the capture was broken"


@pytest.fixture(params=["sim", "pretended", pytest.param("gpu", marks=pytest.mark.cuda)])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    if request.param == "sim":
        device: Device = SimDevice()

        @contextmanager
        def captured(stream: Stream) -> Iterator[None]:
            device.begin_capture(stream)
            try:
                yield
            finally:
                device.end_capture(stream)

    elif request.param == "pretended":
        device = request.getfixturevalue("pretended")()
        captured = captured_on_the_pretended_gpu
    else:
        if reason := why_no_gpu():
            pytest.skip(f"needs a GPU: {reason}")
        device, captured = open_device("cuda"), _captured_by_torch
    with _torch_on(device) if request.param == "gpu" else nullcontext():
        made = Scene.on(device, captured)
        yield made
        device.settle()
        assert device.faults() == ()
        made.manager.shut()
        device.close()


def _torch_on(device: Device) -> AbstractContextManager[Any]:
    import torch

    on: AbstractContextManager[Any] = torch.cuda.device(device.ordinal)
    return on


@contextmanager
def _captured_by_torch(stream: Stream) -> Iterator[Any]:
    import torch

    external = torch.cuda.ExternalStream(stream.handle)
    graph, word = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda")
    with torch.cuda.graph(graph, stream=external):
        word.add_(1)
        yield graph
    graph.replay()
    torch.cuda.current_stream().synchronize()  # not the device: a closed gate would hold that up for ever
    assert word.item() == 1, "the capture was broken"


def test_a_device_knows_which_stream_is_captured(scene: Scene) -> None:
    asked = [scene.device.is_capturing(scene.exec)]
    with scene.captured(scene.exec):
        asked += [scene.device.is_capturing(scene.exec), scene.device.is_capturing(scene.side)]
        with pytest.raises(DeviceError, match="'exec', which is in capture"):
            scene.device.sync(scene.exec)
    asked.append(scene.device.is_capturing(scene.exec))
    assert asked == [False, True, False, False]


def test_batches_are_refused_on_the_captured_stream_and_work_on_others(scene: Scene) -> None:
    other = scene.device.stream("other")
    with scene.captured(other):
        for call in (scene.batch.publish, lambda stream: scene.batch.resize([12, 12], None, stream), scene.batch.record_read):
            with pytest.raises(LogicError, match=REFUSED):
                call(other)
        assert scene.batch.dirty_rows() == (0, 1)
        assert (scene.a.capacity, scene.b.capacity) == (8, 8)
        assert scene.batch.publish(scene.exec) == (0, 1)
        with pytest.raises(LogicError, match=REFUSED):
            scene.batch.wait_ready(other)
        scene.batch.wait_ready(scene.side)
        assert scene.batch.resize([12, 12], None, scene.side) == (True, True)
        scene.batch.record_read(scene.side)
        if scene.device.kind == "sim":  # where the captures of others are captures of the device, of which there is one
            assert scene.manager.capturing is None
    assert scene.batch.publish(other) == ()
    scene.batch.record_read(other)


def test_reads_of_a_request_are_refused_on_the_captured_stream_and_work_on_others(scene: Scene) -> None:
    other = scene.device.stream("other")
    scene.batch.remove(scene.a)
    with scene.captured(other):
        with pytest.raises(LogicError, match=REFUSED):
            scene.manager.record_read(scene.a, other)
        scene.manager.record_read(scene.a, scene.side)
    with scene.captured(scene.exec), pytest.raises(LogicError, match=REFUSED):
        scene.manager.record_read(scene.a, scene.side)


def test_reads_of_a_batch_that_are_refused_hold_nothing_up(scene: Scene) -> None:
    scene.batch.publish(scene.exec)
    with scene.captured(scene.exec):  # which waits for the whole device as it begins, on a GPU
        gate = scene.device.gate(scene.side, "shut")
        with pytest.raises(LogicError, match=REFUSED):
            scene.batch.record_read(scene.side)
    assert scene.manager.resize(scene.a, 12)
    scene.batch.publish(scene.exec)
    scene.batch.wait_ready(scene.exec)
    assert scene.device.position(scene.exec).gates == frozenset(), "the next publication waits for the reads"
    gate.open()


def test_other_requests_go_on_and_everything_is_allocated_meanwhile(scene: Scene) -> None:
    manager = scene.manager
    with scene.captured(scene.exec):
        assert manager.resize(scene.b, 16, 8)
        assert manager.enter_decode(scene.b)
        more = Batch(manager, "more", rows=1, blocks=4)
        manager.suspend(scene.b)
        scene.batch.remove(scene.b)
        more.add(scene.b)
        assert more.publish(scene.side) == (0,)
        for _ in range(3):  # staging buffers and events are asked about
            assert manager.resume(scene.b)
            assert more.publish(scene.side) == (0,)
            manager.suspend(scene.b)
        scene.device.settle()
    assert manager.resize(scene.a, 12, 8)


def test_a_thread_beside_the_capturing_one_breaks_nothing(scene: Scene) -> None:
    def work() -> None:
        try:
            assert scene.manager.resize(scene.b, 16, 8)
            assert scene.manager.enter_decode(scene.b)
            scene.batch.publish(scene.side)
            scene.device.settle()
        except BaseException as error:  # told by the test's own thread
            failed.append(error)

    failed: list[BaseException] = []
    with scene.captured(scene.exec):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
    assert failed == []


def test_what_would_touch_the_captured_stream_is_refused_and_changes_nothing(scene: Scene) -> None:
    manager = scene.manager
    assert manager.resize(scene.b, 8, 8)
    assert manager.enter_decode(scene.b)
    scene.batch.publish(scene.side)
    before = _seen(scene)
    turns: list[Turn] = []
    executor = Executor(manager, scene.batch, scene.side, turns.append)
    with scene.captured(scene.exec):
        calls: dict[str, Callable[[], object]] = {
            "resize": lambda: manager.resize(scene.a, 16, 8),
            "shrink": lambda: manager.resize(scene.a, 5, 5),
            "enter_decode": lambda: manager.enter_decode(scene.a),
            "resume": lambda: manager.resume(scene.c, scene.exec),
            "write": lambda: manager.write_payloads(scene.a, [(manager.writable(scene.a, [1])[0], bytes(64))]),
            "read_page": lambda: manager.read_page(scene.b, 0, 0, 0, scene.exec),
            "commit": lambda: manager.commit(scene.a, [1, 2, 3, 4]),
            "suspend": lambda: manager.suspend(scene.a),
            "close": lambda: manager.close(scene.a),
            "offload": lambda: manager.offload(scene.a, [0]),
            "set_stream": lambda: manager.set_stream(scene.a, scene.side),
            "set_stream to it": lambda: manager.set_stream(scene.b, scene.exec),
            "record_read of a batch": lambda: scene.batch.record_read(scene.side),
            "resize of a batch": lambda: scene.batch.resize(None, None, scene.side),
            "iterate": lambda: executor.iterate([Scheduled(scene.b)]),
            "begin_capture": lambda: manager.begin_capture(scene.exec),
            "import of a table": lambda: scene.batch.page_table(0).order(scene.exec),
        }
        for name, call in calls.items():
            with pytest.raises(LogicError, match=r"captured"):
                call()
            assert _seen(scene) == before, name
    assert turns == [], "the iteration had begun"
    with scene.captured(scene.side), pytest.raises(LogicError, match=REFUSED):
        scene.batch.resize([12, 12], None, scene.exec)
    assert _seen(scene) == before, "the first row was resized before the second was refused"
    manager.close(scene.a)
    assert manager.resize(scene.b, 12, 8)
    scene.batch.publish(scene.exec)


def _seen(scene: Scene) -> list[object]:
    manager, members = scene.manager, (scene.a, scene.b, scene.c)
    return [
        [(one.status, one.phase, one.capacity, one.history, one.committed, one.row, one.version) for one in members],
        [(one.indices(0).tolist(), one.levels(0).tolist(), one.stream, one.batch) for one in members],
        [manager.pool_info(level, 0).free for level in (0, 1)],
        manager.page_infos(),
        manager.tree_blocks(),
        scene.batch.dirty_rows(),
        manager.copy_calls(),
    ]


@pytest.mark.cuda
@pytest.mark.skipif(why_no_gpu() is not None, reason=f"needs a GPU: {why_no_gpu()}")
def test_a_graph_of_torch_reads_the_tables_as_they_were_last_published() -> None:
    import torch

    device = open_device("cuda")
    with _torch_on(device):
        scene = Scene.on(device, _captured_by_torch)
        scene.batch.publish(scene.exec)
        table = torch.from_dlpack(scene.batch.page_table(0))
        out, graph = torch.empty_like(table), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):  # a stream of torch's own
            torch.add(table, 0, out=out)
            assert scene.batch.resize([12, 16], None, scene.side) == (True, True)
            scene.batch.record_read(scene.side)
            with pytest.raises(LogicError, match="import it before"):
                torch.from_dlpack(scene.batch.page_table(0))
        for capacity in (12, 16):
            assert scene.manager.resize(scene.a, capacity)
            scene.batch.publish(scene.exec)
            current = torch.cuda.current_stream()
            scene.batch.wait_ready(device.external_stream(current))
            graph.replay()
            scene.batch.record_read(device.external_stream(current))
            torch.cuda.synchronize()
            slots = scene.a.indices(0)
            assert out[0].tolist() == [*slots.tolist(), *([-1] * (4 - len(slots)))]
            assert np.array_equal(out.cpu().numpy(), table.cpu().numpy())
        del table
    scene.manager.shut()
    device.close()
