"""Publishing block tables: our packed upload and scatter kernel against copies per row and group, and whole tables."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kvgpu.batch.batch import Batch
from kvgpu.batch.publication import publication
from kvgpu.device.api import Device, Memory, Stream
from kvgpu.manager import Manager
from kvgpu.requests.request import Request
from kvgpu.requests.row_entries import RequestEntries
from kvgpu.upload.packing.packer import Packer
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

TOKENS = 64


@dataclass(frozen=True)
class Row:
    """Microseconds. ``*_cpu``: of the submitting call; ``*_end``: until the device is done with it.

    ``whole``: every entry of the rows is new, and not one block of each. ``scattered``: their slots are anywhere, and not side by
    side as they are given to a request at once.
    """

    dirty: int
    whole: bool
    scattered: bool
    rows: int
    groups: int
    blocks: int
    ours_cpu: float
    ours_end: float
    assemble: float | None
    publish_cpu: float
    publish_end: float
    per_row_cpu: float
    per_row_end: float
    whole_cpu: float
    whole_end: float


def config(groups: int, slots: int) -> ManagerConfig:
    """A manager of ``groups`` sparse layer groups, which differ by window, with small pages."""
    layers = tuple(
        LayerConfig(
            name=f"g{number}",
            sliding_window=None if number == 0 else 1_000_000 * number,
            buffers=(BufferConfig(role="key", bytes=16, sparse=True),),
        )
        for number in range(groups)
    )
    levels = tuple(LevelConfig(kind=kind, slots=slots) for kind in (LevelKind.GPU, LevelKind.HOST))
    return ManagerConfig(tokens_per_block=TOKENS, levels=levels, layers=layers)


SPARE = 40
"""Blocks that are not history at the beginning: each step of the measurement completes one."""


def decoding_batch(device: Device, rows: int, groups: int, blocks: int, scattered: bool = False) -> tuple[Manager, Batch, Stream]:
    """A batch full of decoding requests, all but the last blocks on the host."""
    manager = Manager(config(groups, rows * groups * blocks), device)
    if scattered:
        for pools in manager._core.pools:
            for pool in pools:
                pool._passed = (np.random.default_rng(0).permutation(pool._passed[0]),)
    stream = device.stream(f"publication {rows} {groups} {blocks} {scattered}")
    batch = Batch(manager, "rows", rows, blocks)
    for number in range(rows):
        request = manager.create(f"r{number}")
        manager.resume(request, stream)
        assert manager.resize(request, blocks * TOKENS, (blocks - SPARE) * TOKENS)
        assert manager.enter_decode(request)
        batch.add(request)
    batch.publish(stream)
    device.settle()
    return manager, batch, stream


def forget_shown(requests: Sequence[Request]) -> None:
    """As if nothing were known of what the rows of these show: the next publication writes every block."""
    for request in requests:
        request.tracker._since = [None] * len(request.tracker._since)


def measure(
    device: Device,
    peers: ctypes.CDLL,
    rows: int,
    groups: int,
    blocks: int,
    kinds: tuple[tuple[int, bool], ...],
    scattered: bool = False,
) -> list[Row]:
    """``kinds``: how many rows are dirty, and whether wholly. ``scattered``: see ``Row``."""
    from bench.timing import Clock  # the control plane is measured without a GPU, too

    manager, batch, stream = decoding_batch(device, rows, groups, blocks, scattered)
    raw = stream.raw  # type: ignore[attr-defined]
    handle = int(raw)
    clock = Clock(raw)
    words = device.allocate("pinned", groups * rows * (blocks + 1) * 4, "peer's tables on the host")
    table, counts = words.address, words.address + groups * rows * blocks * 4
    on_gpu = [device.allocate("device", rows * blocks * 4, f"peer table {g}") for g in range(groups)]
    on_gpu_counts = [device.allocate("device", rows * 4, f"peer counts {g}") for g in range(groups)]
    pointers = (ctypes.c_void_p * groups)(*(memory.address for memory in on_gpu))
    count_pointers = (ctypes.c_void_p * groups)(*(memory.address for memory in on_gpu_counts))
    found = []
    for dirty, whole in kinds:
        members = list(batch.members)[:dirty]
        numbers = np.arange(dirty, dtype=np.int32)
        staging = device.allocate("pinned", batch.tables.staging_nbytes, "assembled before")
        before: list[RequestEntries | None] = [None] * dirty if whole else batch._entries[:dirty]

        def step(members: list[Request | None] = members) -> None:
            for member in members:
                assert member is not None and manager.resize(member, None, member.history + TOKENS)
            device.settle()

        if not whole:
            step()

        def assemble(
            members: list[Request | None] = members, staging: Memory = staging, before: list[RequestEntries | None] = before
        ) -> Packer:
            packer = Packer(staging.host_array(), batch.tables.form, len(members) * groups, blocks)
            publication(range(len(members)), members, groups, before, manager.fences, packer)
            packer.finish()
            return packer

        packed = assemble()
        assert packed.work == int(not whole)

        def ours(staging: Memory = staging, dirty: int = dirty, packed: Packer = packed) -> None:
            batch.tables._scatter(stream, staging, range(dirty), packed.entries, packed.work, (), "bench")
            device.record(stream, "bench")

        def make_dirty(members: list[Request | None] = members, whole: bool = whole, step: Callable[[], None] = step) -> None:
            if not whole:
                return step()
            there = [member for member in members if member is not None]
            for member in there:
                manager._core.renew(member)
            forget_shown(there)
            return device.settle()

        per_row = (table, counts, pointers, count_pointers, numbers.ctypes.data, dirty, groups, rows, blocks, handle)
        all_rows = (table, counts, pointers, count_pointers, groups, rows, blocks, handle)
        batch.publish(stream)
        found.append(
            Row(
                dirty,
                whole,
                scattered,
                rows,
                groups,
                blocks,
                *clock.cpu(ours),
                clock.cpu(assemble)[0] if whole else None,  # a second time there is no change
                *clock.cpu(lambda: batch.publish(stream), make_dirty),
                *clock.cpu(lambda args=per_row: peers.publish_per_row(*args)),  # type: ignore[misc]
                *clock.cpu(lambda args=all_rows: peers.publish_whole(*args)),  # type: ignore[misc]
            )
        )
        staging.free()
    manager.shut()
    return found
