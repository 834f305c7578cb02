"""Every operation of the language and what carries it out. No rule is decided in these modules."""

from __future__ import annotations

from kvgpu.adapter import on_batches, on_device, on_pools, on_requests
from kvgpu.adapter.run import Handlers, Run
from kvspec.ops import Operation
from kvspec.system import Value

HANDLERS: Handlers = {**on_requests.HANDLERS, **on_batches.HANDLERS, **on_pools.HANDLERS, **on_device.HANDLERS}
"""By operation, its handler."""


def apply(run: Run, op: Operation) -> Value:
    """Carry out one operation and return its value. Raises the errors of ``kvgpu.errors``."""
    return HANDLERS[type(op)](run, op)
