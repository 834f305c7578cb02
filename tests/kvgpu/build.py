"""Small managers on the simulated device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvgpu.device.api import Stream
from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.manager import Manager
from kvgpu.operations.state import WriteTarget
from kvgpu.requests.request import Request
from kvspec.config import LayerConfig, LevelConfig, LevelKind, ManagerConfig
from kvspec.payload import Content, expand


def layer(name: str, *sizes: int, sparse: bool = False, **more: object) -> LayerConfig:
    """A layer whose buffers have these sizes in bytes."""
    buffers = [{"role": f"b{number}", "bytes": size, "sparse": sparse} for number, size in enumerate(sizes)]
    return LayerConfig.model_validate({"name": name, "buffers": buffers, **more})


def configuration(*layers: LayerConfig, slots: tuple[int, ...] = (4, 4), tokens_per_block: int = 4) -> ManagerConfig:
    """A configuration with ``slots`` per pool group on each level."""
    kinds = tuple(LevelKind)[: len(slots)]
    levels = tuple(LevelConfig(kind=kind, slots=count) for kind, count in zip(kinds, slots, strict=True))
    return ManagerConfig(tokens_per_block=tokens_per_block, levels=levels, layers=layers)


@dataclass(frozen=True, slots=True)
class Bench:
    """A manager, its device, its stream ``exec``."""

    manager: Manager
    device: SimDevice
    stream: Stream

    def running(self, name: str, capacity: int, history: int, decode: bool = False) -> Request:
        """A new active request of these lengths."""
        request = self.manager.create(name)
        assert self.manager.resume(request, self.stream)
        assert self.manager.resize(request, capacity, history)
        if decode:
            assert self.manager.enter_decode(request)
        return request

    def state(self) -> object:
        """Everything that an operation without effect must leave as it was."""
        manager = self.manager
        pages = [
            (
                info.page,
                info.level,
                info.slot,
                info.status,
                info.text,
                len(info.owners),
                len(info.refs),
                manager.payload_now(info.page),
            )
            for info in manager.page_infos()
        ]
        pools = [
            (info.free, info.evictable, sorted(core_pool.free_slots().tolist()))
            for level in manager.layout.levels
            for pool in level
            for info in (manager.pool_info(pool.level, pool.number),)
            for core_pool in (manager._core.pools[pool.level][pool.number],)
        ]
        requests = [
            (
                r.name,
                r.status,
                r.phase,
                r.capacity,
                r.history,
                r.committed,
                r.version,
                r.indices(0).tolist(),
                r.levels(0).tolist(),
            )
            for r in manager.requests()
        ]
        return pages, pools, requests, manager.tree_blocks(), manager.lifetime_counters(), manager.copy_calls()


def bench(config: ManagerConfig, poison: bool = False) -> Bench:
    """A manager whose complete history is written with contents of its request, block and group."""
    device = SimDevice(SimOptions(poison=poison))

    def write(request: Request, targets: Sequence[WriteTarget]) -> None:
        manager.write_payloads(
            request, [(target, payload(manager, request.name, target.group, target.block)) for target in targets]
        )

    manager = Manager(config, device, payload_hook=write)
    return Bench(manager, device, device.stream("exec"))


def payload(manager: Manager, name: str, group: int, block: int) -> bytes:
    """What a request writes into a block of a group."""
    return expand(Content(name, manager.layout.groups[group].name, block), manager.layout.groups[group].page_bytes)
