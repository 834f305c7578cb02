"""Random managers, and what a run of lifecycles may contain."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from kvspec.config import BufferConfig, LayerConfig, LayerKind, LevelConfig, LevelKind, ManagerConfig, Ownership, alike

BIG = 90
"""Requests of up to six times as many blocks, in pools of up to nine times as many slots or more."""

PRIVATE_SHARE = 0.25
"""Of the managers with sparse layers, those of private ownership where it is drawn."""

FETCH_SHARE = 0.35
"""Of the managers with sparse layers, those that reserve slots for fetches where it is drawn."""


class Fetches(StrEnum):
    """Which lifecycles have fetches: some of those with sparse layers, all, or none."""

    ANY = "any"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a run of lifecycles may contain."""

    faults: bool = True
    gates: bool = True
    disk: bool = True
    beams: bool = True
    ssm: bool = True
    wild: float = 0.06
    """Share of calls made without looking at the state."""
    allowed: frozenset[str] | None = None
    """The extensions of a profile of the suite (`kvspec.profiles`) that it keeps to; ``None``: it may contain anything."""
    ownership: Ownership | None = None
    """Who owns GPU pages (section 14 of the rules); ``None``: drawn, where there are sparse layers."""
    fetches: Fetches = Fetches.ANY
    """Whether slots are reserved for fetches (section 15 of the rules)."""
    steer: bool = False
    """Whether lifecycles are steered towards what they have not come to (`kvspec.audit.steering`)."""
    big: bool = False
    """Hundreds of blocks a request, batches of many rows, tokens of up to 2**40."""

    @property
    def scale(self) -> int:
        """By how much pools and lengths are larger than by default."""
        return BIG if self.big else 1


def owned(manager: ManagerConfig, seed: int, ownership: Ownership | None) -> ManagerConfig:
    """A manager with the ownership that is asked for; drawn by the seed alone where none is.

    Where there is no sparse layer both are one. So if private ownership is asked for, there is: its first layer becomes one.
    """
    sparse = any(layer.sparse for layer in manager.layers)
    if ownership is None:
        ownership = Ownership.PRIVATE if sparse and Random(f"ownership {seed}").random() < PRIVATE_SHARE else Ownership.SHARED
    if ownership is Ownership.SHARED:
        return manager
    return (manager if sparse else with_sparse(manager)).model_copy(update={"ownership": Ownership.PRIVATE})


def with_sparse(manager: ManagerConfig) -> ManagerConfig:
    """A manager whose first layer is sparse, with a host level."""
    layers, levels = manager.layers, manager.levels
    buffers = tuple(buffer.model_copy(update={"sparse": True}) for buffer in layers[0].buffers)
    layers = (layers[0].model_copy(update={"kind": LayerKind.ATTENTION, "buffers": buffers}), *layers[1:])
    levels = levels if len(levels) > 1 else (*levels, LevelConfig(kind=LevelKind.HOST, slots=levels[0].slots))
    return manager.model_copy(update={"layers": layers, "levels": levels})


def fetching(manager: ManagerConfig, seed: int, fetches: Fetches) -> ManagerConfig:
    """A manager whose sparse groups reserve slots for fetches, or most of them (R15.1); drawn by the seed alone.

    Where all managers are to have fetches and there is no sparse layer, its first layer becomes one.
    """
    rng = Random(f"fetches {seed}")
    sparse = any(layer.sparse for layer in manager.layers)
    if fetches is Fetches.NONE or (fetches is Fetches.ANY and not (sparse and rng.random() < FETCH_SHARE)):
        return manager
    manager = manager if sparse else with_sparse(manager)
    said: dict[tuple[object, ...], dict[str, int | None]] = {}
    layers = []
    for layer in manager.layers:
        if layer.sparse:
            if alike(layer) not in said:
                none = said and rng.random() < 0.2  # a group that cannot be fetched beside one that can
                said[alike(layer)] = {} if none else _reserved(rng, manager)
            buffers = tuple(buffer.model_copy(update=said[alike(layer)]) for buffer in layer.buffers)
            layer = layer.model_copy(update={"buffers": buffers})
        layers.append(layer)
    more = (rng.choice((0, 2, 2, 6)), rng.choice((0, 0, 4)), 0)
    levels = [
        level if level.slots is None else level.model_copy(update={"slots": level.slots + n})
        for level, n in zip(manager.levels, more, strict=False)
    ]
    return ManagerConfig.model_validate(
        manager.model_copy(update={"layers": tuple(layers), "levels": tuple(levels)}).model_dump()
    )


def _reserved(rng: Random, manager: ManagerConfig) -> dict[str, int | None]:
    """What the buffers of a group say of fetches: few slots, and as many numbers as fit into them, or fewer."""
    tpb = manager.tokens_per_block
    even = all(
        buffer.bytes * (tpb // (buffer.tokens_per_block or tpb)) % tpb == 0
        for layer in manager.layers
        for buffer in layer.buffers
    )
    unit = rng.choice((None, None, *(tokens for tokens in (1, 2) if tpb % tokens == 0))) if even else None
    reserve = rng.choice((1, 1, 2, 2, 3))
    most = reserve * (tpb // (unit or tpb))
    return {"selected": rng.randint(1, min(4, most)), "reserve": reserve, "unit": unit}


def random_manager(rng: Random, profile: Profile) -> ManagerConfig:
    """A manager of one to four layers, in tiny pools unless the lifecycle is big."""
    layers: list[LayerConfig] = []
    for number in range(rng.choice((1, 1, 2, 2, 3, 4))):
        kind = rng.choice(("sparse", "sparse", "dense", "window", "window", "sparse_window", "ssm" if profile.ssm else "dense"))
        if number == 0 and kind in ("ssm", "window") and rng.random() < 0.5:
            kind = "sparse"
        sparse = kind.startswith("sparse")
        nbytes = rng.choice((16, 16, 32, 48))
        buffers = [BufferConfig(role="key", bytes=nbytes, sparse=sparse)]
        if rng.random() < 0.3:
            buffers.append(BufferConfig(role="value", bytes=rng.choice((nbytes, 64)), sparse=sparse))
        window = rng.choice((1, 2, 3, 5, 8)) if "window" in kind else None
        sinks = rng.choice((None, 1, 4)) if window else None
        layers.append(
            LayerConfig(
                name=f"l{number}",
                kind=LayerKind.SSM if kind == "ssm" else LayerKind.ATTENTION,
                sliding_window=window,
                sink_tokens=sinks,
                buffers=tuple(buffers),
            )
        )
    roomy = profile.scale * rng.choice((1, 1, 2, len(layers)))  # several groups share the slots
    levels = [LevelConfig(kind=LevelKind.GPU, slots=rng.choice((2, 3, 4, 5, 6, 7, 8, 9)) * roomy)]
    if rng.random() < 0.95 or any(layer.sparse for layer in layers):
        levels.append(LevelConfig(kind=LevelKind.HOST, slots=rng.randint(0, 7) * roomy))
        if profile.disk and rng.random() < 0.5:
            levels.append(LevelConfig(kind=LevelKind.DISK, slots=rng.randint(0, 6) * roomy))
    utilisation = rng.choice((1.0, 1.0, 1.0, 0.75))
    return ManagerConfig(
        tokens_per_block=rng.choice((1, 2, 4, 4)), levels=tuple(levels), layers=tuple(layers), max_util_for_resume=utilisation
    )
