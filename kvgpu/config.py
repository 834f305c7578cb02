"""What follows from a configuration: layer groups, pools, pool groups, slot counts, stale blocks (section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from kvgpu.errors import ConfigurationError, OutOfRange
from kvspec.config import BufferConfig, LayerConfig, LayerKind, Level, LevelConfig, ManagerConfig, Ownership

POOL_ALIGN = 256
"""Bytes to which each pool of a pool group is aligned in its memory."""

LEVEL_NAMES = ("gpu", "host", "disk")

SlotKey: TypeAlias = tuple[int, int]
"""A pool group: (level, number)."""

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class Buffer:
    """Where a buffer lies: ``offset`` bytes into the slot of pool ``pool`` of its group; ``nbytes`` in all, expanded (R1.6)."""

    layer: str
    role: str
    pool: int
    offset: int
    nbytes: int
    page_bytes: int

    @property
    def index_offset(self) -> int:
        """The layer's own offset, in units of the buffer's ``bytes`` (R1.7)."""
        return self.offset // self.page_bytes


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """A layer group (R1.5). ``slot_bytes``: the slot size of each pool, in the order of R1.6.

    ``pool_groups``: the number of its pool group on each level. ``selected``: how many numbers a fetch selects for a row, 0 where
    there are no fetches; ``reserve``: slots that a request reserves for them; ``units``: of a page (R15.1, R15.11).
    """

    number: int
    name: str
    ssm: bool
    window: int | None
    sink_blocks: int
    sparse: bool
    layers: tuple[str, ...]
    slot_bytes: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    pool_groups: tuple[int, ...]
    selected: int = 0
    reserve: int = 0
    units: int = 1

    @property
    def page_bytes(self) -> int:
        """The bytes of a page: all its pools."""
        return sum(self.slot_bytes)

    def stale(self, history: int, tokens_per_block: int) -> tuple[int, int]:
        """The stale blocks ``[first, end)`` at a history (R1.8)."""
        if self.window is None or self.sparse:
            return (0, 0)
        first = min(-(-history // tokens_per_block), self.sink_blocks)
        return (first, max(first, max(history + 1 - self.window, 0) // tokens_per_block))


@dataclass(frozen=True, slots=True)
class PoolGroup:
    """A pool group of a level: its pools share one slot index (R1.6).

    ``pools``: (offset of the pool in the memory, bytes of a slot). On host and disk there is one pool, the whole page.
    ``below``: the pool group that its pages go to one level down.
    """

    level: int
    number: int
    groups: tuple[int, ...]
    slots: int
    pools: tuple[tuple[int, int], ...]
    below: int | None

    @property
    def page_bytes(self) -> int:
        """The bytes of a page."""
        return sum(size for _, size in self.pools)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole memory or file."""
        offset, size = self.pools[-1]
        return offset + size * self.slots


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything of section 1. ``levels[level][pool_group]``. ``private``: each request has GPU pages of its own (R14.1)."""

    tokens_per_block: int
    groups: tuple[LayerGroup, ...]
    levels: tuple[tuple[PoolGroup, ...], ...]
    max_util_for_resume: float
    buffers: dict[tuple[str, str], tuple[int, Buffer]]
    private: bool

    def buffer(self, layer: str, role: str | None = None) -> tuple[LayerGroup, Buffer]:
        """A buffer and its group; without a role, the layer's first. ``OutOfRange`` if there is none (R1.7)."""
        if role is None:
            role = next((name for owner, name in self.buffers if owner == layer), "")
        found = self.buffers.get((layer, role))
        if found is None:
            known = ", ".join(f"{owner}.{name}" for owner, name in self.buffers)
            raise OutOfRange(f"no buffer {layer}.{role or '?'}: the manager has {known}")
        return self.groups[found[0]], found[1]

    def scale(self, layer: str, role: str | None = None) -> int:
        """What to multiply a slot with to count in pages of the buffer (``page_index_scale``, R1.7)."""
        group, buffer = self.buffer(layer, role)
        return group.slot_bytes[buffer.pool] // buffer.page_bytes

    def spot(self, layer: str, role: str | None, level: int) -> tuple[int, int]:
        """Where a buffer's page of slot 0 begins in the memory of its pool group, and the bytes from one slot to the next.

        ``OutOfRange`` for a buffer or a level that is not there.
        """
        group, buffer = self.buffer(layer, role)
        if not 0 <= level < len(self.levels):
            raise OutOfRange(f"no level {level}: the manager has levels 0 to {len(self.levels) - 1}")
        spec = self.pool_group(group.number, level)
        if level == Level.GPU:
            base, stride = spec.pools[buffer.pool]
        else:  # a slot is a whole page, pool by pool (R1.6)
            base, stride = sum(group.slot_bytes[: buffer.pool]), spec.page_bytes
        return base + buffer.offset, stride

    def pool_group(self, group: int, level: int) -> PoolGroup:
        """The pool group that serves a layer group on a level."""
        return self.levels[level][self.groups[group].pool_groups[level]]


def _expanded(layer: LayerConfig, buffer: BufferConfig, tokens_per_block: int) -> int:
    # The size of an SSM state does not depend on tokens_per_block (R1.3).
    if layer.kind is LayerKind.SSM or buffer.tokens_per_block is None:
        return buffer.bytes
    return buffer.bytes * (tokens_per_block // buffer.tokens_per_block)


def _coalesced(layers: list[LayerConfig], tokens_per_block: int) -> tuple[tuple[int, ...], tuple[Buffer, ...]]:
    """The pools' slot sizes, largest first, and where every buffer lies in them (R1.6)."""
    by_size: dict[int, list[tuple[str, BufferConfig]]] = {}
    for layer in layers:
        for buffer in layer.buffers:
            by_size.setdefault(_expanded(layer, buffer, tokens_per_block), []).append((layer.name, buffer))
    pools = sorted(by_size.items(), key=lambda item: -item[0] * len(item[1]))
    buffers = [
        Buffer(layer, buffer.role, pool, nth * size, size, buffer.bytes)
        for pool, (size, members) in enumerate(pools)
        for nth, (layer, buffer) in enumerate(members)
    ]
    return tuple(size * len(members) for size, members in pools), tuple(buffers)


def _numbered(keys: list[KeyT]) -> tuple[tuple[int, ...], int]:
    """A number for each key, in order of first appearance, and how many there are."""
    numbers: dict[KeyT, int] = {}
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys), len(numbers)


def _slots(level: LevelConfig, per_slot: int) -> int:
    if level.slots is not None:
        return level.slots
    assert level.bytes is not None
    return level.bytes // per_slot


def _offsets(sizes: tuple[int, ...], slots: int) -> tuple[tuple[int, int], ...]:
    pools, offset = [], 0
    for size in sizes:
        pools.append((offset, size))
        offset += -(-size * slots // POOL_ALIGN) * POOL_ALIGN
    return tuple(pools)


def build_layout(config: ManagerConfig) -> Layout:
    """Derive the layout. Raises ``ConfigurationError`` if the GPU would have no slot (R1.2)."""
    tokens_per_block = config.tokens_per_block
    by_key: dict[tuple[object, ...], list[LayerConfig]] = {}
    for layer in config.layers:
        # No sinks and sinks of zero tokens say the same, but are written differently; the group is what is written (R1.5).
        by_key.setdefault((layer.kind, layer.sliding_window, layer.sink_tokens, layer.sparse), []).append(layer)
    members = list(by_key.values())
    shapes = [_coalesced(layers, tokens_per_block) for layers in members]
    gpu, gpu_count = _numbered([(sizes, layers[0].sparse) for layers, (sizes, _) in zip(members, shapes, strict=True)])
    cold, cold_count = _numbered([sum(sizes) for sizes, _ in shapes])
    groups = tuple(
        LayerGroup(
            number,
            layers[0].name,
            layers[0].kind is LayerKind.SSM,
            layers[0].sliding_window,
            -(-(layers[0].sink_tokens or 0) // tokens_per_block),
            layers[0].sparse,
            tuple(layer.name for layer in layers),
            sizes,
            buffers,
            (gpu[number],) + (cold[number],) * (len(config.levels) - 1),
            layers[0].buffers[0].selected or 0,
            layers[0].buffers[0].reserve or 0,
            tokens_per_block // (layers[0].buffers[0].unit or tokens_per_block),
        )
        for number, (layers, (sizes, buffers)) in enumerate(zip(members, shapes, strict=True))
    )
    levels = tuple(
        _level(config, number, groups, gpu if number == 0 else cold, gpu_count if number == 0 else cold_count)
        for number in range(len(config.levels))
    )
    if levels[0][0].slots == 0:
        raise ConfigurationError(
            "the gpu level is smaller than one slot: give it at least the bytes of one slot of each pool group"
        )
    buffers = {(buffer.layer, buffer.role): (group.number, buffer) for group in groups for buffer in group.buffers}
    order = [(layer.name, buffer.role) for layer in config.layers for buffer in layer.buffers]
    return Layout(
        tokens_per_block,
        groups,
        levels,
        config.max_util_for_resume,
        {key: buffers[key] for key in order},
        config.ownership is Ownership.PRIVATE,
    )


def _level(
    config: ManagerConfig, level: int, groups: tuple[LayerGroup, ...], numbers: tuple[int, ...], count: int
) -> tuple[PoolGroup, ...]:
    """The pool groups of one level, numbered by the first group that uses each (R1.6)."""
    served = [tuple(group.number for group in groups if numbers[group.number] == number) for number in range(count)]
    shapes = [groups[users[0]].slot_bytes if level == Level.GPU else (groups[users[0]].page_bytes,) for users in served]
    slots = _slots(config.levels[level], sum(sum(sizes) for sizes in shapes))
    deeper = level + 1 < len(config.levels)
    return tuple(
        PoolGroup(
            level, number, users, slots, _offsets(sizes, slots), groups[users[0]].pool_groups[level + 1] if deeper else None
        )
        for number, (users, sizes) in enumerate(zip(served, shapes, strict=True))
    )
