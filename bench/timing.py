"""Clocks: device time by events, CPU time to submit, and both together."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from kvgpu.device.cuda.driver import checked, driver

WARM = 3


class Clock:
    """Times submissions to one stream. All figures are medians of ``repeats`` runs, in microseconds."""

    def __init__(self, raw: Any, repeats: int = 15) -> None:
        """``raw``: the driver's stream."""
        self.raw = raw
        self.repeats = repeats
        self._start, self._end = (checked(driver.cuEventCreate(0)) for _ in range(2))
        self._busy = checked(driver.cuMemAlloc(256 << 20))

    def device(self, submit: Callable[[], object]) -> float:
        """From the start of the device work to its end. Other work is queued before it, so that no CPU time is inside."""
        times = []
        for turn in range(WARM + self.repeats):
            for _ in range(4):
                checked(driver.cuMemsetD8Async(self._busy, 1, 256 << 20, self.raw))
            checked(driver.cuEventRecord(self._start, self.raw))
            submit()
            checked(driver.cuEventRecord(self._end, self.raw))
            checked(driver.cuEventSynchronize(self._end))
            if turn >= WARM:
                times.append(1e3 * checked(driver.cuEventElapsedTime(self._start, self._end)))
        return statistics.median(times)

    def cpu(self, submit: Callable[[], object], prepare: Callable[[], object] | None = None) -> tuple[float, float]:
        """(CPU time of the call, time until the device is done with it), on an idle stream."""
        calls, ends = [], []
        for turn in range(WARM + self.repeats):
            if prepare is not None:
                prepare()
            checked(driver.cuStreamSynchronize(self.raw))
            start = time.perf_counter()
            submit()
            called = time.perf_counter()
            checked(driver.cuStreamSynchronize(self.raw))
            end = time.perf_counter()
            if turn >= WARM:
                calls.append(1e6 * (called - start))
                ends.append(1e6 * (end - start))
        return statistics.median(calls), statistics.median(ends)
