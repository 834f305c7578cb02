"""The managers that fit systems: which there are, random ones of them, and what is in the way where there are none.

A system says of one manager whether it fits, and of no range of them. So a few are tried: one of each kind of layer and number of
levels, then one with each thing more than the plainest that fits.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from kvspec import ops
from kvspec.audit.able import Able
from kvspec.audit.managers import Profile, random_manager
from kvspec.config import BufferConfig, LayerConfig, LayerKind, LevelConfig, LevelKind, ManagerConfig

KINDS = ("dense", "window", "sparse", "sparse_window", "ssm")
"""The kinds of layers: attention without and with a window, the same sparse, and a running state."""
WORDS = {
    "dense": "full attention",
    "window": "windows",
    "sparse": "sparse attention",
    "sparse_window": "sparse attention with windows",
    "ssm": "running states",
}
SMALL_SIZES, LARGE_SIZES = (1, 2, 4), (8, 16, 32, 64, 128)
"""Tokens a block: the small ones, and, where none of them fits, the first of the others that does."""
TRIES = 60
"""How many managers are drawn for a lifecycle before the plainest that fits is taken."""
ESSENTIAL: tuple[tuple[ops.Operation, ...], ...] = (
    (ops.Create(request="r"),),
    (ops.Resume(request="r"),),
    (ops.Resize(request="r", capacity=1), ops.Commit(request="r", tokens=(0,))),
)
"""Without one of each no lifecycle comes to anything."""


def layer(name: str, kind: str, nbytes: Sequence[int] = (16,), window: int = 3, sinks: int | None = None) -> LayerConfig:
    """A layer of a kind, with a buffer of each of some sizes."""
    windowed, sparse = "window" in kind, kind.startswith("sparse")
    roles = ("key", "value")
    return LayerConfig(
        name=name,
        kind=LayerKind.SSM if kind == "ssm" else LayerKind.ATTENTION,
        sliding_window=window if windowed else None,
        sink_tokens=sinks if windowed else None,
        buffers=tuple(BufferConfig(role=role, bytes=size, sparse=sparse) for role, size in zip(roles, nbytes, strict=False)),
    )


def manager(size: int, slots: Sequence[int], layers: Sequence[LayerConfig], limit: float = 1.0) -> ManagerConfig:
    """A manager with a level for each number of slots."""
    kinds = (LevelKind.GPU, LevelKind.HOST, LevelKind.DISK)
    levels = tuple(LevelConfig(kind=kind, slots=count) for kind, count in zip(kinds, slots, strict=False))
    return ManagerConfig(tokens_per_block=size, levels=levels, layers=tuple(layers), max_util_for_resume=limit)


@functools.cache
def tried(size: int) -> tuple[tuple[str, int, ManagerConfig], ...]:
    """The plainest manager of each kind of layer and number of levels, with these."""
    return tuple(_tried(size))


def _tried(size: int) -> Iterator[tuple[str, int, ManagerConfig]]:
    for levels in (1, 2, 3):
        for kind in KINDS:
            if levels > 1 or not kind.startswith("sparse"):  # R1.4
                yield kind, levels, manager(size, (8,) * levels, [layer("l0", kind)])


@dataclass(frozen=True)
class Range:
    """The managers that fit. ``shapes``: the kinds of layers with the numbers of levels that fit one. ``sizes``: tokens a block.

    The rest says whether there may be: several layers of one kind, several layer groups, sinks, a second buffer, one of another
    size, a limit of use below 1.
    """

    able: Able
    shapes: tuple[tuple[str, int], ...]
    sizes: tuple[int, ...]
    layers: bool = False
    groups: bool = False
    sinks: bool = False
    buffers: bool = False
    pools: bool = False
    limit: bool = False

    @classmethod
    def of(cls, able: Able) -> Range | None:
        """What fits; ``None`` if nothing that is tried does."""
        if able.anything:
            shapes = tuple((kind, levels) for kind, levels, _ in tried(4))
            return cls(able, shapes, SMALL_SIZES, True, True, True, True, True, True)
        found = [
            (size, kind, levels)
            for size in (*SMALL_SIZES, *LARGE_SIZES)
            for kind, levels, one in tried(size)
            if not able.lacks(one)
        ]
        if not found:
            return None
        every = {size for size, _, _ in found}
        sizes = tuple(size for size in SMALL_SIZES if size in every) or (min(every),)
        shapes = tuple(dict.fromkeys((kind, levels) for size, kind, levels in found if size in sizes))
        size = sizes[-1]

        def fits(*layers: LayerConfig, limit: float = 1.0, levels: int = shapes[0][1]) -> bool:
            return not able.lacks(manager(size, (8,) * levels, layers, limit))

        first = shapes[0][0]
        windowed = [kind for kind, _ in shapes if "window" in kind]
        pairs = [(one, two, n) for one, n in shapes for two, m in shapes if n == m and one < two]
        return cls(
            able,
            shapes,
            sizes,
            layers=fits(layer("l0", first), layer("l1", first)),
            groups=any(fits(layer("l0", one), layer("l1", two), levels=n) for one, two, n in pairs)
            or any(fits(layer("l0", kind), layer("l1", kind, window=5), levels=n) for kind, n in shapes if kind in windowed),
            sinks=any(fits(layer("l0", kind, sinks=4), levels=n) for kind, n in shapes if kind in windowed),
            buffers=fits(layer("l0", first, (16, 16))),
            pools=fits(layer("l0", first, (16, 64))),
            limit=fits(layer("l0", first), limit=0.75),
        )

    @property
    def whole(self) -> bool:
        """Whether everything that is tried fits."""
        return (
            len(self.shapes) == len(tried(4))
            and self.sizes == SMALL_SIZES
            and all((self.layers, self.groups, self.sinks, self.buffers, self.pools, self.limit))
        )

    def manager(self, rng: Random, profile: Profile) -> ManagerConfig:
        """A random manager that fits; of all that there are if everything does."""
        if self.whole:
            return random_manager(rng, profile)
        for _ in range(TRIES):
            drawn = self._drawn(rng, profile)
            if not self.able.lacks(drawn):
                return drawn
        kind, levels = self.shapes[0]
        return manager(self.sizes[-1], (rng.randint(4, 8) * profile.scale,) * levels, [layer("l0", kind)])

    def _drawn(self, rng: Random, profile: Profile) -> ManagerConfig:
        levels = rng.choice([count for _, count in self.shapes])
        kinds = [kind for kind, count in self.shapes if count == levels]
        count = rng.choice((1, 1, 2, 2, 3)) if self.layers or self.groups else 1
        if not self.groups:
            kinds = [rng.choice(kinds)]
        window, sinks = rng.choice((1, 2, 3, 5, 8)), rng.choice((None, 1, 4)) if self.sinks else None
        layers = []
        for number in range(count):
            if self.groups:
                window = rng.choice((1, 2, 3, 5, 8))
            nbytes = [rng.choice((16, 16, 32, 48))]
            if (self.buffers or self.pools) and rng.random() < 0.4:
                nbytes.append(rng.choice((nbytes[0], 64)) if self.buffers and self.pools else nbytes[0] if self.buffers else 64)
            layers.append(layer(f"l{number}", rng.choice(kinds), nbytes, window, sinks))
        roomy = profile.scale * rng.choice((1, 1, 2, count))
        slots = [rng.randint(2, 9) * roomy, rng.randint(0, 7) * roomy, rng.randint(0, 6) * roomy][:levels]
        limit = rng.choice((1.0, 1.0, 1.0, 0.75)) if self.limit else 1.0
        return manager(rng.choice(self.sizes), slots, layers, limit)

    def __str__(self) -> str:
        """For the reader: which layers, levels and sizes."""
        kinds = dict.fromkeys(WORDS[kind] for kind, _ in self.shapes)
        levels = sorted({count for _, count in self.shapes})
        named = {1: "the GPU alone", 2: "GPU and host", 3: "GPU, host and disk"}
        more = ["one layer group" if not self.groups else "several layer groups"]
        return "; ".join(
            (
                ", ".join(kinds),
                " or ".join(named[count] for count in levels),
                *more,
                f"{', '.join(map(str, self.sizes))} tokens a block",
            )
        )


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something in the way of any lifecycle. ``opens``: for how many of the managers that were ``tried`` it alone is."""

    what: str
    opens: int
    tried: int


def in_the_way(able: Able, fits: Range | None) -> tuple[Obstacle, ...]:
    """What keeps lifecycles from being made where none can be, what would open most first; nothing if some can.

    :param fits: what `Range.of` found.
    """
    every: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    managers = [one for size in (*SMALL_SIZES, *LARGE_SIZES) for _, _, one in tried(size)]
    if fits is not None:
        kind, levels = fits.shapes[0]
        managers = [manager(fits.sizes[-1], (8,) * levels, [layer("l0", kind)])]
    for one in managers:
        reasons = list(dict.fromkeys((*able.lacks(one), *_essential(able, one))))
        if not reasons:
            return ()
        every.update(reasons)
        alone.update(reasons if len(reasons) == 1 else ())
    order = sorted(every, key=lambda reason: (-alone[reason], -every[reason], reason))
    return tuple(Obstacle(reason, alone[reason], len(managers)) for reason in order)


def _essential(able: Able, on: ManagerConfig) -> Iterator[str]:
    """What is lacking beyond the manager itself for the calls that every lifecycle has."""
    of_manager = able.lacks(on)
    for choice in ESSENTIAL:
        wanting = [[reason for reason in able.lacks(on, op) if reason not in of_manager] for op in choice]
        if all(wanting):
            yield from wanting[0]
