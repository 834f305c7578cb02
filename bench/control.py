"""CPU time of the control plane at scale: decode entry, a history step, publication. Needs no GPU."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from bench.publication import TOKENS, config, forget_shown
from kvgpu.batch.batch import Batch
from kvgpu.device.api import Device
from kvgpu.manager import Manager

BLOCKS = 15_625
"""A request of 1,000,000 tokens."""
SPARE = 16
"""Blocks after them, which become history one by one."""


@dataclass(frozen=True)
class Figures:
    """CPU microseconds: per page of a decode entry, of a history step (of a token, of the last of a block), of publications.

    Of those: all rows dirty by a step each, all rows and one row dirty in every block.
    """

    rows: int
    groups: int
    entry_per_page: float
    token: float
    step: float
    publish_step: float
    publish: float
    publish_one: float


def measure(device: Device, rows: int, groups: int = 2, repeats: int = 10) -> Figures:
    manager = Manager(config(groups, rows * groups * (BLOCKS + SPARE)), device)
    stream = device.stream(f"control plane {rows}")
    batch = Batch(manager, "rows", rows, BLOCKS + SPARE)
    entries, requests = [], []
    for number in range(rows):
        request = manager.create(f"r{number}")
        manager.resume(request, stream)
        assert manager.resize(request, (BLOCKS + SPARE) * TOKENS, BLOCKS * TOKENS)
        device.settle()
        start = time.perf_counter()
        assert manager.enter_decode(request)
        entries.append(1e6 * (time.perf_counter() - start) / (BLOCKS * groups))
        batch.add(request)
        requests.append(request)
    batch.publish(stream)
    device.settle()
    tokens: list[float] = []
    steps: list[float] = []
    after_steps: list[float] = []
    publications: list[float] = []
    singles: list[float] = []
    for turn in range(1, repeats + 1):
        for request in requests:
            for times, history in ((tokens, request.history + 1), (steps, (BLOCKS + turn) * TOKENS)):
                start = time.perf_counter()
                assert manager.resize(request, None, history)
                times.append(1e6 * (time.perf_counter() - start))
        device.settle()
        # Every other time as if nothing were known of what the rows show: every block is written.
        whole = turn % 2 == 0
        if whole:
            forget_shown(requests)
        start = time.perf_counter()
        assert len(batch.publish(stream)) == rows
        (publications if whole else after_steps).append(1e6 * (time.perf_counter() - start))
        device.settle()
        manager._core.renew(requests[0])
        forget_shown(requests[:1])
        start = time.perf_counter()
        assert batch.publish(stream) == (0,)
        singles.append(1e6 * (time.perf_counter() - start))
        device.settle()
    manager.shut()
    return Figures(
        rows, groups, *(statistics.median(times) for times in (entries, tokens, steps, after_steps, publications, singles))
    )
