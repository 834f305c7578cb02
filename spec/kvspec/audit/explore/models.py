"""The small models: a manager in tight pools, what it begins with, and what is tried in each of its states."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kvspec import ops
from kvspec.config import LayerConfig, LevelConfig, LevelKind, ManagerConfig, Ownership
from kvspec.nearest import did_you_mean

BATCH = "rows"
GATE = "held"
TEXT = (1, 2, 3, 4, 5, 6)
"""What every request commits, so that they share blocks and rebase."""
OTHER = 9
"""A token that is not in the text: what begins with it is another block."""
EVERY = frozenset({"create", "resume", "resize", "enter_decode", "commit", "suspend", "close"})
"""Verbs that every model has."""


@dataclass(frozen=True, slots=True)
class SmallModel:
    """A small model. ``text``: what it is about, in a sentence.

    ``requests``: their names. ``blocks``: of each, at most. ``begin``: the operations before the first state. ``verbs``: what is
    tried in a state. ``deepest``: how far it is gone through where nothing is said.
    """

    name: str
    text: str
    manager: ManagerConfig
    verbs: frozenset[str]
    requests: tuple[str, ...] = ("a", "b")
    blocks: int = 3
    begin: tuple[ops.Operation, ...] = ()
    streams: tuple[str, ...] = ("exec",)
    deepest: int = 8

    def owned(self, ownership: Ownership) -> SmallModel:
        """The same under a policy of ownership (section 14 of the rules)."""
        manager = self.manager.model_copy(update={"ownership": ownership})
        return SmallModel(
            self.name, self.text, manager, self.verbs, self.requests, self.blocks, self.begin, self.streams, self.deepest
        )


def _layer(name: str, nbytes: int, window: int | None = None, **buffer: Any) -> LayerConfig:
    known: dict[str, Any] = {"name": name, "buffers": [{"role": "key", "bytes": nbytes, **buffer}]}
    return LayerConfig.model_validate(known if window is None else {**known, "sliding_window": window})


def _manager(layers: list[LayerConfig], gpu: int, host: int, disk: int | None = None) -> ManagerConfig:
    levels = [LevelConfig(kind=LevelKind.GPU, slots=gpu), LevelConfig(kind=LevelKind.HOST, slots=host)]
    if disk is not None:
        levels.append(LevelConfig(kind=LevelKind.DISK, slots=disk))
    return ManagerConfig(tokens_per_block=2, levels=tuple(levels), layers=tuple(layers))


_ROWS = ops.MakeBatch(name=BATCH, rows=2, blocks=3)
_PREFILL = (
    ops.Create(request="a"),
    ops.Resume(request="a"),
    ops.Resize(request="a", capacity=4, history=4),
    ops.Commit(request="a", tokens=TEXT[:2]),
)
"""A request in prefill that has two complete blocks, of which the first is committed."""
_BEGUN = (_ROWS, *_PREFILL, ops.Add(batch=BATCH, request="a"))
"""The same in a batch; its row was never published."""
_PAGES = EVERY | {"offload", "prefetch", "evict", "clear_reusable", "fail_copy"}
_MAIN = _layer("main", 16, sparse=True)

_MODELS = (
    SmallModel(
        "standard",
        "Two requests of up to three blocks, in a sparse group and in a dense one with a window; three GPU slots a group, two "
        "host slots for both; a batch; every copy and upload refused in turn.",
        _manager([_MAIN, _layer("near", 16, window=2)], 3, 2),
        _PAGES | {"batch", "publish", "admit_generation", "seed_prefix"},
        begin=_BEGUN,
    ),
    SmallModel(
        "rows",
        "Two requests in a sparse group, and all that is done to a batch: members, rows, iterations, resizes of a whole batch, "
        "acknowledged versions.",
        _manager([_MAIN], 3, 2),
        EVERY | {"batch", "publish", "iterate", "resize_batch", "acknowledge", "bind_row", "stop_committing", "fail_copy"},
        begin=_BEGUN,
        deepest=6,
    ),
    SmallModel(
        "disk",
        "Two requests in a sparse group and a dense one over three levels: two GPU slots a group, one host slot, two disk slots; "
        "slots are taken and given back.",
        _manager([_MAIN, _layer("near", 16)], 2, 1, 2),
        _PAGES | {"take_slots", "give_slots", "seed_prefix"},
        blocks=2,
        begin=_PREFILL,
        deepest=7,
    ),
    SmallModel(
        "gates",
        "Two requests in a sparse group, with a gate that holds their stream up and recorded reads: what waits for what.",
        _manager([_MAIN], 3, 2),
        EVERY | {"gate", "open", "record_read", "batch", "publish", "offload", "evict"},
        begin=_BEGUN,
        deepest=6,
    ),
    SmallModel(
        "fetch",
        "Two decoding requests that reserve two GPU slots each for fetched history, and fetches of one block.",
        _manager([_layer("main", 16, sparse=True, selected=1, reserve=2)], 5, 4),
        EVERY | {"batch", "publish", "fetch", "evict", "fail_copy"},
        begin=_BEGUN,
        deepest=6,
    ),
)

MODELS = MappingProxyType({one.name: one for one in _MODELS})
"""The small models, by name."""


class NoModel(LookupError):
    """There is no small model of a name; ``str()`` of it says which there are."""


def small_model(name: str) -> SmallModel:
    """The small model of a name. Raises `NoModel`."""
    if name not in MODELS:
        hint = did_you_mean(name, sorted(MODELS))
        raise NoModel(f"no small model is called {name!r}.{hint} There are: {', '.join(MODELS)}")
    return MODELS[name]
