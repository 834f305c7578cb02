"""Memory as real bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kvgpu.device.api import DeviceError
from kvgpu.device.messages import check_range


class SimMemory:
    """Bytes of the simulated device, zeroed. Work that was submitted before ``free`` still has them."""

    __slots__ = ("_array", "_given_back", "_on_free", "address", "kind", "name", "nbytes")

    def __init__(self, kind: str, nbytes: int, name: str, on_free: Callable[[int], None]) -> None:
        """``on_free`` is told the size, once."""
        self.kind, self.nbytes, self.name = kind, nbytes, name
        self._array: npt.NDArray[np.uint8] = np.zeros(nbytes, dtype=np.uint8)
        self.address = int(self._array.ctypes.data)
        self._on_free = on_free
        self._given_back = False

    def array(self) -> npt.NDArray[np.uint8]:
        """All bytes, for work that is being submitted. Raises ``DeviceError`` once it is freed."""
        if self._given_back:
            raise DeviceError(f"memory {self.name!r} is used after it was freed: submit the work before free()")
        return self._array

    def host_array(self) -> npt.NDArray[np.uint8]:
        """uint8 ``[nbytes]``, writable: the bytes themselves, not a copy."""
        return self.array()

    def read_now(self, offset: int, nbytes: int) -> bytes:
        """The bytes as they are now. Raises ``DeviceError`` outside the range or after ``free``."""
        self.check_range(offset, nbytes)
        return self.array()[offset : offset + nbytes].tobytes()

    def check_range(self, offset: int, nbytes: int) -> None:
        """Raise ``DeviceError`` unless the range lies inside."""
        check_range(self.name, self.nbytes, offset, nbytes)

    def free(self) -> None:
        """Give the range back. Idempotent."""
        if not self._given_back:
            self._given_back = True
            self._on_free(self.nbytes)
