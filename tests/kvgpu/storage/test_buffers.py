"""Pinned buffers of copies: which are used again, and how often the device is asked whether their work has run."""

from __future__ import annotations

from kvgpu.device.api import Stream
from kvgpu.device.sim.device import SimDevice
from kvgpu.device.sim.options import SimOptions
from kvgpu.storage.copier import Buffer, Buffers
from kvgpu.storage.fences import FenceTable, Point

BYTES = 64


class Asked:
    """An event that counts how often it is asked."""

    def __init__(self, point: Point) -> None:
        self._event = point.event
        self.times = 0

    def done(self) -> bool:
        self.times += 1
        return self._event.done()


class Scene:
    """Buffers, and work that uses them."""

    def __init__(self) -> None:
        self.device = SimDevice(SimOptions())
        self.fences = FenceTable(self.device)
        self.buffers = Buffers(self.device)
        self._streams: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        """The stream of a name, made when it is first asked for."""
        if name not in self._streams:
            self._streams[name] = self.device.stream(name)
        return self._streams[name]

    def use(self, stream: str, buffer: Buffer | None = None) -> tuple[Buffer, Asked]:
        """Work of a stream uses a buffer from now on."""
        buffer = buffer or self.buffers.take(BYTES)
        point = self.fences.record(self.stream(stream), "use")
        asked = Asked(point)
        buffer.busy, buffer.held = Point(point.key, point.number, asked, "use"), False
        return buffer, asked


def test_of_the_work_of_a_stream_only_the_first_that_has_not_run_is_asked_about() -> None:
    scene = Scene()
    gate = scene.device.gate(scene.stream("a"), "g")
    used = [scene.use("a") for _ in range(10)]
    assert len({buffer.number for buffer, _ in used}) == 10
    before = sum(asked.times for _, asked in used)
    another = scene.buffers.take(BYTES)
    assert another.number == 10
    assert sum(asked.times for _, asked in used) == before + 1
    gate.open()
    scene.device.settle()
    assert scene.buffers.take(BYTES) is used[0][0]


def test_work_that_waits_hides_no_buffer_of_another_stream() -> None:
    scene = Scene()
    scene.device.gate(scene.stream("a"), "g")
    for _ in range(10):
        scene.use("a")
    free, _ = scene.use("b")
    scene.device.settle()
    assert scene.buffers.take(BYTES) is free


def test_a_buffer_that_was_taken_first_and_used_last_hides_none_of_the_same_stream() -> None:
    scene = Scene()
    early, between = scene.buffers.take(BYTES), scene.buffers.take(BYTES)
    scene.use("a", between)
    scene.device.gate(scene.stream("a"), "g")
    scene.use("a", early)
    assert scene.buffers.take(BYTES) is between
