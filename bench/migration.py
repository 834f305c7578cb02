"""Moving scattered pages between GPU and pinned host memory: our kernel, its peers, and the ceiling of the link."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from bench.timing import Clock
from kvgpu.device.api import Device
from kvgpu.device.cuda.driver import checked, driver
from kvgpu.manager import Manager
from kvgpu.storage.copier import Copier, Side
from kvgpu.storage.copy_kernels import blocks_for
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

PAGES = 2048
SIZES = (4 << 10, 64 << 10, 256 << 10)
TARGETS = {("offload", 4 << 10): 85, ("offload", 64 << 10): 92, ("offload", 256 << 10): 93} | {
    ("onboard", 4 << 10): 80,
    ("onboard", 64 << 10): 90,
    ("onboard", 256 << 10): 91,
}
FASTER = {4 << 10: 25.0, 64 << 10: 2.8, 256 << 10: 1.4}
"""Offload against one copy call per page."""


@dataclass(frozen=True)
class Row:
    """Device times in microseconds of moving ``PAGES`` pages."""

    direction: str
    page_bytes: int
    ceiling: float
    ours: float
    per_page: float
    batched: float
    kernel: float
    submit: float
    blocks: int

    def rate(self, time: float) -> float:
        """GB/s."""
        return PAGES * self.page_bytes / time / 1e3


def measure(device: Device, peers: ctypes.CDLL) -> list[Row]:
    rows = []
    for page_bytes in SIZES:
        slots = 4 * PAGES
        config = ManagerConfig(
            tokens_per_block=64,
            levels=(LevelConfig(kind=LevelKind.GPU, slots=slots), LevelConfig(kind=LevelKind.HOST, slots=slots)),
            layers=(LayerConfig(name="main", buffers=(BufferConfig(role="key", bytes=page_bytes, sparse=True),)),),
        )
        manager = Manager(config, device)
        core = manager._core
        gpu, host = core.pools[0][0], core.pools[1][0]
        stream = device.stream(f"migration {page_bytes}")
        raw = stream.raw  # type: ignore[attr-defined]
        clock = Clock(raw)
        rng = np.random.default_rng(page_bytes)
        total = PAGES * page_bytes
        one, other = (rng.permutation(slots)[:PAGES].astype(np.int32) for _ in range(2))
        for direction, source, target in (("offload", gpu, host), ("onboard", host, gpu)):
            assert source.memory is not None and target.memory is not None
            at, to = source.memory.address, target.memory.address
            pairs = np.stack([one, other], axis=1).astype(np.int32).copy()
            mapped = device.allocate("pinned", pairs.nbytes, "pairs")
            mapped.host_array()[:] = pairs.reshape(-1).view(np.uint8)

            def ours(source: object = source, target: object = target, copier: Copier = core.copier) -> None:
                copier.on_stream(stream, Side(one, source), Side(other, target), "bench", "bench", "bench")  # type: ignore[arg-type]

            handle = int(raw)
            args = (at, to, pairs.ctypes.data, PAGES, page_bytes)
            ceiling = clock.device(lambda at=at, to=to: checked(driver.cuMemcpyAsync(to, at, total, raw)))  # type: ignore[misc]
            rows.append(
                Row(
                    direction,
                    page_bytes,
                    ceiling,
                    clock.device(ours),
                    clock.device(lambda args=args: _ok(peers.copy_per_page(*args, handle))),  # type: ignore[misc]
                    clock.device(lambda args=args: _ok(peers.copy_batched(*args, handle))),  # type: ignore[misc]
                    clock.device(
                        lambda at=at, to=to, mapped=mapped: _ok(  # type: ignore[misc]
                            peers.copy_kernel(at, to, mapped.address, PAGES, page_bytes, 16, handle)
                        )
                    ),
                    clock.cpu(ours)[0],
                    blocks_for(total),
                )
            )
            _verify(device, source, target, one, other, page_bytes, ours)
            mapped.free()
        manager.shut()
    return rows


def _verify(device: Device, source: object, target: object, one: object, other: object, page_bytes: int, ours: object) -> None:
    """Fresh contents in some of the pages, moved once, compared byte by byte."""
    rng = np.random.default_rng()
    contents = {int(place): rng.bytes(page_bytes) for place in rng.choice(PAGES, 128, replace=False)}
    for place, payload in contents.items():
        checked(driver.cuMemcpy(source.memory.address + int(one[place]) * page_bytes, _address(payload), page_bytes))  # type: ignore[attr-defined, index]
    ours()  # type: ignore[operator]
    device.settle()
    for place, payload in contents.items():
        after = target.memory.read_now(int(other[place]) * page_bytes, page_bytes)  # type: ignore[attr-defined, index]
        assert after == payload, f"page {place} did not arrive whole"


def _address(payload: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(payload), ctypes.c_void_p).value or 0


def _ok(error: int) -> None:
    if error:
        raise RuntimeError(f"a peer failed with CUDA error {error}")
