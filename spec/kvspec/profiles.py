"""Profiles: how much of the language a scenario needs, so that a manager that can do part of it knows which part is whole.

The profile ``prefix`` is a prefix cache: attention layers that are not sparse, on the GPU alone, in whole blocks. Each
*extension* adds one thing to it, and ``prefix+host+suspend`` is what needs these two and nothing else. What a scenario needs is
worked out from what it says, but for partial blocks: for these the reference goes through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kvspec.config import LayerKind, Level, Ownership
from kvspec.errors import ErrorKind
from kvspec.nearest import did_you_mean
from kvspec.ops import Operation, Resume
from kvspec.scenario import Scenario
from kvspec.system import System

BASE = "prefix"
"""The profile that every other extends."""

_VERBS = "create resume resize commit stop_committing close seed_prefix evict clear_reusable take_slots give_slots"
PREFIX_VERBS = frozenset(_VERBS.split(" "))
"""The verbs of the profile `BASE`."""

MISUSE = frozenset({ErrorKind.INVALID_ARGUMENT, ErrorKind.LOGIC_ERROR, ErrorKind.OUT_OF_RANGE})
"""Errors that a caller who is right never sees."""


@dataclass(frozen=True, slots=True)
class Extension:
    """One thing that a scenario may need beyond the profile `BASE`.

    ``verbs``: those that it adds. ``asked``: whether a scenario needs it, whatever its verbs.
    """

    name: str
    title: str
    verbs: frozenset[str]
    asked: Callable[[Scenario], bool]


def _levels(scenario: Scenario, least: Level) -> bool:
    return any(level.kind.level >= least for level in scenario.manager.levels)


def _on_other_streams(op: Operation) -> bool:
    return isinstance(op, Resume) and op.stream not in ("default", "exec")


def _extension(name: str, title: str, verbs: str = "", asked: Callable[[Scenario], bool] = lambda scenario: False) -> Extension:
    return Extension(name, title, frozenset(verbs.split()), asked)


EXTENSIONS: Mapping[str, Extension] = MappingProxyType(
    {
        one.name: one
        for one in (
            _extension("partial", "blocks that are partly full, in the tree or matched (R2.6, R3.1)"),
            _extension("host", "a host level, to which pages are evicted", "", lambda s: _levels(s, Level.HOST)),
            _extension("disk", "a disk level", "", lambda s: _levels(s, Level.DISK)),
            _extension(
                "suspend",
                "requests that stop and go on again, and the limit of use up to which they may",
                "suspend prefetch",
                lambda s: s.manager.max_util_for_resume < 1,
            ),
            _extension(
                "sparse",
                "sparse layers, the phase decode, and the offload of complete history",
                "enter_decode admit_generation offload",
                lambda s: any(layer.sparse for layer in s.manager.layers) or any(_decides_phase(step.op) for step in s.steps),
            ),
            _extension("private", "GPU copies of each request's own", "", lambda s: s.manager.ownership is Ownership.PRIVATE),
            _extension("fetch", "fetches of selected history into reserved slots", "fetch", lambda s: s.fetches),
            _extension(
                "tables",
                "what kernels and their callers read: batches, rows, device tables, snapshots, versions, layout",
                "batch add remove publish wait_ready resize_batch close_batch iterate dense_offsets read_table bind_row snapshot "
                "acknowledge is_sparse page_index_scale",
            ),
            _extension(
                "order",
                "device work and its order: streams, gates, reads, writes, refused copies, captures",
                "gate open set_stream record_read read_page read_table replay wait_snapshot wait_ready sync write fail_copy "
                "begin_capture end_capture",
                lambda s: len({"exec", *s.streams}) > 1 or any(_on_other_streams(step.op) for step in s.steps),
            ),
            _extension(
                "states",
                "layers with a running state (SSM)",
                "",
                lambda s: any(x.kind is LayerKind.SSM for x in s.manager.layers),
            ),
            _extension(
                "beams",
                "several beams a request",
                "set_beam_width",
                lambda s: any(getattr(step.op, "prompt_length", None) is not None for step in s.steps),
            ),
            _extension("keys", "keys beside tokens: salts, adapters, images (R2.7)", "", lambda s: s.has_keys),
            _extension("counters", "counters of moved and dropped pages", "stats"),
            _extension(
                "misuse", "calls that are wrong, and how they are refused", "", lambda s: any(x.raises in MISUSE for x in s.steps)
            ),
        )
    }
)
"""Every extension, by the name that follows the ``+``."""


def _decides_phase(op: Operation) -> bool:
    return isinstance(op, Resume) and op.decode is not None


class ProfileError(ValueError):
    """A text that is no profile; ``str()`` of it says what there is."""


def profile(text: str) -> frozenset[str]:
    """The extensions that a profile such as ``prefix+host`` allows.

    :raises ProfileError: it does not begin with ``prefix``, or has an extension that there is not.
    """
    first, *more = text.split("+")
    if first != BASE:
        raise ProfileError(f"{text!r} is no profile: expected {BASE}, or {BASE}+EXTENSION+...: {', '.join(EXTENSIONS)}")
    for name in more:
        if name not in EXTENSIONS:
            hint = did_you_mean(name, EXTENSIONS)
            raise ProfileError(f"{text!r}: there is no extension {name!r}.{hint} There are: {', '.join(EXTENSIONS)}")
    return frozenset(more)


def title(extensions: frozenset[str]) -> str:
    """The name of the profile that allows these extensions and no others."""
    return "+".join([BASE, *(name for name in EXTENSIONS if name in extensions)])


def said_needs(scenario: Scenario) -> frozenset[str]:
    """The extensions that what a scenario says needs: all but ``partial``."""
    more = scenario.verbs - PREFIX_VERBS
    return frozenset(name for name, one in EXTENSIONS.items() if more & one.verbs or one.asked(scenario))


def needs(scenario: Scenario, build: Callable[[Scenario], System]) -> frozenset[str]:
    """The extensions that a scenario needs.

    :param build: of the reference, which goes through it.
    """
    return said_needs(scenario) | ({"partial"} if partly_full(scenario, build) else frozenset())


def partly_full(scenario: Scenario, build: Callable[[Scenario], System]) -> bool:
    """Whether a partial block ever stands in the tree, or a match ends inside a block.

    Raises whatever the system raises. An operation with an unexpected outcome changes nothing here: a run says so.
    """
    size = scenario.manager.tokens_per_block
    system = build(scenario)
    try:
        for step in scenario.steps:
            value = system.apply(step.op).value
            if step.op.verb == "create" and isinstance(value, int) and value % size:
                return True
            if any(len(block.tokens) % size for block in system.observe().tree):
                return True
    finally:
        system.close()
    return False
