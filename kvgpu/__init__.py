"""The implementation: pages that really move, and device tables that are really published.

The names in ``__all__`` may be relied on; docs/python.md shows them. They are imported when they are first asked for.
"""

from typing import TYPE_CHECKING

from kvspec.lazy import lazy

if TYPE_CHECKING:
    from kvgpu.batch.batch import Batch
    from kvgpu.batch.export import ExportedArray
    from kvgpu.device.api import Device, DeviceError, Stream
    from kvgpu.device.open import open_device
    from kvgpu.device.sim import SimOptions
    from kvgpu.errors import CacheError, ConfigurationError, CopyFailed, InvalidArgument, LogicError, OutOfPages, OutOfRange
    from kvgpu.locks import LockUpgrade
    from kvgpu.manager import Manager
    from kvgpu.requests.request import Request, Snapshot
    from kvgpu.serving.addresses import BufferAddress, buffer_address
    from kvgpu.serving.consumer import SparseAttention
    from kvgpu.serving.executor import (
        Connector,
        Executor,
        LayerOffsets,
        Prepared,
        RequestOutcome,
        Scheduled,
        Turn,
        admit_generation,
        dense_offsets,
    )
    from kvgpu.serving.executor import Fate as Fate  # the name of RequestOutcome until 0.1.0

__all__ = [
    "Batch",
    "BufferAddress",
    "CacheError",
    "ConfigurationError",
    "Connector",
    "CopyFailed",
    "Device",
    "DeviceError",
    "Executor",
    "ExportedArray",
    "InvalidArgument",
    "LayerOffsets",
    "LockUpgrade",
    "LogicError",
    "Manager",
    "OutOfPages",
    "OutOfRange",
    "Prepared",
    "Request",
    "RequestOutcome",
    "Scheduled",
    "SimOptions",
    "Snapshot",
    "SparseAttention",
    "Stream",
    "Turn",
    "admit_generation",
    "buffer_address",
    "dense_offsets",
    "open_device",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Batch": "kvgpu.batch.batch",
            "ExportedArray": "kvgpu.batch.export",
            "Device": "kvgpu.device.api",
            "DeviceError": "kvgpu.device.api",
            "Stream": "kvgpu.device.api",
            "open_device": "kvgpu.device.open",
            "SimOptions": "kvgpu.device.sim",
            "CacheError": "kvgpu.errors",
            "ConfigurationError": "kvgpu.errors",
            "CopyFailed": "kvgpu.errors",
            "InvalidArgument": "kvgpu.errors",
            "LogicError": "kvgpu.errors",
            "OutOfPages": "kvgpu.errors",
            "OutOfRange": "kvgpu.errors",
            "LockUpgrade": "kvgpu.locks",
            "Manager": "kvgpu.manager",
            "Request": "kvgpu.requests.request",
            "Snapshot": "kvgpu.requests.request",
            "BufferAddress": "kvgpu.serving.addresses",
            "buffer_address": "kvgpu.serving.addresses",
            "SparseAttention": "kvgpu.serving.consumer",
            "Connector": "kvgpu.serving.executor",
            "Executor": "kvgpu.serving.executor",
            "Fate": "kvgpu.serving.executor",
            "LayerOffsets": "kvgpu.serving.executor",
            "Prepared": "kvgpu.serving.executor",
            "RequestOutcome": "kvgpu.serving.executor",
            "Scheduled": "kvgpu.serving.executor",
            "Turn": "kvgpu.serving.executor",
            "admit_generation": "kvgpu.serving.executor",
            "dense_offsets": "kvgpu.serving.executor",
        },
    )
