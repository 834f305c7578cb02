"""Layer groups, pools, pool groups and stale blocks: what follows from the configuration (R1.1-R1.9)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvspec.config import LayerConfig, LayerKind, Level, ManagerConfig, Ownership
from kvspec.policies import Policies

PoolGroup = tuple[Level, int]
"""A pool group: its level and its number on that level (R1.6)."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer, and where it lies in a page: bytes of its pool's slot, own byte offset inside that slot (R1.6).

    ``start``: where its bytes begin in the page; ``length``: how many they are.
    """

    layer: str
    role: str
    bytes: int
    slot_bytes: int
    offset: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Group:
    """A layer group (R1.5). ``slot_sizes``: of its pools, largest first; ``pools``: its pool group on each level (R1.6).

    ``selected``, ``reserve``: of its fetches, 0 where there are none (R15.1); ``units``: of a page (R15.11).
    """

    index: int
    name: str
    ssm: bool
    sparse: bool
    window: int | None
    sinks: int
    layers: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    slot_sizes: tuple[int, ...]
    selected: int
    reserve: int
    units: int
    pools: tuple[int, ...] = ()

    @property
    def page_bytes(self) -> int:
        """The size of a page: the sum over its pools (R1.6)."""
        return sum(self.slot_sizes)


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything derived from a `ManagerConfig`. ``slots``: by level, then by pool group (R1.2). ``policies``: R16.1.

    ``private``: whether requests have copies of their own on the GPU (section 14).
    """

    tpb: int
    max_util: float
    groups: tuple[Group, ...]
    slots: tuple[tuple[int, ...], ...]
    policies: Policies
    private: bool = False

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that there are, hottest first (R1.2)."""
        return tuple(Level(i) for i in range(len(self.slots)))

    @property
    def attention(self) -> tuple[Group, ...]:
        """The groups that have history blocks, and so are in the tables (R1.3)."""
        return tuple(g for g in self.groups if not g.ssm)

    def pool_groups(self) -> tuple[PoolGroup, ...]:
        """Every pool group, hottest level first."""
        return tuple((level, pool) for level in self.levels for pool in range(len(self.slots[level])))

    def pool_group(self, level: Level, group: int) -> PoolGroup:
        """The pool group that serves a layer group on a level (R1.6)."""
        return level, self.groups[group].pools[level]

    def served(self, pool: PoolGroup) -> tuple[Group, ...]:
        """The layer groups that a pool group serves."""
        level, number = pool
        return tuple(g for g in self.groups if g.pools[level] == number)

    def blocks(self, tokens: int) -> int:
        """The number of blocks that ``tokens`` tokens take (R1.1)."""
        return -(-tokens // self.tpb)

    def stale(self, group: int, block: int, history: int) -> bool:
        """R1.8: whether a block is stale at a history."""
        return block in self.stale_blocks(group, history)

    def stale_blocks(self, group: int, history: int) -> range:
        """R1.8: the blocks that are stale at a history. A sparse group drops nothing; an SSM state is never stale (R1.3)."""
        g = self.groups[group]
        if g.window is None or g.sparse:
            return range(0)
        begin = min(self.blocks(history), self.blocks(g.sinks))
        return range(begin, max(begin, (history + 1 - g.window) // self.tpb))

    def complete(self, block: int, history: int) -> bool:
        """Whether a block is complete history (R4.1)."""
        return block < history // self.tpb

    def copied(self, group: int) -> bool:
        """R14.1: whether a committed page of a group has a backing and copies, and not one location."""
        return self.private and self.groups[group].sparse

    def buffer(self, layer: str, role: str | None = None) -> tuple[Group, Buffer] | None:
        """R1.7: a buffer by layer and role, the layer's first where no role is named; ``None`` if there is no such buffer."""
        for g in self.groups:
            for b in g.buffers:
                if b.layer == layer and role in (None, b.role):
                    return g, b
        return None


def layout(config: ManagerConfig) -> Layout:
    """Derive the layout (R1.2-R1.7). Raises ``ValueError`` if the GPU's bytes do not hold one slot (R1.2)."""
    members: dict[tuple[LayerKind, int | None, int | None, bool], list[LayerConfig]] = {}
    for layer in config.layers:  # R1.5: numbered by the first layer of each
        members.setdefault((layer.kind, layer.sliding_window, layer.sink_tokens, layer.sparse), []).append(layer)
    groups = [_group(i, config.tokens_per_block, layers) for i, layers in enumerate(members.values())]
    numbers: list[list[int]] = []
    slots: list[tuple[int, ...]] = []
    for level in config.levels:
        # R1.6: the GPU's pool groups are keyed by slot sizes and sparsity, those of host and disk by the page size.
        keys = [(g.slot_sizes, g.sparse) if level.kind.level is Level.GPU else g.page_bytes for g in groups]
        kinds = list(dict.fromkeys(keys))
        numbers.append([kinds.index(k) for k in keys])
        each = level.slots
        if each is None:
            each = (level.bytes or 0) // sum(groups[keys.index(k)].page_bytes for k in kinds)  # R1.2
        slots.append((each,) * len(kinds))
    if slots[Level.GPU][0] < 1:
        raise ValueError("the gpu level is smaller than one slot of each of its pool groups: give it more bytes (R1.2)")
    complete = tuple(replace(g, pools=tuple(n[g.index] for n in numbers)) for g in groups)
    private = config.ownership is Ownership.PRIVATE
    return Layout(config.tokens_per_block, config.max_util_for_resume, complete, tuple(slots), config.policy, private)


def _group(index: int, tpb: int, layers: list[LayerConfig]) -> Group:
    """R1.6: coalesce the buffers of equal expanded size into pools, largest slot first."""
    first = layers[0]
    ssm = first.kind is LayerKind.SSM
    pools: dict[int, list[tuple[str, str, int]]] = {}
    for layer in layers:
        for b in layer.buffers:
            size = b.bytes if ssm else b.bytes * tpb // (b.tokens_per_block or tpb)  # R1.3: a state has its size whatever tpb
            pools.setdefault(size, []).append((layer.name, b.role, b.bytes))
    buffers: dict[tuple[str, str], Buffer] = {}
    start = 0
    for size, pool in sorted(pools.items(), key=lambda item: -item[0] * len(item[1])):
        for i, (owner, role, nbytes) in enumerate(pool):
            buffers[owner, role] = Buffer(owner, role, nbytes, size * len(pool), size * i, start + size * i, size)
        start += size * len(pool)
    return Group(
        index,
        first.name,
        ssm,
        first.sparse,
        first.sliding_window,
        first.sink_tokens or 0,
        tuple(layer.name for layer in layers),
        tuple(buffers[layer.name, b.role] for layer in layers for b in layer.buffers),
        tuple(sorted((size * len(pool) for size, pool in pools.items()), reverse=True)),
        first.buffers[0].selected or 0,
        first.buffers[0].reserve or 0,
        tpb // (first.buffers[0].unit or tpb),
    )
