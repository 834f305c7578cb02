"""Opening a device by the name of its kind."""

from __future__ import annotations

from kvgpu.device.api import Device, DeviceError
from kvgpu.device.sim import SimDevice, SimOptions

KINDS = ("auto", "sim", "cuda")


def open_device(kind: str = "auto", options: SimOptions | None = None) -> Device:
    """A device: ``sim``, ``cuda``, or ``auto`` (``cuda`` where there is a GPU, else ``sim``). ``options`` are those of ``sim``.

    Raises ``DeviceError`` for an unknown kind, and for ``cuda`` without a GPU. Nothing of CUDA is imported for ``sim``.
    """
    if kind not in KINDS:
        raise DeviceError(f"unknown device {kind!r}: expected one of {', '.join(KINDS)}")
    return SimDevice(options)
