"""The published tables as arrays of others: DLPack, and the array interfaces of CUDA and NumPy (R8.7).

An export is a read-only view of the memory that the kernels read: nothing is copied, ever. It refuses while anything of the
batch is unpublished, orders the consumer's stream after the publication, and keeps the memory alive after the batch is gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kvgpu.batch import dlpack
from kvgpu.device.api import Device, Event, Memory, Stream
from kvgpu.errors import LogicError
from kvgpu.locks import ManagerLock
from kvgpu.upload.table_layout import TableLayout

LEGACY_DEFAULT_STREAM = 1
"""How DLPack and the CUDA array interface name CUDA's default stream; 0 is not allowed there."""
NO_ORDER = -1
"""DLPack's stream number by which a consumer says that it takes care of the order itself."""


class TableStorage:
    """The device memory of a batch's tables, and a stream: given back when neither the batch nor an export needs them (R8.7).

    ``stream``: a stream of the tables' own, for what no caller's stream orders.
    """

    def __init__(self, device: Device, layout: TableLayout, name: str, lock: ManagerLock) -> None:
        """Allocate the tables. ``lock``: calls of the device need it (R12.1). ``DeviceError`` without enough device memory."""
        self.device = device
        self.lock = lock
        self.layout = layout
        self.memory: Memory = device.allocate("device", layout.nbytes, name)
        self.stream = device.stream(name)
        weakref.finalize(self, _give_back, device, self.memory, self.stream)


def _give_back(device: Device, memory: Memory, stream: Stream) -> None:
    memory.free()
    device.give_back(stream)


@dataclass(frozen=True, slots=True)
class _HostView:
    """What NumPy keeps as the base of a view: it keeps the storage alive."""

    storage: TableStorage
    __array_interface__: dict[str, Any]


class ExportedArray:
    """One table of a batch, for torch, NumPy, CuPy and others to import: read-only, and nothing is copied (R8.7).

    ``shape``: ``(rows, blocks)`` or ``(rows,)``. ``dtype``: int32, or int8 for levels. ``offset``: of its first byte in the
    storage.
    """

    def __init__(
        self, storage: TableStorage, offset: int, shape: tuple[int, ...], dtype: npt.DTypeLike, publication: Callable[[], Event]
    ) -> None:
        """``publication``: gives the last publication's end, and raises ``LogicError`` if there is anything unpublished."""
        self._storage = storage
        self._publication = publication
        self.offset = offset
        self.shape = shape
        self.dtype = np.dtype(dtype)

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def memory(self) -> Memory:
        """The memory that the array lies in, at ``offset``."""
        return self._storage.memory

    @property
    def address(self) -> int:
        """The device address of the first element; it never changes (R8.1)."""
        return self._storage.memory.address + self.offset

    @property
    def _on_host(self) -> bool:
        return self._storage.device.kind == "sim"

    def check(self) -> None:
        """Raise ``LogicError`` while anything of the batch is unpublished (R8.7)."""
        self._publication()

    def order(self, stream: Stream) -> None:
        """Order later work of ``stream`` after the publication.

        Raises ``LogicError`` while anything is unpublished (R8.7), and while ``stream`` is in capture (R8.8).
        """
        with self._storage.lock.exclusive():
            published = self._publication()
            if self._storage.device.is_capturing(stream):
                raise LogicError(
                    f"a table is imported on stream {stream.name!r} while that is being captured: import it before, its address "
                    f"never changes (R8.8)"
                )
            self._storage.device.wait(stream, published, "R8.7 exported array: the consumer's stream")

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device type and number."""
        return (dlpack.CPU, 0) if self._on_host else (dlpack.CUDA, self._storage.device.ordinal)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule, flagged read-only if the consumer knows DLPack 1.0 (``max_version``); it never may write (R8.7).

        ``stream``: the consumer's stream, ordered after the publication. Without one, a GPU's consumer uses the default stream;
        on the simulated device the consumer is the CPU itself, for which the publication must have run. -1: no ordering.
        Raises ``LogicError`` while anything is unpublished, and ``BufferError`` for what cannot be done without a copy.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"this table is on device {self.__dlpack_device__()} and is never copied to {tuple(dl_device)}: import it there"
            )
        if copy:
            raise BufferError("this table is exported without a copy only: import it, then copy it where you need it")
        self._order_consumer(stream)
        versioned = max_version is not None and tuple(max_version) >= dlpack.VERSION
        if self._on_host and versioned:
            return self._host_view().__dlpack__(max_version=max_version)
        bits, device = 8 * self.dtype.itemsize, self.__dlpack_device__()
        return dlpack.signed_capsule(self.address, self.shape, bits, device, self._storage, versioned=versioned)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, on the simulated device alone. Raises as ``__dlpack__`` does."""
        if not self._on_host:
            raise AttributeError("memory of a GPU has no __array_interface__")
        self._order_consumer(None)
        # NumPy keeps as the base what it asked, and that is this object: it keeps the storage.
        return self._interface()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, on a GPU alone: read-only, with the stream that the consumer has to follow."""
        if self._on_host:
            raise AttributeError("memory of the simulated device has no __cuda_array_interface__")
        self.order(self._storage.stream)
        return {**self._interface(), "stream": self._storage.stream.handle}

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """A NumPy array, on the simulated device alone; on a GPU it would be a copy, and is a ``TypeError``."""
        if not self._on_host:
            raise TypeError("this table is on a GPU: import it there with from_dlpack, NumPy cannot see it without a copy")
        self._order_consumer(None)
        return np.array(self._host_view(), dtype=dtype, copy=copy)

    def _interface(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, True), "strides": None, "version": 3}

    def _host_view(self) -> npt.NDArray[Any]:
        return np.asarray(_HostView(self._storage, self._interface()))

    def _order_consumer(self, stream: Any) -> None:
        with self._storage.lock.exclusive():
            published = self._publication()
            if stream == NO_ORDER:
                return
            if stream is None and self._on_host:
                if not published.done():
                    raise BufferError(
                        "the publication has not run yet, a gate or a stream holds it up: give the consumer's stream, or wait"
                    )
                return
            if stream == 0 and not self._on_host:
                raise BufferError("stream 0 is ambiguous: use 1 for CUDA's legacy default stream, 2 for the per-thread one")
            self.order(self._storage.device.external_stream(LEGACY_DEFAULT_STREAM if stream is None else stream))
