"""Allocating all that a manager works on, and giving it back."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from kvgpu.config import Layout
from kvgpu.device.api import Device, DeviceError
from kvgpu.fetch.caches import GroupCaches
from kvgpu.operations.state import Core
from kvgpu.storage.backings import Backings
from kvgpu.storage.copier import Copier
from kvgpu.storage.copy_kernels import COPY_PAGES, COPY_PAGES_ARRAYS
from kvgpu.storage.counters import Counters
from kvgpu.storage.eviction import EvictionQueue
from kvgpu.storage.faults import FaultPlan
from kvgpu.storage.fences import FenceTable
from kvgpu.storage.pages import PageTable
from kvgpu.storage.pools import SlotPool
from kvgpu.storage.prefix_tree import PrefixTree
from kvgpu.upload.scatter_kernels import SCATTER, SCATTER_ARRAYS
from kvspec.config import Level


def build(layout: Layout, device: Device) -> tuple[Core, ExitStack]:
    """The state of a new manager, and what gives its pools and files back. Raises ``DeviceError``."""
    # Loaded now: later a closed gate could hold the loading up.
    device.prepare(COPY_PAGES, COPY_PAGES_ARRAYS)
    device.prepare(SCATTER, SCATTER_ARRAYS)
    with ExitStack() as holds:  # what fails keeps nothing of the rest from being given back
        folder = Path(holds.enter_context(_temporary_folder())) if len(layout.levels) > Level.DISK else Path()
        fences, faults = FenceTable(device), FaultPlan()
        pools: list[tuple[SlotPool, ...]] = []
        for level in layout.levels:
            pools.append(())
            for spec in level:
                pools[-1] += (SlotPool(spec, device, fences, folder),)
                holds.callback(pools[-1][-1].close)
        memory = pools[Level.GPU][0].memory
        assert memory is not None
        pages, copier = PageTable(fences, places=layout.private), Copier(device, fences, faults)
        holds.callback(copier.close)
        caches = {group.number: GroupCaches(device, layout, group.number) for group in layout.groups if group.reserve}
        for each in caches.values():
            holds.callback(each.close)
        core = Core(
            layout,
            device,
            fences,
            pages,
            PrefixTree(layout.tokens_per_block, len(layout.groups)),
            tuple(pools),
            tuple(tuple(EvictionQueue(spec.level, spec.number, layout, pages) for spec in level) for level in layout.levels),
            Counters(np.array([group.page_bytes for group in layout.groups], dtype=np.int64)),
            faults,
            copier,
            np.array([group.pool_groups for group in layout.groups], dtype=np.int32),
            device.poison(memory, (), (), "R7.2 poison the slot of a new page") is not None,
            Backings(pages) if layout.private else None,
            caches=caches,
        )
        return core, holds.pop_all()


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder of our own for the files of the disk level. Raises ``DeviceError``."""
    try:
        return tempfile.TemporaryDirectory(prefix="kvgpu-")
    except OSError as error:
        raise DeviceError(
            f"no folder for the files of the disk level: {error}; set TMPDIR to a folder that can be written to"
        ) from error
