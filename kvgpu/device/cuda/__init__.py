"""The device that is a GPU: numba-cuda kernels on streams, events and memory of the driver. Imported where asked for."""

from kvgpu.device.cuda.device import CudaDevice

__all__ = ["CudaDevice"]
