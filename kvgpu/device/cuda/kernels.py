"""Kernels: compiled by numba once, launched through the driver, which costs a fifth of a launch by numba."""

from __future__ import annotations

import ctypes
import importlib
import re
import struct
from collections.abc import Sequence
from typing import Any

from kvgpu.device.api import DeviceError, Kernel
from kvgpu.device.cuda.direct import Direct
from kvgpu.device.cuda.driver import checked, driver, relaxed

WORDS_OF_ARRAY = 7
"""Kernel parameters that an array takes, see ``array_words``."""
ENTRY = re.compile(r"\.visible\s+\.entry\s+([A-Za-z_$][\w$]*)")


def array_words(address: int, nbytes: int) -> tuple[int, ...]:
    """The parameters of numba's data model of a one-dimensional uint8 array: meminfo, parent, items, item size, data, shape,
    strides."""
    return (0, 0, nbytes, 1, address, nbytes, 1)


def compiled(kernel: Kernel, arrays: Sequence[bool], capability: tuple[int, int]) -> tuple[str, str]:
    """PTX of a kernel and the name of its entry. ``arrays``: for each argument whether it is a uint8 array, else an int64.

    Needs numba-cuda and NVVM, but no GPU. Raises what numba raises for source that it cannot compile.
    """
    cuda: Any = importlib.import_module("numba.cuda")
    types: Any = importlib.import_module("numba.core.types")
    array = types.Array(types.uint8, 1, "C")
    signature = types.void(*(array if is_array else types.int64 for is_array in arrays))
    ptx, _ = cuda.compile(kernel.cuda_source, signature, device=False, abi="numba", cc=capability, output="ptx")
    entry = ENTRY.search(ptx)
    if entry is None:
        raise DeviceError(f"numba compiled kernel {kernel.name!r} to no entry point: is cuda_source an undecorated function?")
    return ptx, entry.group(1)


class Loaded:
    """A kernel on the GPU, and a buffer for its arguments: all are 8 bytes wide, an array is seven of them."""

    __slots__ = ("_buffer", "_direct", "_pack", "_pointers", "function", "module", "name", "source", "where")

    def __init__(self, kernel: Kernel, arrays: Sequence[bool], capability: tuple[int, int], direct: Direct) -> None:
        """Compile and load."""
        self._direct = direct
        ptx, entry = compiled(kernel, arrays, capability)
        self.name, self.source = kernel.name, kernel.cuda_source
        self.module = checked(relaxed(driver.cuModuleLoadData, ptx.encode() + b"\0"))
        function = checked(driver.cuModuleGetFunction(self.module, entry.encode()))
        # The driver would load it at its first launch, and may wait for all work to do so: without end behind a closed gate.
        checked(relaxed(driver.cuFuncLoad, function))
        self.function = int(function)
        count = sum(WORDS_OF_ARRAY if is_array else 1 for is_array in arrays)
        self._pack = struct.Struct(f"{count}q").pack_into
        self._buffer = ctypes.create_string_buffer(max(8 * count, 8))
        start = ctypes.addressof(self._buffer)
        self._pointers = (ctypes.c_void_p * max(count, 1))(*(start + 8 * n for n in range(count)))
        self.where = ctypes.addressof(self._pointers)

    def launch(self, blocks: int, threads: int, words: Sequence[int], stream: int) -> None:
        """Submit. The driver has copied the arguments when it returns."""
        try:
            self._pack(self._buffer, 0, *words)
        except struct.error as error:
            raise DeviceError(f"kernel {self.name!r} was loaded for other arguments than it is launched with: {error}") from error
        self._direct.launch(self.function, blocks, threads, stream, self.where)


class Kernels:
    """The kernels of one GPU, by name. Launches are serialised by the caller, like all calls of a device."""

    def __init__(self, capability: tuple[int, int], direct: Direct) -> None:
        """``capability``: compute capability, major and minor."""
        self.capability = capability
        self._direct = direct
        self._loaded: dict[str, Loaded] = {}

    def find(self, kernel: Kernel) -> Loaded | None:
        """The kernel, if it has been loaded. Raises ``DeviceError`` if its name stands for another source."""
        loaded = self._loaded.get(kernel.name)
        if loaded is not None and loaded.source is not kernel.cuda_source:
            raise DeviceError(f"two kernels are named {kernel.name!r}: give each source its own name")
        return loaded

    def load(self, kernel: Kernel, arrays: Sequence[bool]) -> Loaded:
        """Compile and load a kernel, for arguments of these kinds from now on."""
        loaded = self._loaded[kernel.name] = Loaded(kernel, arrays, self.capability, self._direct)
        return loaded
