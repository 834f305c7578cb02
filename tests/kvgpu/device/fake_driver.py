"""Enough of the CUDA driver, on the host, to run the GPU device's own logic where there is no GPU.

Streams are queues that move on whenever somebody looks at an event. Memory is host memory. A module's image is the name of a
kernel, and a launch runs its twin with the arguments that were packed for the GPU.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import traceback
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

from kvgpu.device.api import Kernel


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901


class CUdevice_attribute(IntEnum):
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class CUstream_flags(IntEnum):
    CU_STREAM_NON_BLOCKING = 1


class CUevent_flags(IntEnum):
    CU_EVENT_DISABLE_TIMING = 2


class CUstreamWaitValue_flags(IntEnum):
    CU_STREAM_WAIT_VALUE_EQ = 1


class CUstreamCaptureMode(IntEnum):
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0
    CU_STREAM_CAPTURE_MODE_RELAXED = 2


class CUstreamCaptureStatus(IntEnum):
    CU_STREAM_CAPTURE_STATUS_NONE = 0
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2


CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP = 1, 2
OK = (CUresult.CUDA_SUCCESS,)
CAPACITY = 1 << 28
"""Bytes of memory that there are of each kind."""

Step = Callable[[], bool]
"""Tries to do a piece of work; false if it must wait."""

lock = threading.RLock()
streams: dict[int, deque[Step]] = {0: deque()}
captures: dict[int, list[Step]] = {}
strict: set[int] = set()  # streams captured in the mode "global"
broken: set[int] = set()  # those of them whose capture somebody has broken
events: list[list[int]] = []  # per event: records submitted, records passed
memory: dict[int, Any] = {}
kernels: dict[str, Kernel] = {}
loaded: list[Any] = []
graphs: list[list[Step]] = []
destroyed: set[int] = set()


def CUstream(number: int) -> int:
    return number


CUdeviceptr = CUstream


class Mode(threading.local):
    """The capture mode of a thread."""

    now = CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


mode = Mode()


def unsafe(call: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A call that breaks a capture in the mode "global", whatever it is for, unless its thread is in the relaxed mode."""

    @functools.wraps(call)
    def checked(*args: Any) -> tuple[Any, ...]:
        if strict and mode.now is not CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED:
            broken.update(strict)
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        return call(*args)

    return checked


def cuThreadExchangeStreamCaptureMode(new: CUstreamCaptureMode) -> tuple[Any, ...]:
    before, mode.now = mode.now, new
    return (*OK, before)


def used() -> int:
    return sum(ctypes.sizeof(block) for block in memory.values())


def _pump() -> None:
    moved = True
    while moved:
        moved = False
        for queue in list(streams.values()):
            while queue and queue[0]():
                queue.popleft()
                moved = True


def _submit(stream: int, step: Step) -> tuple[Any, ...]:
    with lock:
        assert stream not in destroyed
        (captures[stream] if stream in captures else streams[stream]).append(step)
    return OK


def _do(work: Callable[[], object]) -> Step:
    def step() -> bool:
        work()
        return True

    return step


def slow(stream: int, looks: int) -> None:
    """Queue work that is still running the next ``looks`` times that somebody looks."""
    left = iter(range(looks))
    _submit(stream, lambda: next(left, None) is None)


def cuInit(flags: int) -> tuple[Any, ...]:
    return OK


def cuGetErrorString(error: CUresult) -> tuple[Any, ...]:
    return (*OK, error.name.lower().encode())


def cuDeviceGetCount() -> tuple[Any, ...]:
    return (*OK, 1)


def cuDeviceGet(ordinal: int) -> tuple[Any, ...]:
    return (*OK, ordinal)


def cuDevicePrimaryCtxRetain(device: int) -> tuple[Any, ...]:
    return (*OK, 1)


def cuCtxSetCurrent(context: int) -> tuple[Any, ...]:
    return OK


def cuDeviceGetAttribute(attribute: CUdevice_attribute, device: int) -> tuple[Any, ...]:
    return (*OK, 9 if attribute is CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR else 0)


def cuDeviceGetName(length: int, device: int) -> tuple[Any, ...]:
    return (*OK, b"pretended GPU\0\0")


@unsafe
def cuStreamCreate(flags: int) -> tuple[Any, ...]:
    with lock:
        number = len(streams) + 100
        streams[number] = deque()
    return (*OK, number)


def cuStreamDestroy(stream: int) -> tuple[Any, ...]:
    destroyed.add(stream)
    return OK


@unsafe
def cuStreamSynchronize(stream: int) -> tuple[Any, ...]:
    with lock:
        _pump()
        assert not streams[stream], "a real driver would block here"
    return OK


def cuEventCreate(flags: int) -> tuple[Any, ...]:
    with lock:
        events.append([0, 0])
        return (*OK, len(events) - 1)


def cuEventRecord(event: int, stream: int) -> tuple[Any, ...]:
    assert stream not in captures
    with lock:
        events[event][0] += 1
        number = events[event][0]

    def passed() -> None:
        events[event][1] = max(events[event][1], number)

    return _submit(stream, _do(passed))


@unsafe
def cuEventQuery(event: int) -> tuple[Any, ...]:
    with lock:
        _pump()
        submitted, passed = events[event]
    return OK if passed >= submitted else (CUresult.CUDA_ERROR_NOT_READY,)


def cuStreamWaitEvent(stream: int, event: int, flags: int) -> tuple[Any, ...]:
    assert stream not in captures
    number = events[event][0]
    return _submit(stream, lambda: events[event][1] >= number)


def cuStreamWaitValue32(stream: int, address: int, value: int, flags: int) -> tuple[Any, ...]:
    assert flags == CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
    return _submit(stream, lambda: ctypes.c_uint32.from_address(address).value == value)


def _allocate(nbytes: int) -> tuple[Any, ...]:
    if used() + nbytes > CAPACITY:
        return (CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0)
    block = (ctypes.c_uint8 * nbytes)()
    ctypes.memset(block, 0xAB, nbytes)
    memory[ctypes.addressof(block)] = block
    return (*OK, ctypes.addressof(block))


@unsafe
def cuMemAlloc(nbytes: int) -> tuple[Any, ...]:
    return _allocate(nbytes)


@unsafe
def cuMemHostAlloc(nbytes: int, flags: int) -> tuple[Any, ...]:
    assert flags == CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
    return _allocate(nbytes)


@unsafe
def cuMemFree(address: int) -> tuple[Any, ...]:
    del memory[address]
    return OK


cuMemFreeHost = cuMemFree


def cuMemHostGetDevicePointer(address: int, flags: int) -> tuple[Any, ...]:
    return (*OK, address)


def cuMemcpyAsync(target: int, source: int, nbytes: int, stream: int) -> tuple[Any, ...]:
    return _submit(stream, _do(lambda: ctypes.memmove(target, source, nbytes)))


cuMemcpyDtoHAsync = cuMemcpyAsync


def cuMemsetD8Async(address: int, value: int, nbytes: int, stream: int) -> tuple[Any, ...]:
    return _submit(stream, _do(lambda: ctypes.memset(address, value, nbytes)))


@unsafe
def cuModuleLoadData(image: bytes) -> tuple[Any, ...]:
    name, arrays = image.rstrip(b"\0").decode().rsplit(" ", 1)
    loaded.append((kernels[name], arrays))
    return (*OK, len(loaded) - 1)


def cuModuleGetFunction(module: int, name: bytes) -> tuple[Any, ...]:
    return (*OK, module)


@unsafe
def cuFuncLoad(function: int) -> tuple[Any, ...]:
    return OK


def cuLaunchKernel(
    function: int, bx: int, by: int, bz: int, tx: int, ty: int, tz: int, shared: int, stream: int, parameters: int, extra: int
) -> tuple[Any, ...]:
    kernel, arrays = loaded[function]
    count = sum(7 if is_array == "m" else 1 for is_array in arrays)
    pointers = (ctypes.c_void_p * count).from_address(parameters)
    words = [ctypes.c_int64.from_address(pointers[n] or 0).value for n in range(count)]
    args: list[Any] = []
    for is_array in arrays:
        if is_array == "m":
            (_, _, items, size, address, shape, stride), words = words[:7], words[7:]
            assert (size, shape, stride) == (1, items, 1)
            args.append(np.ctypeslib.as_array((ctypes.c_uint8 * items).from_address(address)))
        else:
            args.append(words.pop(0))
    return _submit(stream, _do(lambda: kernel.twin(*args)))


def cuStreamBeginCapture(stream: int, mode: CUstreamCaptureMode) -> tuple[Any, ...]:
    captures[stream] = []
    if mode is CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL:
        strict.add(stream)
    return OK


def cuStreamEndCapture(stream: int) -> tuple[Any, ...]:
    strict.discard(stream)
    if stream in broken:
        broken.discard(stream)
        del captures[stream]
        return (CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,)
    graphs.append(captures.pop(stream))
    return (*OK, len(graphs) - 1)


def cuStreamIsCapturing(stream: int) -> tuple[Any, ...]:
    return (*OK, CUstreamCaptureStatus(2 if stream in broken else int(stream in captures)))


POINTER, UINT = ctypes.c_void_p, ctypes.c_uint
PROTOTYPES: dict[str, tuple[type, ...]] = {
    "cuEventQuery": (POINTER,),
    "cuEventRecord": (POINTER, POINTER),
    "cuStreamWaitEvent": (POINTER, POINTER, UINT),
    "cuLaunchKernel": (POINTER, *[UINT] * 7, POINTER, POINTER, POINTER),
    "cuMemcpyAsync": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, POINTER),
    "cuThreadExchangeStreamCaptureMode": (POINTER,),
    "cuStreamIsCapturing": (POINTER, POINTER),
}
"""The functions that are called by address, and their arguments."""


def _call(name: str, *given: int | None) -> int:
    """A call by address. The binding takes and returns what is written at an address as values."""
    args = [each or 0 for each in given]
    at = args.pop() if name in ("cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing") else None
    if name == "cuThreadExchangeStreamCaptureMode":
        args = [CUstreamCaptureMode(ctypes.c_int.from_address(at or 0).value)]
    try:
        error, *told = globals()[name](*args)
    except AssertionError:  # which nobody would see
        traceback.print_exc()
        return CUresult.CUDA_ERROR_INVALID_VALUE
    if at is not None:
        ctypes.c_int.from_address(at).value = told[0]
    return int(error)


_addressed = {name: ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(functools.partial(_call, name)) for name, kinds in PROTOTYPES.items()}


def cuGetProcAddress(symbol: bytes, version: int, flags: int) -> tuple[Any, ...]:
    return (*OK, ctypes.cast(_addressed[symbol.decode()], ctypes.c_void_p).value, 0)


def cuGraphInstantiate(graph: int, flags: int) -> tuple[Any, ...]:
    return (*OK, graph)


def cuGraphDestroy(graph: int) -> tuple[Any, ...]:
    return OK


cuGraphExecDestroy = cuGraphDestroy


def cuGraphLaunch(graph: int, stream: int) -> tuple[Any, ...]:
    steps = list(graphs[graph])
    return _submit(stream, _do(lambda: [step() for step in steps]))
