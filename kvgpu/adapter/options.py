"""The options of a run: which device, and how it behaves."""

from __future__ import annotations

from collections.abc import Mapping

from kvgpu.device.api import Device, DeviceError


def make_device(options: Mapping[str, str]) -> Device:
    """The device that ``Setup.options`` asks for.

    ``device``: ``sim``, ``cuda``, or ``auto`` (the GPU if there is one). ``schedule``, ``check``, ``poison``: of the simulated
    device. ``mutant``: the names of the fences to drop, separated by ``|``. Raises ``DeviceError``.
    """
    kind = options.get("device", "auto")
    dropped = frozenset(name.strip() for name in options.get("mutant", "").split("|") if name.strip())
    if kind not in ("auto", "sim", "cuda"):
        raise DeviceError(f"unknown device {kind!r}: expected auto, sim or cuda")
    if kind == "cuda":
        return _cuda(dropped)
    if kind == "auto":
        try:
            return _cuda(dropped)
        except (DeviceError, ImportError):
            pass
    return _sim(options, dropped)


def _sim(options: Mapping[str, str], dropped: frozenset[str]) -> Device:
    from kvgpu.device.sim import SimDevice, SimOptions

    return SimDevice(
        SimOptions(
            schedule=options.get("schedule", "fifo"),
            check=_switch(options, "check", default=True),
            poison=_switch(options, "poison", default=True),
            drop_sites=dropped,
        )
    )


def _cuda(dropped: frozenset[str]) -> Device:
    from kvgpu.device.cuda import CudaDevice

    return CudaDevice(dropped)


def _switch(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, "on" if default else "off")
    if value not in ("on", "off"):
        raise DeviceError(f"option {name} is {value!r}: expected on or off")
    return value == "on"
