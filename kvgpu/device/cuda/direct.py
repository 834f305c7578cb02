"""The driver's functions that an iteration calls, by their addresses.

The binding makes objects of enumerations and handles of what goes in and comes out, which takes several times as long as the
call itself. Here everything is a number: handles, addresses, and the error that each call returns, 0 for none.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from kvgpu.device.api import DeviceError
from kvgpu.device.cuda.driver import NOT_READY, RELAXED, SUCCESS, checked, driver, text

FUNCTIONS_OF = 12000
"""The version of CUDA whose functions are asked for by name."""

HANDLE, UINT = ctypes.c_void_p, ctypes.c_uint
DONE, NOT_DONE, RELAXED_MODE = int(SUCCESS), int(NOT_READY), int(RELAXED)

Function = Callable[..., int]


def _function(name: str, *kinds: type) -> Function:
    """A function of the driver. Other threads of Python run while it does: a full queue of the GPU may hold it up."""
    address, _ = checked(driver.cuGetProcAddress(name.encode(), FUNCTIONS_OF, 0))
    function: Function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(int(address))
    return function


class _Mode(threading.local):
    """A cell of a thread's own, in which it exchanges its capture mode."""

    def __init__(self) -> None:
        self.cell = ctypes.c_int()
        self.at = ctypes.addressof(self.cell)


class Direct:
    """These functions, with their errors raised as ``DeviceError``. Streams and events are their numbers."""

    def __init__(self) -> None:
        """The driver has been initialised."""
        self._query = _function("cuEventQuery", HANDLE)
        self._record = _function("cuEventRecord", HANDLE, HANDLE)
        self._wait = _function("cuStreamWaitEvent", HANDLE, HANDLE, UINT)
        self._launch = _function("cuLaunchKernel", HANDLE, *[UINT] * 7, HANDLE, HANDLE, HANDLE)
        self._copy = _function("cuMemcpyAsync", ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, HANDLE)
        self._exchange = _function("cuThreadExchangeStreamCaptureMode", HANDLE)
        self.capture_status = _function("cuStreamIsCapturing", HANDLE, HANDLE)
        """Called with a stream and the address of an int for the status. Returns the driver's error."""
        self._mode = _Mode()

    def passed(self, event: int) -> bool:
        """Whether an event has passed. In relaxed capture mode meanwhile: see ``driver.relaxed``."""
        mode, exchange = self._mode, self._exchange
        mode.cell.value = RELAXED_MODE
        if error := exchange(mode.at):
            raise failed(error)
        result = self._query(event)
        if error := exchange(mode.at):
            raise failed(error)
        if result == DONE:
            return True
        if result == NOT_DONE:
            return False
        raise DeviceError(f"device work failed: {told(result)}")

    def record(self, event: int, stream: int) -> None:
        """Record an event after what a stream has been given so far."""
        if error := self._record(event, stream):
            raise failed(error)

    def wait(self, stream: int, event: int) -> None:
        """Order a stream after an event."""
        if error := self._wait(stream, event, 0):
            raise failed(error)

    def launch(self, function: int, blocks: int, threads: int, stream: int, arguments: int) -> None:
        """Launch a kernel. ``arguments``: the address of the addresses of its arguments."""
        if error := self._launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, None):
            raise failed(error)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes between any two memories."""
        if error := self._copy(target, source, nbytes, stream):
            raise failed(error)


def told(error: int) -> str:
    """What the driver says of the number of an error."""
    try:
        return text(driver.CUresult(error))
    except ValueError:  # of a later driver than the bindings know
        return f"the CUDA driver reports error {error}"


def failed(error: int) -> DeviceError:
    """The error to raise for a number that is not 0."""
    return DeviceError(told(error))
