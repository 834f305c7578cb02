"""Scenarios: what one YAML document says, after it has been checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from kvspec.config import LevelKind, ManagerConfig, Model
from kvspec.errors import ErrorKind
from kvspec.observation import PageStatus, Phase, RequestStatus
from kvspec.ops import Operation, Spans

LANGUAGE_VERSION = 1

LevelOrNone: TypeAlias = Literal["gpu", "host", "disk", "-"]
Entry: TypeAlias = str
"""A table entry: ``-`` or ``request.block``."""
BackingOrNone: TypeAlias = Literal["gpu", "host", "disk", "none"]
Levels: TypeAlias = Annotated[tuple[LevelOrNone, ...], Field(strict=False)]
Texts: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
Ints: TypeAlias = Annotated[tuple[int, ...], Field(strict=False)]
Rows: TypeAlias = Annotated[tuple[Texts, ...], Field(strict=False)]
LevelRows: TypeAlias = Annotated[tuple[Levels, ...], Field(strict=False)]
Found: TypeAlias = Annotated[tuple[Literal["hit", "miss", "-"], ...], Field(strict=False)]
"""What came of each selected number (R15.4)."""
Freshness: TypeAlias = Literal["same", "newer"]
WorkLabel: TypeAlias = str
"""``publish:<batch>``, ``page:<request.group.block>``, ``read:<label>``, ``fetch:<label>`` or ``slot:<level.group>``."""


class MovedPages(Model):
    """Pages moved in this step, any part of it."""

    offload: int | None = None
    onboard: int | None = None
    copy_: int | None = Field(default=None, alias="copy")
    drop: int | None = None
    attach: int | None = None


class CopyCalls(Model):
    """Submissions made and kept in this step, any part of it."""

    offload: int | None = None
    onboard: int | None = None
    copy_: int | None = Field(default=None, alias="copy")


class SnapshotExpect(Model):
    """A labelled snapshot, as taken; any part of it."""

    levels: Levels | None = None
    eligible: int | None = None
    row: int | Literal["unset"] | None = "unset"


class StatsExpect(Model):
    """Counters of one group, any part of them."""

    offload_pages: int | None = None
    offload_bytes: int | None = None
    onboard_pages: int | None = None
    onboard_bytes: int | None = None
    copy_pages: int | None = None
    drop_pages: int | None = None
    attach_pages: int | None = None
    fetch_hits: int | None = None
    fetch_misses: int | None = None
    fetch_bytes: int | None = None


class ManagerStatsExpect(Model):
    """Counters of the manager, any part of them."""

    suspends: int | None = None
    resumes: int | None = None


class _WithKeys(Model):
    """Tokens of the tree may have keys (R2.7)."""

    key: str | None = None
    spans: Spans = ()


class StoredExpect(_WithKeys):
    """A block entered the tree."""

    stored: Ints


class RemovedExpect(_WithKeys):
    """A block left the tree."""

    removed: Ints


class ClearedExpect(Model):
    """`clear_reusable` said so in a single event."""

    cleared: Literal[True]


class BlockExpect(_WithKeys):
    """The page of a block of the tree, by its tokens (R2.7)."""

    tokens: Ints


TREE_KEYS = ("key", "spans")
"""What an entry of ``tree`` may say of its tokens; where the manager has a group of that name, the group is meant."""


class LevelExpect(_WithKeys):
    """A committed page moved between levels (R13.3)."""

    level: Ints
    group: str
    from_: Annotated[LevelKind, Field(strict=False, alias="from")]
    to: Annotated[LevelKind, Field(strict=False)]


class Expect(Model):
    """The expectations of a step; every key is optional. Keys of the mappings are as the language page says."""

    levels: Mapping[str, Levels] | None = None
    owners: Mapping[str, Texts] | None = None
    eligible: Mapping[str, int] | None = None
    num_blocks: Mapping[str, Ints] | None = None
    table: Mapping[str, Rows] | None = None
    status: Mapping[str, Annotated[RequestStatus, Field(strict=False)]] | None = None
    phase: Mapping[str, Annotated[Phase, Field(strict=False)]] | None = None
    history: Mapping[str, int] | None = None
    capacity: Mapping[str, int] | None = None
    row: Mapping[str, int | None] | None = None
    committed: Mapping[str, int] | None = None
    dirty: Mapping[str, bool] | None = None
    dirty_rows: Mapping[str, Ints] | None = None
    version: Mapping[str, Freshness] | None = None
    free: Mapping[str, int] | None = None
    same_page: Texts | None = None
    different_page: Texts | None = None
    page_status: Mapping[str, Annotated[PageStatus, Field(strict=False)]] | None = None
    backing: Mapping[str, BackingOrNone] | None = None
    copies: Mapping[str, Texts] | None = None
    moved: Mapping[str, MovedPages] | None = None
    copy_calls: CopyCalls | None = None
    pending: Annotated[tuple[WorkLabel, ...], Field(strict=False)] | None = None
    done: Annotated[tuple[WorkLabel, ...], Field(strict=False)] | None = None
    page_level: Mapping[str, LevelOrNone] | None = None
    version_since: Mapping[str, Mapping[str, Freshness]] | None = None
    tree: Annotated[tuple[Mapping[str, Any], ...], Field(strict=False)] | None = None
    level_table: Mapping[str, LevelRows] | None = None
    would_evict: Mapping[str, Annotated[tuple[str | Ints | BlockExpect, ...], Field(strict=False)]] | None = None
    snapshot: Mapping[str, SnapshotExpect] | None = None
    events: Annotated[tuple[StoredExpect | RemovedExpect | LevelExpect | ClearedExpect, ...], Field(strict=False)] | None = None
    stats: Mapping[str, Any] | None = None
    staging: Mapping[str, int] | None = None
    payload: Mapping[str, Literal["ok", "undefined"]] | None = None
    sees: Mapping[str, Rows] | None = None
    fetched: Mapping[str, Mapping[str, Found]] | None = None
    resident: Mapping[str, Ints] | None = None
    reserved: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """A point in a file; line and column count from 1."""

    path: Path
    line: int
    column: int

    def __str__(self) -> str:
        """``file:line:column``."""
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Unset:
    """What a step leaves out: not the same as ``null``."""

    def __reduce__(self) -> str:
        """There is one, in every process."""
        return "UNSET"


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``returns`` is ``UNSET`` or the plain YAML value; ``last_line``: where its text ends.

    ``positions``: the position of each expectation by its path, ``("levels", "decoder.main")``, and of
    ``("returns",)`` and ``("raises",)``.
    """

    number: int
    op: Operation
    returns: Any
    raises: ErrorKind | None
    expect: Expect
    note: str | None
    position: Position
    last_line: int
    positions: Mapping[tuple[str, ...], Position]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. ``index``: its number among the documents of its file, from 0."""

    name: str
    rules: tuple[str, ...]
    tags: tuple[str, ...]
    requires: tuple[str, ...]
    manager: ManagerConfig
    streams: tuple[str, ...]
    steps: tuple[Step, ...]
    position: Position
    index: int

    @property
    def verbs(self) -> frozenset[str]:
        """The verbs that it uses."""
        return frozenset(step.op.verb for step in self.steps)

    @property
    def fetches(self) -> bool:
        """Whether its manager reserves slots for fetched history (R15.1)."""
        return any(buffer.selected is not None for layer in self.manager.layers for buffer in layer.buffers)

    @property
    def has_keys(self) -> bool:
        """Whether any of its tokens have keys (R2.7)."""
        return any(getattr(step.op, name, None) for step in self.steps for name in ("key", "spans"))
