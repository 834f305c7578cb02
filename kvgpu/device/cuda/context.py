"""What all devices of a process on one GPU share: the context, memory and words to wait for, events, compiled kernels."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from kvgpu.device.api import DeviceError
from kvgpu.device.cuda.arena import Arena
from kvgpu.device.cuda.direct import Direct
from kvgpu.device.cuda.driver import OUT_OF_MEMORY, QUEUES, SUCCESS, checked, driver, relaxed
from kvgpu.device.cuda.kernels import Kernels

WORDS = 1024
"""Words that are made at a time."""


class Words:
    """Words of mapped host memory that a stream can wait for: 0 until somebody sets it to 1. Taken one by one."""

    def __init__(self, arena: Arena) -> None:
        """``arena``: pinned memory."""
        self._arena = arena
        self._free: list[Word] = []

    def take(self) -> Word:
        """A word that is 0."""
        if not self._free:
            address = self._arena.take(4 * WORDS)
            buffer = (ctypes.c_uint32 * WORDS).from_address(address)
            array = np.ctypeslib.as_array(buffer)
            array[:] = 0
            self._free = [Word(array, index, driver.CUdeviceptr(address + 4 * index)) for index in range(WORDS)]
        return self._free.pop()

    def give_back(self, word: Word) -> None:
        """Take it again later; nothing may wait for it any more."""
        word.array[word.index] = 0
        self._free.append(word)


class Word:
    """One word: ``address`` is the device's."""

    __slots__ = ("address", "array", "index")

    def __init__(self, array: npt.NDArray[np.uint32], index: int, address: Any) -> None:
        """The ``index``-th of ``array``."""
        self.array, self.index, self.address = array, index, address

    def set(self) -> None:
        """Let whatever waits for it go on."""
        self.array[self.index] = 1


class Context:
    """The primary context of a GPU, which torch and CuPy use too. Never released: what exports hold may outlive a device."""

    def __init__(self, ordinal: int) -> None:
        """Raises ``DeviceError`` if the GPU cannot be used."""
        self.ordinal = ordinal
        gpu = checked(driver.cuDeviceGet(ordinal))
        retained = driver.cuDevicePrimaryCtxRetain(gpu)
        if retained[0] == OUT_OF_MEMORY:
            raise DeviceError(
                f"GPU {ordinal} cannot take another process: each takes some of its memory, and {os.environ[QUEUES]} of its "
                f"hardware queues ({QUEUES}); use fewer processes on it, or a lower number"
            )
        self._handle = checked(retained)
        self._thread = threading.local()
        self.use()
        attribute = driver.CUdevice_attribute
        major = checked(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu))
        minor = checked(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu))
        self.name = checked(driver.cuDeviceGetName(256, gpu)).decode().rstrip("\0")
        self.device_arena = Arena("device", _alloc_device, _free_device)
        self.pinned_arena = Arena("pinned", _alloc_pinned, _free_pinned)
        self.words = Words(self.pinned_arena)
        self.direct = Direct()
        self.kernels = Kernels((int(major), int(minor)), self.direct)
        self.quiet = checked(relaxed(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
        self._events: list[int] = []

    def use(self) -> None:
        """Make the context current on this thread; costs nothing from the second time on."""
        if not getattr(self._thread, "used", False):
            checked(driver.cuCtxSetCurrent(self._handle))
            self._thread.used = True

    def take_event(self) -> int:
        """An event of the driver, without timing."""
        if self._events:
            return self._events.pop()
        return int(checked(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)))

    def give_event(self, event: int) -> None:
        """Use it again: what was told to wait for it waits for the record that it saw."""
        self._events.append(event)

    def zero(self, kind: str, address: int, nbytes: int) -> None:
        """Zero memory that nothing uses yet. Waits for no stream but a quiet one of its own."""
        if kind == "pinned":
            ctypes.memset(address, 0, nbytes)
        elif nbytes:
            checked(driver.cuMemsetD8Async(address, 0, nbytes, self.quiet))
            checked(relaxed(driver.cuStreamSynchronize, self.quiet))

    def read(self, address: int, nbytes: int) -> bytes:
        """The bytes of device memory now, read on a stream that nothing else uses."""
        target = ctypes.create_string_buffer(nbytes)
        if nbytes:
            checked(driver.cuMemcpyDtoHAsync(ctypes.addressof(target), address, nbytes, self.quiet))
            checked(relaxed(driver.cuStreamSynchronize, self.quiet))
        return target.raw


@functools.cache
def context(ordinal: int) -> Context:
    """The context of a GPU, one in the process."""
    return Context(ordinal)


def _alloc_device(nbytes: int) -> tuple[Any, int]:
    result = relaxed(driver.cuMemAlloc, nbytes)
    return result[0], int(result[1]) if result[0] == SUCCESS else 0


def _free_device(address: int) -> None:
    checked(relaxed(driver.cuMemFree, address))


def _alloc_pinned(nbytes: int) -> tuple[Any, int]:
    result = relaxed(driver.cuMemHostAlloc, nbytes, driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP)
    if result[0] != SUCCESS:
        return result[0], 0
    address = int(result[1])
    mapped = int(checked(driver.cuMemHostGetDevicePointer(address, 0)))
    if mapped != address:
        raise DeviceError("the GPU has no unified addressing: pinned memory has another address on the device")
    return result[0], address


def _free_pinned(address: int) -> None:
    checked(relaxed(driver.cuMemFreeHost, address))
