"""Memory on the GPU, and host memory that it can address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kvgpu.device.api import DeviceError
from kvgpu.device.cuda.context import Context
from kvgpu.device.cuda.kernels import array_words
from kvgpu.device.messages import check_range


class CudaMemory:
    """A range of memory, zeroed. ``words``: the arguments that numba's kernels take for an array over all its bytes."""

    __slots__ = ("_context", "_given_back", "_on_free", "address", "kind", "name", "nbytes", "words")

    def __init__(self, context: Context, kind: str, nbytes: int, name: str, on_free: Callable[[str, int, int], None]) -> None:
        """``on_free`` is told kind, address and size, once. Raises ``DeviceError`` if there is not enough."""
        self._given_back = True
        self.kind, self.nbytes, self.name = kind, nbytes, name
        arena = context.pinned_arena if kind == "pinned" else context.device_arena
        self.address = arena.take(nbytes)
        self._context, self._on_free = context, on_free
        self._given_back = False
        context.zero(kind, self.address, nbytes)
        self.words = array_words(self.address, nbytes)

    def host_array(self) -> npt.NDArray[np.uint8]:
        """Pinned memory as an array. Raises ``DeviceError`` for device memory, and after ``free``."""
        self.must_live()
        if self.kind != "pinned":
            raise DeviceError(f"memory {self.name!r} is on the GPU: the host can only read_now() it, or be sent it by an upload")
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.address))

    def read_now(self, offset: int, nbytes: int) -> bytes:
        """The bytes as they are now. Raises ``DeviceError`` outside the range or after ``free``."""
        self.must_live()
        check_range(self.name, self.nbytes, offset, nbytes)
        if self.kind == "pinned":
            return ctypes.string_at(self.address + offset, nbytes)
        self._context.use()
        return self._context.read(self.address + offset, nbytes)

    def must_live(self) -> None:
        """Raise ``DeviceError`` once it is freed."""
        if self._given_back:
            raise DeviceError(f"memory {self.name!r} is used after it was freed: submit the work before free()")

    def free(self) -> None:
        """Give the range back. Idempotent."""
        if not self._given_back:
            self._given_back = True
            self._on_free(self.kind, self.address, self.nbytes)

    def __del__(self) -> None:
        """Whoever forgets ``free`` loses nothing."""
        self.free()
