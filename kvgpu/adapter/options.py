"""The options of a run: which device, and how it behaves."""

from __future__ import annotations

from collections.abc import Mapping

from kvgpu.device.api import Device, DeviceError
from kvgpu.device.open import open_device
from kvgpu.device.sim import SimOptions


def make_device(options: Mapping[str, str]) -> Device:
    """The device that ``Setup.options`` asks for.

    ``device``: ``sim``, ``cuda``, or ``auto`` (the GPU if there is one). ``schedule``, ``check``, ``poison``: of the simulated
    device, checks and poison being on. ``mutant``: the names of the fences to drop, separated by ``|``. Raises ``DeviceError``.

    A GPU is patient: which slot is taken, and so which gates hold what up, must not depend on how fast it is.
    """
    return open_device(
        options.get("device", "auto"),
        SimOptions(
            schedule=options.get("schedule", "fifo"),
            check=_switch(options, "check"),
            poison=_switch(options, "poison"),
            drop_sites=frozenset(name.strip() for name in options.get("mutant", "").split("|") if name.strip()),
        ),
        patient=True,
    )


def _switch(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "on")
    if value not in ("on", "off"):
        raise DeviceError(f"option {name} is {value!r}: expected on or off")
    return value == "on"


def whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is a whole number. Raises ``DeviceError`` for anything else."""
    value = options.get(name, str(default))
    if not value.isdecimal():
        raise DeviceError(f"option {name} is {value!r}: expected a whole number")
    return int(value)
