"""The operations: one immutable model per verb of the language.

Field names and defaults are those of the language page. ``verb`` is the YAML key, ``bare`` the field that a
bare argument fills (``enter_decode: decoder``), if the verb has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from kvspec.config import DEFAULT_PRIORITY, LevelKind, Model

Tokens: TypeAlias = Annotated[tuple[int, ...], Field(strict=False)]
Blocks: TypeAlias = Annotated[tuple[int, ...], Field(strict=False)]
Names: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
LevelName: TypeAlias = Annotated[LevelKind, Field(strict=False)]
Selected: TypeAlias = Annotated[tuple[Annotated[int, Field(ge=-(2**31), le=2**31 - 1)], ...], Field(strict=False)]
Selection: TypeAlias = Mapping[str, Selected]
"""What is selected (R15.4): block or unit numbers by request, each an int32."""
ByRow: TypeAlias = Annotated[tuple[int | None, ...] | None, Field(strict=False)]


UNLABELLED = ""
"""The label of what a step keeps without saying ``as``; the loader puts the step's number there."""


class Direction(StrEnum):
    """The direction of a copy submission (R4.5, R13.1)."""

    OFFLOAD = "offload"
    ONBOARD = "onboard"
    COPY = "copy"
    UPLOAD = "upload"


class Retry(StrEnum):
    """What a batch does about a deferred page that finds no host slot (R8.6): raise, or leave it until the next time."""

    STRICT = "strict"
    LENIENT = "lenient"


class Span(Model):
    """A part of a list of tokens that has a key (R2.7): the tokens from ``start`` up to ``end``, which is not in it."""

    start: int
    end: int
    key: str


Spans: TypeAlias = Annotated[tuple[Span, ...], Field(strict=False)]


class Operation(Model):
    """An operation: one verb of the language with its arguments as fields."""

    verb: ClassVar[str]
    bare: ClassVar[str | None] = None


class _OfRequest(Operation):
    bare: ClassVar[str | None] = "request"
    request: str


class Create(_OfRequest):
    """Make a request and match its tokens against the prefix tree (R3.1). ``key``: of all its tokens, ``spans``: of parts of
    these (R2.7).
    """

    verb: ClassVar[str] = "create"
    tokens: Tokens | None = None
    prompt_length: int | None = None
    priority: int = DEFAULT_PRIORITY
    key: str | None = None
    spans: Spans = ()


class Resume(_OfRequest):
    """Make a suspended request active (R3.2).

    ``stream``: a name, ``None`` for no stream given, or ``"default"`` (the key was left out): ``exec`` if
    the request has no stream yet, else none given. ``decode``: ``None`` keeps the phase.
    """

    verb: ClassVar[str] = "resume"
    stream: str | None = "default"
    decode: bool | None = None


class Resize(_OfRequest):
    """Set capacity and history, in tokens (R3.6); ``None`` keeps."""

    verb: ClassVar[str] = "resize"
    capacity: int | None = None
    history: int | None = None


class EnterDecode(_OfRequest):
    """Enter decode, or retry deferred pages (R3.8)."""

    verb: ClassVar[str] = "enter_decode"


class AdmitGeneration(_OfRequest):
    """Bring a request into decode from either status (R11.2)."""

    verb: ClassVar[str] = "admit_generation"


class Commit(_OfRequest):
    """Append tokens; each block that they fill enters the prefix tree (R3.9). ``key``: of these tokens (R2.7)."""

    verb: ClassVar[str] = "commit"
    tokens: Tokens
    end: bool = False
    key: str | None = None


class StopCommitting(_OfRequest):
    """End committing without adding anything (R3.9)."""

    verb: ClassVar[str] = "stop_committing"


class Suspend(_OfRequest):
    """Turn locks into holds (R3.10)."""

    verb: ClassVar[str] = "suspend"


class Close(_OfRequest):
    """Release all pages of a request, for good (R3.10)."""

    verb: ClassVar[str] = "close"


class Prefetch(_OfRequest):
    """Bring a suspended request's pages up (R3.11)."""

    verb: ClassVar[str] = "prefetch"
    bare: ClassVar[str | None] = None
    level: LevelName


class Offload(_OfRequest):
    """The bare offload, without phase and owner check (R4.9). ``groups``: ``None`` for all sparse ones."""

    verb: ClassVar[str] = "offload"
    bare: ClassVar[str | None] = None
    blocks: Blocks
    groups: Names | None = None


class SetBeamWidth(_OfRequest):
    """Split the blocks after the prompt into beams (R3.12)."""

    verb: ClassVar[str] = "set_beam_width"
    bare: ClassVar[str | None] = None
    width: int


class SetStream(_OfRequest):
    """Change the request's stream (R7.8)."""

    verb: ClassVar[str] = "set_stream"
    bare: ClassVar[str | None] = None
    stream: str


class Write(_OfRequest):
    """Write payloads on the request's stream. ``groups``: ``None`` for all."""

    verb: ClassVar[str] = "write"
    bare: ClassVar[str | None] = None
    blocks: Blocks
    groups: Names | None = None


class Acknowledge(_OfRequest):
    """Acknowledge a version (R6.5): ``latest``, or that of the snapshot with this label."""

    verb: ClassVar[str] = "acknowledge"
    bare: ClassVar[str | None] = None
    version: str


class TakeSnapshot(_OfRequest):
    """Take a snapshot (R6.1) and keep it under the label ``as``. ``group``: ``None`` if there is one group."""

    verb: ClassVar[str] = "snapshot"
    bare: ClassVar[str | None] = None
    group: str | None = None
    beam: int = 0
    as_: str = Field(alias="as")


class WaitSnapshot(Operation):
    """Order a stream after the readiness in a snapshot (R6.1)."""

    verb: ClassVar[str] = "wait_snapshot"
    snapshot: str
    stream: str = "exec"


class BindRow(_OfRequest):
    """Give a row to a request in no batch, or, with ``None``, take it away again (R6.6)."""

    verb: ClassVar[str] = "bind_row"
    bare: ClassVar[str | None] = None
    row: int | None


class IsSparse(Operation):
    """Whether a buffer is sparse (R1.7)."""

    verb: ClassVar[str] = "is_sparse"
    layer: str
    role: str


class PageIndexScale(Operation):
    """The factor from slot number to the buffer's page index (R1.7)."""

    verb: ClassVar[str] = "page_index_scale"
    layer: str
    role: str


class SeedPrefix(Operation):
    """Put blocks and pages into the prefix tree (R10.5). ``groups``: ``None`` for all. ``key``, ``spans``: of its tokens
    (R2.7).
    """

    verb: ClassVar[str] = "seed_prefix"
    tokens: Tokens
    level: LevelName
    groups: Names | None = None
    priority: int = DEFAULT_PRIORITY
    key: str | None = None
    spans: Spans = ()


class Evict(Operation):
    """Move or drop the first evictable pages of a pool group (R10.5)."""

    verb: ClassVar[str] = "evict"
    level: LevelName
    group: str | None = None
    pages: int


class ClearReusable(Operation):
    """Drop every droppable page (R10.5)."""

    verb: ClassVar[str] = "clear_reusable"


class TakeSlots(Operation):
    """Take free slots out of a pool group (R10.5) and keep them under the label ``as``."""

    verb: ClassVar[str] = "take_slots"
    level: LevelName
    group: str | None = None
    count: int | Literal["all"]
    as_: str = Field(default=UNLABELLED, alias="as")


class GiveSlots(Operation):
    """Give back the slots that were taken under a label (R10.5)."""

    verb: ClassVar[str] = "give_slots"
    bare: ClassVar[str | None] = "as_"
    as_: str = Field(alias="as")


class MakeBatch(Operation):
    """Make a batch with its device tables (R8.1)."""

    verb: ClassVar[str] = "batch"
    name: str
    rows: int
    blocks: int
    beam_width: int = 1
    levels: bool = False
    retry: Annotated[Retry, Field(strict=False)] = Retry.STRICT


class _OfBatch(Operation):
    bare: ClassVar[str | None] = "batch"
    batch: str


class Add(_OfBatch):
    """Put a request into a batch (R8.2). ``row``: ``None`` for the first free one."""

    verb: ClassVar[str] = "add"
    bare: ClassVar[str | None] = None
    request: str
    row: int | None = None


class Remove(_OfBatch):
    """Take a request out of a batch (R8.2)."""

    verb: ClassVar[str] = "remove"
    bare: ClassVar[str | None] = None
    request: str


class Publish(_OfBatch):
    """Publish the dirty rows (R8.4)."""

    verb: ClassVar[str] = "publish"
    stream: str = "exec"


class WaitReady(_OfBatch):
    """Order a stream after the publication (R8.7)."""

    verb: ClassVar[str] = "wait_ready"
    stream: str = "exec"


class RecordRead(Operation):
    """Order later writes after the reads so far on a stream (R7.7): of a batch's tables, or of a request."""

    verb: ClassVar[str] = "record_read"
    batch: str | None = None
    request: str | None = None
    stream: str = "exec"


class ResizeBatch(_OfBatch):
    """Resize the members, then publish (R8.9). Lists are by row, ``None`` keeps."""

    verb: ClassVar[str] = "resize_batch"
    capacities: ByRow = None
    histories: ByRow = None
    stream: str = "exec"


class CloseBatch(_OfBatch):
    """Close a batch; its members stay as they are (R8.2)."""

    verb: ClassVar[str] = "close_batch"


class ReadPage(_OfRequest):
    """A device read of a payload at its present location; it waits for nothing by itself."""

    verb: ClassVar[str] = "read_page"
    bare: ClassVar[str | None] = None
    block: int
    group: str | None = None
    beam: int = 0
    stream: str = "exec"
    as_: str = Field(default=UNLABELLED, alias="as")


class ReadTable(_OfBatch):
    """A device read of a page table through the exported array (R8.7)."""

    verb: ClassVar[str] = "read_table"
    bare: ClassVar[str | None] = None
    group: str | None = None
    stream: str = "exec"
    as_: str = Field(default=UNLABELLED, alias="as")


class Fetch(_OfBatch):
    """Bring what is selected of a layer's history into reserved GPU slots, by one kernel (R15.4)."""

    verb: ClassVar[str] = "fetch"
    bare: ClassVar[str | None] = None
    layer: str
    select: Selection
    stream: str = "exec"
    as_: str = Field(default=UNLABELLED, alias="as")


class CloseGate(Operation):
    """Hold a stream: work submitted to it from now on does not run until the gate opens."""

    verb: ClassVar[str] = "gate"
    stream: str
    as_: str = Field(alias="as")


class OpenGate(Operation):
    """Open a gate: the work behind it may run."""

    verb: ClassVar[str] = "open"
    bare: ClassVar[str | None] = "as_"
    as_: str = Field(alias="as")


class FailCopy(Operation):
    """Have the ``call``-th next submission of a direction refused (R4.8), after work was queued if ``queued``."""

    verb: ClassVar[str] = "fail_copy"
    direction: Annotated[Direction, Field(strict=False)]
    call: int = Field(default=1, ge=1)
    queued: bool = False


class BeginCapture(Operation):
    """Begin a graph capture on a stream (R8.8)."""

    verb: ClassVar[str] = "begin_capture"
    bare: ClassVar[str | None] = "stream"
    stream: str


class EndCapture(Operation):
    """End the capture and keep the graph under the label ``as``."""

    verb: ClassVar[str] = "end_capture"
    stream: str
    as_: str = Field(alias="as")


class Replay(Operation):
    """Replay a captured graph; what its last table read returned is kept under the label ``as``.

    ``select``: for the fetches in it (R15.8).
    """

    verb: ClassVar[str] = "replay"
    graph: str
    stream: str = "exec"
    select: Selection | None = None
    as_: str = Field(default=UNLABELLED, alias="as")


class DenseOffsets(Operation):
    """Build dense block offsets (R11.3). ``layers``: ``None`` for every attention layer."""

    verb: ClassVar[str] = "dense_offsets"
    batch: str
    requests: Names
    layers: Names | None = None


class Scheduled(Model):
    """One request of an iteration (R11.1). ``accept``: the connector's answer."""

    request: str
    capacity: int | None = None
    history: int | None = None
    decode: bool = False
    accept: bool = True


class Iterate(_OfBatch):
    """One iteration of an executor (R11.1). ``layers``: those that dense offsets are built for; ``as``: of its table read."""

    verb: ClassVar[str] = "iterate"
    bare: ClassVar[str | None] = None
    requests: Annotated[tuple[Scheduled, ...], Field(strict=False)]
    layers: Names = ()
    stream: str = "exec"
    group: str | None = None
    as_: str | None = Field(default=None, alias="as")


class Stats(Operation):
    """Read, and by default reset, the counters (R13.1)."""

    verb: ClassVar[str] = "stats"
    reset: bool = True


class Sync(Operation):
    """Wait on the CPU for a stream; ``None`` for all."""

    verb: ClassVar[str] = "sync"
    bare: ClassVar[str | None] = "stream"
    stream: str | None = None


def _leaves(base: type[Operation]) -> list[type[Operation]]:
    found: list[type[Operation]] = []
    for sub in base.__subclasses__():
        if "verb" in vars(sub):
            found.append(sub)
        found.extend(_leaves(sub))
    return found


VERBS: dict[str, type[Operation]] = {op.verb: op for op in _leaves(Operation)}
"""Every verb of the language and the model of its arguments."""
