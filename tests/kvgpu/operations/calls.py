"""Calls of a small manager, drawn at random: two batches, some requests, gates, refused copies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kvgpu.batch.batch import Batch
from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.errors import CacheError
from kvgpu.manager import Manager
from kvgpu.operations.state import PayloadHook
from kvgpu.requests.request import Request
from kvspec.config import ManagerConfig

CONFIG = ManagerConfig.model_validate(
    {
        "tokens_per_block": 2,
        "levels": [{"kind": "gpu", "slots": 10}, {"kind": "host", "slots": 8}, {"kind": "disk", "slots": 4}],
        "layers": [
            {"name": "sparse", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]},
            {"name": "near", "sliding_window": 4, "buffers": [{"role": "key", "bytes": 32}]},
            {"name": "state", "kind": "ssm", "buffers": [{"role": "state", "bytes": 16}]},
        ],
    }
)
STEPS = 300
OF_ALL = [*["one"] * 6, *["record"] * 3, "create", "close", "evict", "fail", "gate", "own", "batch"]
OF_A_REQUEST = [*["resume", "grow"] * 2, *["step", "publish"] * 3, "enter", "suspend", "commit", "add", "remove"]


class Calls:
    """A manager, and what is called. ``of_all``, ``of_a_request``: what is drawn from."""

    def __init__(
        self,
        seed: int,
        config: ManagerConfig = CONFIG,
        hook: PayloadHook | None = None,
        of_all: Sequence[str] = OF_ALL,
        of_a_request: Sequence[str] = OF_A_REQUEST,
        blocks: int = 6,
    ) -> None:
        self.choose = random.Random(seed)
        self._of_all, self._of_a_request, self._blocks = of_all, of_a_request, blocks
        self.device = SimDevice(SimOptions(schedule=f"seed={seed}"))
        self.manager = Manager(config, self.device, payload_hook=hook)
        self.streams = [self.device.stream(f"stream {number}") for number in range(4)]
        self.batches = [Batch(self.manager, f"batch {number}", rows=3, blocks=blocks) for number in range(2)]
        self.requests: list[Request] = []
        self.gates: list[Any] = []

    def run(self, after: Callable[[], None], steps: int = STEPS) -> None:
        """Make so many calls, and ``after`` each of them."""
        for step in range(steps):
            self.requests = [request for request in self.requests if not request.closed]
            with suppress(CacheError):
                self._call(step)
            after()
        for gate in self.gates:
            gate.open()
        self.device.settle()
        assert self.device.faults() == ()
        self.manager.shut()
        self.device.close()

    def _call(self, step: int) -> None:
        manager, choose = self.manager, self.choose
        batch, stream = choose.choice(self.batches), choose.choice(self.streams)
        match choose.choice(self._of_all):
            case "create" if len(self.requests) < 6:
                tokens = [choose.randrange(2) for _ in range(choose.randrange(6))]
                self.requests.append(manager.create(f"r{step}", tokens))
                batch.add(self.requests[-1])
                manager.resume(self.requests[-1], stream)
            case "record":
                batch.record_read(stream)
            case "close" if self.requests and choose.random() < 0.3:
                manager.close(choose.choice(self.requests))
            case "evict":
                manager.evict(choose.randrange(2), 0, 1)
            case "fail":
                manager.faults.arm(choose.choice(["offload", "onboard"]), queued=choose.choice([True, False]))
            case "gate":
                if self.gates and choose.random() < 0.6:
                    self.gates.pop().open()
                else:
                    self.gates.append(self.device.gate(stream, f"gate {step}"))
            case "own" if self.requests:
                manager.record_read(choose.choice(self.requests), stream)
            case "batch" if choose.random() < 0.1:
                batch.close()
                self.batches[self.batches.index(batch)] = Batch(manager, f"batch {step}", rows=3, blocks=self._blocks)
            case "one" if self.requests:
                self._call_of(choose.choice(self.requests), batch)

    def _call_of(self, request: Request, batch: Batch) -> None:
        manager, choose, stream = self.manager, self.choose, self.choose.choice(self.streams)
        match choose.choice(self._of_a_request):
            case "resume":
                manager.resume(request, stream, decode=choose.choice([None, True]))
            case "grow":
                manager.resize(request, min(request.capacity + choose.randrange(self._blocks), 2 * self._blocks))
            case "step":
                manager.resize(request, None, min(request.capacity, request.history + choose.randrange(4)))
            case "enter":
                manager.enter_decode(request)
            case "suspend":
                manager.suspend(request)
            case "commit":
                manager.commit(request, [choose.randrange(2) for _ in range(2)])
            case "add":
                batch.add(request)
            case "remove":
                batch.remove(request)
            case "publish":
                batch.publish(stream)
