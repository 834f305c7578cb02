"""CPU time of the control plane at scale: decode entry, a history step, publication. Needs no GPU."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from bench.publication import TOKENS, config
from kvgpu.batch import Batch
from kvgpu.device.api import Device
from kvgpu.manager import Manager

BLOCKS = 15_625
"""A request of 1,000,000 tokens."""


@dataclass(frozen=True)
class Figures:
    """CPU microseconds: per page of a decode entry, of one history step, of a publication with all rows dirty."""

    rows: int
    groups: int
    entry_per_page: float
    step: float
    publish: float
    publish_one: float


def measure(device: Device, rows: int, groups: int = 2, repeats: int = 5) -> Figures:
    manager = Manager(config(groups, rows * groups * (BLOCKS + 8)), device)
    stream = device.stream(f"control plane {rows}")
    batch = Batch(manager, "rows", rows, BLOCKS + 8)
    entries, requests = [], []
    for number in range(rows):
        request = manager.create(f"r{number}")
        manager.resume(request, stream)
        assert manager.resize(request, (BLOCKS + 8) * TOKENS, BLOCKS * TOKENS)
        device.settle()
        start = time.perf_counter()
        assert manager.enter_decode(request)
        entries.append(1e6 * (time.perf_counter() - start) / (BLOCKS * groups))
        batch.add(request)
        requests.append(request)
    batch.publish(stream)
    device.settle()
    steps, publications, singles = [], [], []
    for turn in range(1, repeats + 1):
        for request in requests:
            start = time.perf_counter()
            assert manager.resize(request, None, (BLOCKS + turn) * TOKENS)
            steps.append(1e6 * (time.perf_counter() - start))
        device.settle()
        start = time.perf_counter()
        assert len(batch.publish(stream)) == rows
        publications.append(1e6 * (time.perf_counter() - start))
        device.settle()
        manager._core.renew(requests[0])
        start = time.perf_counter()
        assert batch.publish(stream) == (0,)
        singles.append(1e6 * (time.perf_counter() - start))
        device.settle()
    manager.shut()
    return Figures(rows, groups, *(statistics.median(times) for times in (entries, steps, publications, singles)))
