"""What a manager is built from (rules, section 1): layers, buffers, levels.

These models say what may be written down. What follows from them (layer groups, pools, pool groups, slot
counts) are rules, and each system derives it for itself.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, Self

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from kvspec.model import Model as Model
from kvspec.policies import Policies

DEFAULT_PRIORITY = 35
"""Eviction priority of a page whose request or seed names none (R10.2)."""


MAX_SELECTED = 2048
"""So many numbers may be selected for a row at most (R15.1)."""


class Level(IntEnum):
    """A storage level, hottest first (R1.2)."""

    GPU = 0
    HOST = 1
    DISK = 2

    @property
    def label(self) -> str:
        """The name that scenarios use."""
        return self.name.lower()

    @classmethod
    def of(cls, label: str) -> Level:
        """The level that a scenario calls ``label`` (``gpu``, ``host`` or ``disk``)."""
        return cls[label.upper()]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """In JSON it stands by its name."""
        return core_schema.no_info_after_validator_function(
            cls.of,
            core_schema.literal_schema([level.label for level in cls]),
            serialization=core_schema.plain_serializer_function_ser_schema(_label, return_schema=core_schema.str_schema()),
        )


def _label(level: Level) -> str:
    return level.label


class LevelKind(StrEnum):
    """How YAML names a level."""

    GPU = "gpu"
    HOST = "host"
    DISK = "disk"

    @property
    def level(self) -> Level:
        """Its number: 0 for the GPU, 1 for the host, 2 for the disk (R1.2)."""
        return Level.of(self.value)


class LayerKind(StrEnum):
    """What a layer keeps per request: history blocks, or one state (R1.3)."""

    ATTENTION = "attention"
    SSM = "ssm"


class Ownership(StrEnum):
    """Who has a page of a sparse group on the GPU: all that share it together, or each a copy of its own (section 14)."""

    SHARED = "shared"
    PRIVATE = "private"


class ConfigError(ValueError):
    """A configuration that the rules do not allow. ``path``: keys and list positions down to what is wrong."""

    def __init__(self, message: str, *path: str | int) -> None:
        """An error whose text is ``message``."""
        super().__init__(message)
        self.path = path


class BufferConfig(Model):
    """One named buffer of a layer (R1.3): ``bytes`` per block of ``tokens_per_block`` tokens.

    ``selected``, ``reserve``: of a sparse one, how many numbers a fetch selects for a row, and how many GPU slots a decoding
    request reserves for what is fetched (R15.1); ``unit``: the tokens of what a number selects, a block's if left out (R15.11).
    """

    role: str = Field(min_length=1)
    bytes: int = Field(gt=0)
    sparse: bool = False
    tokens_per_block: int | None = Field(default=None, gt=0)
    selected: int | None = Field(default=None, gt=0)
    reserve: int | None = Field(default=None, gt=0)
    unit: int | None = Field(default=None, gt=0)

    @property
    def fetching(self) -> tuple[int | None, int | None, int | None]:
        """What it says of fetches (R15.1): ``selected``, ``reserve``, ``unit``."""
        return self.selected, self.reserve, self.unit


class LayerConfig(Model):
    """A layer and its buffers (R1.3, R1.4)."""

    name: str = Field(min_length=1)
    kind: LayerKind = Field(default=LayerKind.ATTENTION, strict=False)
    sliding_window: int | None = Field(default=None, gt=0)
    sink_tokens: int | None = Field(default=None, ge=0)
    buffers: tuple[BufferConfig, ...] = Field(min_length=1, strict=False)

    @property
    def sparse(self) -> bool:
        """Whether the layer's buffers are sparse; all agree (R1.4)."""
        return self.buffers[0].sparse

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sink_tokens is not None and self.sliding_window is None:
            raise ConfigError("sink_tokens needs a sliding_window (R1.3)", "sink_tokens")
        if len({b.sparse for b in self.buffers}) > 1:
            raise ConfigError("all buffers of a layer must agree on sparse (R1.4)", "buffers")
        roles = [b.role for b in self.buffers]
        if len(set(roles)) < len(roles):
            raise ConfigError("the roles of a layer's buffers must differ", "buffers")
        if self.kind is LayerKind.SSM:
            if self.sparse:
                raise ConfigError("a buffer of an ssm layer cannot be sparse (R1.4)", "buffers", 0, "sparse")
            if self.sliding_window is not None:
                raise ConfigError("an ssm layer has no sliding_window (R1.3)", "sliding_window")
        return self


class LevelConfig(Model):
    """A storage level and its size: ``slots`` per pool group, or ``bytes`` in all (R1.2)."""

    kind: LevelKind = Field(strict=False)
    slots: int | None = Field(default=None, ge=0)
    bytes: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.slots is None) == (self.bytes is None):
            both = "both" if self.slots is not None else "neither"
            raise ValueError(f"a level has either slots or bytes, this one has {both} (R1.2)")
        return self


class ManagerConfig(Model):
    """A cache manager: page size, levels, layers, and the policies that are asked for."""

    tokens_per_block: int = Field(ge=1)
    levels: tuple[LevelConfig, ...] = Field(min_length=1, strict=False)
    layers: tuple[LayerConfig, ...] = Field(min_length=1, strict=False)
    max_util_for_resume: float = Field(default=1.0, ge=0.0, le=1.0)
    ownership: Ownership = Field(default=Ownership.SHARED, strict=False)
    policy: Policies = Policies()

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = [level.kind.level for level in self.levels]
        for number, kind in enumerate(kinds):
            if kind != number:
                raise ConfigError("levels must be gpu, then host, then disk, without a gap (R1.2)", "levels", number, "kind")
        if self.levels[0].slots == 0:
            raise ConfigError("the gpu level needs at least one slot (R1.2)", "levels", 0, "slots")
        names: set[str] = set()
        for number, layer in enumerate(self.layers):
            if layer.name in names:
                raise ConfigError("the names of the layers must differ", "layers", number, "name")
            names.add(layer.name)
            if layer.sparse and len(self.levels) < 2:
                raise ConfigError("a sparse buffer needs a host level (R1.4)", "layers", number, "buffers", 0, "sparse")
            for at, buffer in enumerate(layer.buffers):
                own = buffer.tokens_per_block
                if own is not None and self.tokens_per_block % own:
                    raise ConfigError(
                        f"tokens_per_block {own} of buffer {layer.name}.{buffer.role} must divide "
                        f"the manager's {self.tokens_per_block} (R1.6)",
                        *("layers", number, "buffers", at, "tokens_per_block"),
                    )
        _check_fetching(self)
        return self


def _check_fetching(manager: ManagerConfig) -> None:
    """R15.1, R15.11: what buffers say of fetches. Raises `ConfigError`."""
    tpb = manager.tokens_per_block
    first: dict[tuple[object, ...], tuple[str, tuple[int | None, int | None, int | None]]] = {}
    for number, layer in enumerate(manager.layers):
        for at, buffer in enumerate(layer.buffers):
            where, name = ("layers", number, "buffers", at), f"{layer.name}.{buffer.role}"
            said = next((key for key in ("selected", "reserve", "unit") if getattr(buffer, key) is not None), None)
            if said is not None and not buffer.sparse:
                raise ConfigError(f"{said} of buffer {name}, which is not sparse (R15.1)", *where, said)
            if said is not None and (buffer.selected is None or buffer.reserve is None):
                raise ConfigError(f"buffer {name} needs both selected and reserve (R15.1)", *where, said)
            other, fetching = first.setdefault(alike(layer), (name, buffer.fetching))
            if buffer.fetching != fetching:
                raise ConfigError(
                    f"buffers {other} and {name} of one group must agree on selected, reserve and unit (R15.1)", *where
                )
            if buffer.selected is None or buffer.reserve is None:
                continue
            if buffer.unit is not None and tpb % buffer.unit:
                problem = f"unit {buffer.unit} of buffer {name} must divide tokens_per_block {tpb} (R15.11)"
                raise ConfigError(problem, *where, "unit")
            if buffer.selected > MAX_SELECTED:
                problem = f"buffer {name} selects {buffer.selected} numbers: at most {MAX_SELECTED} for a row (R15.1)"
                raise ConfigError(problem, *where, "selected")
            units = tpb // (buffer.unit or tpb)
            if buffer.reserve * units < buffer.selected:
                raise ConfigError(
                    f"buffer {name} reserves room for {buffer.reserve * units}, and selects {buffer.selected} (R15.1)",
                    *(*where, "reserve"),
                )
            if buffer.bytes * (tpb // (buffer.tokens_per_block or tpb)) % units:
                raise ConfigError(f"a unit of buffer {name} is no whole number of bytes (R15.11)", *where, "unit")


def alike(layer: LayerConfig) -> tuple[object, ...]:
    """What layers of one group have in common (R1.5)."""
    return layer.kind, layer.sliding_window, layer.sink_tokens, layer.sparse


def group_names(config: ManagerConfig) -> tuple[str, ...]:
    """The layer groups' names, in order: each is named after its first layer (R1.5)."""
    first: dict[tuple[object, ...], str] = {}
    for layer in config.layers:
        first.setdefault(alike(layer), layer.name)
    return tuple(first.values())
