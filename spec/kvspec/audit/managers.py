"""Random managers, and what a run of lifecycles may contain."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kvspec.config import BufferConfig, LayerConfig, LayerKind, LevelConfig, LevelKind, ManagerConfig, Ownership

BIG = 90
"""Requests of up to six times as many blocks, in pools of up to nine times as many slots or more."""

PRIVATE_SHARE = 0.25
"""Of the managers with sparse layers, those of private ownership where it is drawn."""


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
    layers, levels = manager.layers, manager.levels
    if not sparse:
        buffers = tuple(buffer.model_copy(update={"sparse": True}) for buffer in layers[0].buffers)
        layers = (layers[0].model_copy(update={"kind": LayerKind.ATTENTION, "buffers": buffers}), *layers[1:])
        levels = levels if len(levels) > 1 else (*levels, LevelConfig(kind=LevelKind.HOST, slots=levels[0].slots))
    return manager.model_copy(update={"ownership": Ownership.PRIVATE, "layers": layers, "levels": levels})


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
