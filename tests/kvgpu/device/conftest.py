"""The GPU device over a pretended driver."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kvgpu.device.api import Device, Kernel
from tests.kvgpu.device import fake_driver

OURS = "kvgpu.device.cuda"
Open = Callable[..., Device]


def _ours() -> list[str]:
    return [name for name in sys.modules if name == OURS or name.startswith(OURS + ".")]


@pytest.fixture(scope="module")
def pretended() -> Open:
    """The GPU device over the pretended driver. Its modules are loaded apart: others still get the real driver."""
    saved = {name: sys.modules.pop(name) for name in _ours()}
    saved |= {name: sys.modules[name] for name in ("cuda", "cuda.bindings", "cuda.bindings.driver") if name in sys.modules}
    for name in ("cuda", "cuda.bindings"):
        sys.modules[name] = ModuleType(name)
    sys.modules["cuda.bindings.driver"] = fake_driver
    device = importlib.import_module(OURS + ".device")
    kernels: Any = importlib.import_module(OURS + ".kernels")

    def compiled(kernel: Kernel, arrays: list[bool], capability: tuple[int, int]) -> tuple[str, str]:
        assert capability == (9, 0)
        fake_driver.kernels[kernel.name] = kernel
        return f"{kernel.name} {''.join('m' if is_array else 'i' for is_array in arrays)}", "entry"

    kernels.compiled = compiled
    for name in [*_ours(), "cuda", "cuda.bindings", "cuda.bindings.driver"]:
        sys.modules.pop(name, None)
    sys.modules.update(saved)
    opens: Open = device.CudaDevice
    return opens
