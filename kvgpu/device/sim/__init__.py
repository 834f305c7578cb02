"""The simulated device: streams as queues, memory as real bytes, kernels as their NumPy twins, and a check of the order."""

from kvgpu.device.sim.device import SimDevice
from kvgpu.device.sim.options import SimOptions

__all__ = ["SimDevice", "SimOptions"]
