"""A manager with one sparse and one dense group on the simulated device, four tokens a block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Stream
from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.manager import Manager
from kvgpu.requests.request import Request
from kvspec.config import ManagerConfig

CONFIG = {
    "tokens_per_block": 4,
    "levels": [{"kind": "gpu", "slots": 16}, {"kind": "host", "slots": 16}],
    "layers": [
        {"name": "main", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]},
        {"name": "index", "buffers": [{"role": "key", "bytes": 32}]},
    ],
}
MAIN, INDEX = 0, 1


@dataclass
class Scene:
    """A device, a manager on it, and the stream of its requests."""

    options: SimOptions = field(default_factory=lambda: SimOptions(poison=True))

    def __post_init__(self) -> None:
        self.device = SimDevice(self.options)
        self.exec: Stream = self.device.stream("exec")
        self.side: Stream = self.device.stream("side")
        self.manager = Manager(ManagerConfig.model_validate(CONFIG), self.device)

    def request(self, name: str, capacity: int, history: int = 0, decode: bool = False) -> Request:
        """An active request of these lengths."""
        request = self.manager.create(name)
        assert self.manager.resume(request, self.exec)
        assert self.manager.resize(request, capacity, history)
        if decode:
            assert self.manager.enter_decode(request)
        return request

    def device_tables(self, batch: Batch) -> tuple[list[list[list[int]]], list[list[int]]]:
        """The page tables and counts in device memory, by group and row, once all that may run has run."""
        self.device.settle()
        memory = np.frombuffer(batch.tables.storage.memory.read_now(0, batch.tables.layout.nbytes), dtype=np.uint8)
        return batch.tables.layout.page_table(memory).tolist(), batch.tables.layout.num_blocks(memory).tolist()

    def close(self) -> None:
        """No fault may be left."""
        self.device.settle()
        assert self.device.faults() == ()
        self.manager.shut()
        self.device.close()
