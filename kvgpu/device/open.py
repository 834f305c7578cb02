"""Opening a device by the name of its kind."""

from __future__ import annotations

import functools
import importlib
import importlib.util

from kvgpu.device.api import Device, DeviceError
from kvgpu.device.sim import SimDevice, SimOptions

KINDS = ("auto", "sim", "cuda")


def open_device(kind: str = "auto", options: SimOptions | None = None, *, patient: bool = False) -> Device:
    """A device: ``sim``, ``cuda``, or ``auto`` (``cuda`` where there is a GPU, else ``sim``).

    ``options``: all of them count for ``sim``, ``drop_sites`` for both. ``patient``: have a GPU answer as ``sim`` does, see
    ``CudaDevice``. Nothing of CUDA is imported for ``sim``. Raises
    ``DeviceError`` for an unknown kind, and for ``cuda`` without a GPU.
    """
    if kind not in KINDS:
        raise DeviceError(f"unknown device {kind!r}: expected one of {', '.join(KINDS)}")
    if kind == "sim" or (kind == "auto" and why_no_gpu() is not None):
        return SimDevice(options)
    if reason := why_no_gpu():
        raise DeviceError(f"device 'cuda' was asked for, but {reason}; run where there is a GPU, or with device 'sim'")
    cuda = importlib.import_module("kvgpu.device.cuda")
    device: Device = cuda.CudaDevice(options.drop_sites if options is not None else frozenset(), patient)
    return device


@functools.cache
def why_no_gpu() -> str | None:
    """Why ``cuda`` cannot be opened here, or ``None`` if it can."""
    for module, package in (("numba_cuda", "numba-cuda"), ("cuda.bindings", "cuda-bindings")):
        if not _installed(module):
            return f"the package {package} is not installed (pip install 'kvspec[cuda]')"
    try:
        importlib.import_module("kvgpu.device.cuda.driver").gpus()
    except (DeviceError, ImportError) as error:
        return str(error)
    return None


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is not there
        return False
