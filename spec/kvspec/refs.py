"""References in scenarios: ``request.group``, ``request.group.block.beam``, ``level.group``, ``batch.group``.

Names contain no dots, so a reference is split at its dots. A group may be left out: where the manager has one
group it means that one, elsewhere every group, unless the caller asks for exactly one. These functions check
the shape of a reference and the names of groups and levels; whether a request, batch or label exists is the
caller's question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kvspec.config import LayerConfig, LayerKind, Level, ManagerConfig, alike, group_names
from kvspec.observation import PageRef

Pools: TypeAlias = Mapping[Level, tuple[tuple[str, ...], ...]]
"""For each level of a manager its pool groups, each as the names of the layer groups that it serves (R1.6)."""


class RefError(ValueError):
    """A reference that cannot be resolved.

    ``str()`` of it is one readable line. ``name``: the part that is wrong; ``choices``: what could stand there.
    """

    def __init__(self, message: str, name: str = "", choices: Sequence[str] = ()) -> None:
        """An error whose text is ``message``."""
        super().__init__(message)
        self.name = name
        self.choices = tuple(choices)


@dataclass(frozen=True, slots=True)
class GroupRef:
    """``request.group`` or ``batch.group``: an owner's name and the layer groups that are meant, in order."""

    owner: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A label of ``pending`` and ``done``. Exactly one of the fields after ``kind`` that belongs to it is set.

    ``publish``: ``name`` is the batch. ``read``, ``fetch``: ``name`` is the label. ``page``: ``pages``. ``slot``: ``pool``.
    """

    kind: Literal["publish", "page", "read", "fetch", "slot"]
    name: str = ""
    pages: tuple[PageRef, ...] = ()
    pool: tuple[Level, str] | None = None


def one_group(name: str | None, groups: Sequence[str]) -> str:
    """The layer group that the optional argument ``group`` means: the only one if it is left out.

    :raises RefError: unknown, or left out where there are several.
    """
    if name is None:
        if len(groups) == 1:
            return groups[0]
        raise RefError(f"needs a group: the manager has {_list(groups)}")
    return _group(name, groups)


def request_group(text: str, groups: Sequence[str], *, single: bool = False) -> GroupRef:
    """Resolve ``request.group``; with the group left out, every group is meant.

    :param single: refuse a missing group where the manager has several.
    :raises RefError: malformed, an unknown group, or (``single``) a group needed.
    """
    return _owner_group(text, groups, "request", single)


def batch_group(text: str, groups: Sequence[str], *, single: bool = False) -> GroupRef:
    """Resolve ``batch.group``, as `request_group` does."""
    return _owner_group(text, groups, "batch", single)


def request_layer(text: str, layers: Sequence[str]) -> tuple[str, str]:
    """Resolve ``request.layer``; the layer may be left out where there is one.

    :raises RefError: malformed, an unknown layer, or a layer needed.
    """
    name, dot, layer = text.partition(".")
    if not name or (dot and not layer) or "." in layer:
        raise RefError(f"expected request.layer, got {text!r}")
    if not dot and len(layers) > 1:
        raise RefError(f"{text!r} needs a layer: the manager has {_list(layers)}")
    if dot and layer not in layers:
        raise RefError(f"unknown layer {layer!r}: the manager has {_list(layers)}", layer, layers)
    return name, layer or layers[0]


def pages(text: str, groups: Sequence[str], *, single: bool = False) -> tuple[PageRef, ...]:
    """Resolve ``request.group.block`` or ``request.group.block.beam``; the group may be left out.

    :returns: one page reference per group that is meant, in the order of ``groups``.
    :raises RefError: malformed, an unknown group, a block or beam that is no number >= 0, or (``single``) a
        group needed.
    """
    parts = text.split(".")
    shape = f"expected request.group.block, got {text!r}"
    if len(parts) < 2 or not all(parts):
        raise RefError(shape)
    # A layer may be named by a number: where both readings are possible, the group's name wins.
    if parts[1] in groups and len(parts) > 2:
        chosen: tuple[str, ...] = (parts[1],)
        numbers = parts[2:]
    elif _is_number(parts[1]) and len(parts) <= 3:
        if single and len(groups) > 1:
            raise RefError(f"{text!r} needs a group: the manager has {_list(groups)}")
        chosen = tuple(groups)
        numbers = parts[1:]
    elif _is_number(parts[1]):
        raise RefError(shape)
    else:
        _group(parts[1], groups)
        raise RefError(f"{text!r} names no block: expected request.group.block")
    if len(numbers) > 2 or not all(_is_number(n) for n in numbers):
        raise RefError(shape)
    block, beam = int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else 0
    return tuple(PageRef(parts[0], group, block, beam) for group in chosen)


def page(text: str, groups: Sequence[str]) -> PageRef:
    """Resolve a reference to exactly one page, as `pages` with ``single``."""
    return pages(text, groups, single=True)[0]


def level_group(text: str, pools: Pools) -> tuple[Level, str]:
    """Resolve ``level.group``, or ``level`` alone where that level has one pool group.

    :returns: the level and the first layer group of the pool group, which is its key in an observation.
    :raises RefError: malformed, an unknown or absent level, an unknown group, or a group needed.
    """
    label, dot, group = text.partition(".")
    level = manager_level(label, pools)
    try:
        return level, pool_of(level, group if dot else None, pools)
    except RefError as error:
        if dot:
            raise
        raise RefError(f"{text!r} {error}") from None


def manager_level(label: str, pools: Pools) -> Level:
    """The level called ``label``, which the manager must have.

    :raises RefError: no level at all, or not one of this manager.
    """
    names = [level.label for level in Level]
    if label not in names:
        raise RefError(f"unknown level {label!r}: expected {_list(names, 'or')}", label, names)
    level = Level.of(label)
    if level not in pools:
        raise RefError(f"the manager has no {label} level: it has {_list([here.label for here in pools])}")
    return level


def pool_of(level: Level, group: str | None, pools: Pools) -> str:
    """The first layer group of the pool group that serves ``group`` at ``level``; ``None`` means the only one.

    :raises RefError: unknown, or left out where the level has several pool groups.
    """
    here = pools[level]
    if group is None:
        if len(here) == 1:
            return here[0][0]
        firsts = [pool[0] for pool in here]
        raise RefError(f"needs a group: the {level.label} level has the pool groups of {_list(firsts)}")
    for pool in here:
        if group in pool:
            return pool[0]
    _group(group, [name for pool in here for name in pool])
    raise AssertionError("every layer group has a pool group at every level")


def entry(text: str) -> tuple[str, int] | None:
    """A table entry: ``None`` for ``-``, else the request and the block of ``request.block``.

    :raises RefError: malformed.
    """
    if text == "-":
        return None
    request, dot, block = text.partition(".")
    if not (request and dot and _is_number(block)):
        raise RefError(f"expected '-' or request.block, got {text!r}")
    return request, int(block)


def work(text: str, groups: Sequence[str], pools: Pools) -> Work:
    """A label of device work: ``publish:<batch>``, ``page:<request.group.block>``, ``read:<label>``, ``fetch:<label>``,
    ``slot:<level.group>``.

    :raises RefError: malformed, or the part after the colon is.
    """
    kind, colon, rest = text.partition(":")
    kinds = ("publish", "page", "read", "fetch", "slot")
    if not colon or not rest:
        there = "publish:<batch>, page:<request.group.block>, read:<label>, fetch:<label> or slot:<level.group>"
        raise RefError(f"expected {there}, got {text!r}")
    match kind:
        case "publish" | "read" | "fetch":
            return Work(kind, name=rest)
        case "page":
            return Work(kind, pages=pages(rest, groups))
        case "slot":
            return Work(kind, pool=level_group(rest, pools))
    raise RefError(f"unknown kind of work {kind!r}: expected {_list(kinds, 'or')}", kind, kinds)


@dataclass(frozen=True, slots=True)
class Shape:
    """The page of a layer group: the slot bytes of its pools, largest first (R1.6)."""

    slots: tuple[int, ...]
    sparse: bool

    @property
    def page_bytes(self) -> int:
        """Bytes of the page over all pools."""
        return sum(self.slots)


def group_shapes(config: ManagerConfig) -> dict[str, Shape]:
    """The page of each layer group, in the order of the groups (R1.5, R1.6)."""
    members: dict[tuple[object, ...], list[LayerConfig]] = {}
    for layer in config.layers:
        members.setdefault((layer.kind, layer.sliding_window, layer.sink_tokens, layer.sparse), []).append(layer)
    shapes = {}
    for name, layers in zip(group_names(config), members.values(), strict=True):
        pools: dict[int, int] = {}
        for layer in layers:
            for buffer in layer.buffers:
                per_page = 1
                if layer.kind is LayerKind.ATTENTION:  # the size of a state does not depend on the page (R1.3)
                    per_page = config.tokens_per_block // (buffer.tokens_per_block or config.tokens_per_block)
                size = buffer.bytes * per_page
                pools[size] = pools.get(size, 0) + size
        shapes[name] = Shape(tuple(sorted(pools.values(), reverse=True)), layers[0].sparse)
    return shapes


def fetching_layers(config: ManagerConfig) -> list[tuple[str, str, int]]:
    """The layers that can be fetched (R15.1): each with its group and the units of a page (R15.11)."""
    found: list[tuple[str, str, int]] = []
    first: dict[tuple[object, ...], str] = {}
    for layer in config.layers:
        group = first.setdefault(alike(layer), layer.name)
        if layer.buffers[0].selected is not None:
            found.append((layer.name, group, config.tokens_per_block // (layer.buffers[0].unit or config.tokens_per_block)))
    return found


def pool_groups(config: ManagerConfig) -> Pools:
    """The pool groups of each level: by shape and sparsity on the GPU, by page size elsewhere (R1.6)."""
    shapes = group_shapes(config)
    pools: dict[Level, tuple[tuple[str, ...], ...]] = {}
    for level in (one.kind.level for one in config.levels):
        keyed: dict[object, list[str]] = {}
        for name, shape in shapes.items():
            keyed.setdefault(shape if level is Level.GPU else shape.page_bytes, []).append(name)
        pools[level] = tuple(tuple(names) for names in keyed.values())
    return pools


def _owner_group(text: str, groups: Sequence[str], owner: str, single: bool) -> GroupRef:
    name, dot, group = text.partition(".")
    if not name or (dot and not group) or "." in group:
        raise RefError(f"expected {owner}.group, got {text!r}")
    if dot:
        return GroupRef(name, (_group(group, groups),))
    if single and len(groups) > 1:
        raise RefError(f"{text!r} needs a group: the manager has {_list(groups)}")
    return GroupRef(name, tuple(groups))


def _group(name: str, groups: Sequence[str]) -> str:
    if name not in groups:
        raise RefError(f"unknown group {name!r}: the manager has {_list(groups)}", name, groups)
    return name


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _list(names: Sequence[str], word: str = "and") -> str:
    if len(names) > 12:
        return f"{', '.join(names[:10])} and {len(names) - 10} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
