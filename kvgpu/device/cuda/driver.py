"""The driver's functions, with their errors raised."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from kvgpu.device.api import DeviceError

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
"""The variable of the environment that says how many hardware queues a process takes."""
# Streams that share a hardware queue hold each other up, and a closed gate would then hold up unrelated work: ask for as many
# queues as there are. Counts only if nothing in the process has initialised CUDA before.
os.environ.setdefault(QUEUES, "32")

driver: Any = importlib.import_module("cuda.bindings.driver")
"""``cuda.bindings.driver``: each function returns a tuple, its error first."""

SUCCESS = driver.CUresult.CUDA_SUCCESS
NOT_READY = driver.CUresult.CUDA_ERROR_NOT_READY
OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY

RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


def relaxed(call: Callable[..., Any], *args: Any) -> Any:
    """What ``call(*args)`` returns, with the thread in relaxed capture mode meanwhile.

    While somebody captures in the mode "global", as ``torch.cuda.graph`` does, any thread that asks an event, allocates, loads a
    module or waits would have its call refused and break the capture, though the call has nothing to do with it.
    """
    before = checked(driver.cuThreadExchangeStreamCaptureMode(RELAXED))
    try:
        return call(*args)
    finally:
        checked(driver.cuThreadExchangeStreamCaptureMode(before))


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call (``None``, one value or a tuple). Raises ``DeviceError`` with the driver's text."""
    if result[0] != SUCCESS:
        raise DeviceError(text(result[0]))
    return result[1] if len(result) == 2 else result[1:] or None


def text(error: Any) -> str:
    """What the driver says of an error."""
    told = driver.cuGetErrorString(error)
    what = told[1].decode() if told[0] == SUCCESS and told[1] else "unknown error"
    return f"the CUDA driver reports {getattr(error, 'name', error)}: {what}"


def gpus() -> int:
    """The number of GPUs. Raises ``DeviceError`` where there is none, or no driver."""
    try:
        checked(driver.cuInit(0))
        count = int(checked(driver.cuDeviceGetCount()))
    except RuntimeError as error:  # the bindings' way to say that there is no libcuda
        raise DeviceError(f"no CUDA driver: {error}") from error
    if count == 0:
        raise DeviceError("the CUDA driver sees no GPU")
    return count


def ordinal_of_worker(count: int) -> int:
    """Which of ``count`` GPUs this process takes: a pytest-xdist worker its number modulo ``count``, others the first."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return int(worker) % count if worker.isdecimal() else 0
