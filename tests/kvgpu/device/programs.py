"""Small device programs that several tests run, on any device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba.cuda
import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Access, Accesses, Device, Kernel, Memory, Stream

cuda: Any = numba.cuda
Bytes = npt.NDArray[np.uint8]


def _mix_cuda(target: Bytes, offset: int, value: int) -> None:
    if cuda.grid(1) == 0:
        target[offset] = (target[offset] * 31 + value) % 256


def _mix_late_cuda(target: Bytes, offset: int, value: int) -> None:
    if cuda.grid(1) == 0:
        target[offset] = (target[offset] * 31 + value) % 256


def _mix_twin(target: Bytes, offset: int, value: int) -> None:
    target[offset] = (int(target[offset]) * 31 + value) % 256


def _copy_cuda(source: Bytes, start: int, target: Bytes, offset: int, nbytes: int) -> None:
    for i in range(cuda.grid(1), nbytes, cuda.gridsize(1)):
        target[offset + i] = source[start + i]


def _copy_twin(source: Bytes, start: int, target: Bytes, offset: int, nbytes: int) -> None:
    target[offset : offset + nbytes] = source[start : start + nbytes]


MIX = Kernel("test mix", _mix_cuda, _mix_twin)
"""``target[offset] = target[offset] * 31 + value``: no two orders of several of these give the same byte."""
FRESH = Kernel("test mix, loaded late", _mix_late_cuda, _mix_twin)
"""``MIX`` under another name."""
COPY = Kernel("test copy", _copy_cuda, _copy_twin)
"""Copies bytes, several threads."""


def touches(*names: str, write: bool = True) -> Accesses:
    """Accesses to resources of these names."""
    return lambda: [Access((name,), write) for name in names]


def mix(device: Device, stream: Stream, memory: Memory, offset: int, value: int, name: str, site: str = "mix") -> None:
    """Submit a mix that writes the resource ``name``."""
    device.launch(stream, MIX, 1, 32, [memory, offset, value], touches(name), site)


def copy(
    device: Device, stream: Stream, source: Memory, start: int, target: Memory, offset: int, nbytes: int, site: str = "copy"
) -> None:
    """Submit a copy by kernel that declares nothing."""
    device.launch(stream, COPY, 2, 32, [source, start, target, offset, nbytes], list, site)


Build = Callable[[Device], Sequence[bytes]]


def chain(device: Device) -> Sequence[bytes]:
    """Three streams in a row, by events."""
    streams = [device.stream(name) for name in "abc"]
    memory = device.allocate("device", 8, "chain")
    for number, stream in enumerate(streams):
        if number:
            device.wait(stream, device.record(streams[number - 1], f"record {number}"), f"wait {number}")
        mix(device, stream, memory, 0, number + 1, "cell")
    device.settle()
    return [memory.read_now(0, 8)]


def gated(device: Device) -> Sequence[bytes]:
    """What a closed gate holds up does not run, what it does not hold up does, and it all runs once it opens."""
    a, b, c = (device.stream(name) for name in "abc")
    memory = device.allocate("device", 8, "gated")
    gate = device.gate(a, "g")
    mix(device, a, memory, 0, 5, "cell 0")
    mix(device, b, memory, 1, 6, "cell 1")
    after = device.record(a, "after")
    device.wait(c, after, "wait")
    mix(device, c, memory, 0, 7, "cell 0")
    device.settle()
    states = [memory.read_now(0, 8), bytes([after.done(), *(len(device.position(of).gates) for of in (a, b, c, after))])]
    gate.open()
    device.settle()
    return [*states, memory.read_now(0, 8), bytes([after.done(), *(len(device.position(of).gates) for of in (a, b, c, after))])]


def pinned(device: Device) -> Sequence[bytes]:
    """Bytes go from the host to the device by an upload, on by a kernel into host memory, and back by an upload."""
    a = device.stream("a")
    staging, pool, back = (device.allocate(kind, 4096, kind) for kind in ("pinned", "device", "pinned"))
    staging.host_array()[:] = np.arange(4096) % 251
    device.upload(a, staging, 0, pool, 1024, 2048, list, "up")
    copy(device, a, pool, 1024, back, 0, 1000)
    device.upload(a, pool, 1024, back, 2048, 1024, list, "down")
    device.sync(a)
    return [pool.read_now(0, 4096), back.host_array().tobytes(), back.read_now(0, 4096)]


def hosted(device: Device) -> Sequence[bytes]:
    """A host task runs in stream order: behind a gate, after a kernel, before a kernel."""
    a = device.stream("a")
    memory = device.allocate("pinned", 8, "memory")
    seen: list[int] = []
    gate = device.gate(a, "g")
    mix(device, a, memory, 0, 9, "cell")
    device.host_task(a, lambda: seen.append(int(memory.host_array()[0])), touches("cell"), "task")
    mix(device, a, memory, 0, 9, "cell")
    device.settle()
    early = len(seen)
    gate.open()
    device.settle()
    return [bytes([early, *seen]), memory.read_now(0, 8)]


def captured(device: Device) -> Sequence[bytes]:
    """A graph runs at its replays alone, and sees what is there then."""
    a, b = device.stream("a"), device.stream("b")
    source, seen = device.allocate("device", 8, "source"), device.allocate("pinned", 8, "seen")
    device.begin_capture(b)
    copy(device, b, source, 0, seen, 0, 8)
    device.upload(b, source, 0, seen, 4, 1, list, "captured upload")
    graph = device.end_capture(b)
    device.settle()
    states = [seen.read_now(0, 8)]
    for value in (3, 4):
        mix(device, a, source, 0, value, "cell")
        device.wait(b, device.record(a, "written"), "read after write")
        graph.launch(b, "replay")
        device.wait(a, device.record(b, "read"), "write after read")
        device.settle()
        states.append(seen.read_now(0, 8))
    return states


PROGRAMS: dict[str, Build] = {build.__name__: build for build in (chain, gated, pinned, hosted, captured)}
