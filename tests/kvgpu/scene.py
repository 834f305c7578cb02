"""A system with three levels on the simulated device, and what it shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import yaml

from kvgpu.adapter.system import Implementation
from kvgpu.device.sim import SimDevice
from kvspec.audit.leftovers import Allowed, leftovers
from kvspec.config import ManagerConfig
from kvspec.harness.naming import Index
from kvspec.ops import VERBS, Operation
from kvspec.system import Outcome, Setup

LAYERS = [{"name": "kv", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]}]


def config(gpu: int = 4, host: int = 4, disk: int | None = 4) -> ManagerConfig:
    levels = [{"kind": "gpu", "slots": gpu}, {"kind": "host", "slots": host}]
    if disk is not None:
        levels.append({"kind": "disk", "slots": disk})
    return ManagerConfig.model_validate({"tokens_per_block": 4, "levels": levels, "layers": LAYERS})


def system(manager: ManagerConfig | None = None, **options: str) -> Implementation:
    return Implementation(Setup(manager or config(), ("exec", "side"), {"device": "sim", **options}))


def operations(steps: str) -> list[Operation]:
    """Operations as a scenario writes its steps."""
    found = []
    for step in yaml.safe_load(steps):
        ((verb, value),) = step.items()
        model = VERBS[verb]
        bare = {"as_": "as"}.get(model.bare or "", model.bare)
        found.append(model.model_validate(value if isinstance(value, dict) else {bare: value}))
    return found


def apply(it: Implementation, steps: str) -> list[Outcome]:
    return [it.apply(op) for op in operations(steps)]


def done(it: Implementation, steps: str) -> None:
    """All of them succeed."""
    for op, outcome in zip(operations(steps), apply(it, steps), strict=True):
        assert outcome.error is None and outcome.value is not False, (op, outcome)


def seen(it: Implementation) -> Index:
    return Index(it.observe())


def changed(before: Index, after: Index, allowed: Allowed | None = None) -> Iterable[str]:
    return list(leftovers(before, after, allowed or Allowed()))


def limit_memory(it: Implementation, spare: int | None) -> None:
    """No more memory than what is in use now and ``spare`` bytes; ``None``: plenty again."""
    device = it._device
    assert isinstance(device, SimDevice)
    device.options = replace(device.options, memory_limit=1 << 30 if spare is None else device._bytes + spare)
