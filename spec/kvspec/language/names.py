"""Names in a scenario: what each step introduces, and whether what it speaks of exists by then.

A step that says ``raises`` may name what does not exist: that is its point, and the systems get to see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kvspec.config import Level, ManagerConfig
from kvspec.language.expectations import check_expectations
from kvspec.language.known import Known, reference_problem
from kvspec.language.messages import at
from kvspec.language.nodes import Key, Node, Scalar, Table
from kvspec.language.problems import Problem, one_of
from kvspec.language.steps import Parsed
from kvspec.nearest import nearest
from kvspec.ops import (
    UNLABELLED,
    Acknowledge,
    DenseOffsets,
    Evict,
    Fetch,
    IsSparse,
    Iterate,
    Offload,
    Operation,
    PageIndexScale,
    Prefetch,
    ReadPage,
    ReadTable,
    Scheduled,
    SeedPrefix,
    TakeSlots,
    TakeSnapshot,
    Write,
)
from kvspec.refs import RefError, manager_level, one_group, pool_of

_BAD_NAME = re.compile(r"[.:\s]")

INTRODUCES: dict[str, tuple[str, str]] = {
    "create": ("request", "request"),
    "batch": ("name", "batch"),
    "snapshot": ("as", "snapshot"),
    "take_slots": ("as", "slots"),
    "read_page": ("as", "read"),
    "read_table": ("as", "table read"),
    "replay": ("as", "table read"),
    "fetch": ("as", "fetch"),
    "gate": ("as", "gate"),
    "iterate": ("as", "table read"),
    "end_capture": ("as", "graph"),
}
"""For each verb that introduces a name: its argument, and the kind of thing that it names."""

_USES: dict[str, str] = {
    "request": "request",
    "requests": "request",
    "batch": "batch",
    "stream": "stream",
    "snapshot": "snapshot",
    "graph": "graph",
    "select": "request",
}
"""The arguments that name something of a kind, whatever the verb."""

_USES_LABEL = {"open": "gate", "give_slots": "slots"}
"""The verbs whose ``as`` names something that an earlier step introduced."""


def check_names(
    path: Path, node: Node, manager: ManagerConfig, streams: Sequence[str], parsed: Sequence[Parsed | Node]
) -> Iterator[Problem]:
    """Everything that is wrong with the names of a scenario, step by step.

    :param parsed: the steps, or the bare tree of a step that is wrong in itself; names are taken from it where
        they can be, so that one mistake is reported once.
    """
    known = Known.at_start(path, manager)
    yield from _check_layers(known, node)
    yield from _check_streams(known, node, streams)
    for one in parsed:
        if not isinstance(one, Parsed):
            _introduce_loosely(known, one)
            continue
        yield from _check_arguments(known, one)
        yield from _introduce(known, one)
        yield from check_expectations(known, one)


def _check_layers(known: Known, node: Node) -> Iterable[Problem]:
    for number, layer in enumerate(known.manager.layers):
        yield from _well_formed(known, "layer", layer.name, node, ("manager", "layers", number, "name"))
        if layer.name in ("manager", "tokens") and layer.name in known.groups:
            where = at(known.path, node, ("manager", "layers", number, "name"))
            yield Problem(where, f"a layer group cannot be called {layer.name!r}: expectations use that word for something else")


def _check_streams(known: Known, node: Node, streams: Sequence[str]) -> Iterable[Problem]:
    known.introduce("stream", "exec")
    seen: set[str] = set()
    for number, stream in enumerate(streams):
        where = ("streams", number)
        yield from _well_formed(known, "stream", stream, node, where)
        if stream in seen:
            yield Problem(at(known.path, node, where), f"the stream {stream!r} stands here twice")
        if stream == "default":
            yield Problem(at(known.path, node, where), "a stream cannot be called 'default'")
        seen.add(stream)
        known.introduce("stream", stream)


def _well_formed(known: Known, kind: str, name: str, node: Node, where: tuple[Key, ...]) -> Iterable[Problem]:
    found = _BAD_NAME.search(name)
    if not name or name == "-" or found:
        has = f"contains {found.group()!r}" if found else f"is {name!r}"
        text = f"the name {name!r} of a {kind} {has}" if found else f"the name of a {kind} {has}"
        yield Problem(at(known.path, node, where), text, "a name without dots, colons and spaces")


def _introduce(known: Known, parsed: Parsed) -> Iterable[Problem]:
    if parsed.verb not in INTRODUCES or getattr(parsed.step.op, "as_", None) == UNLABELLED:
        return
    argument, kind = INTRODUCES[parsed.verb]
    name = _argument(parsed.step.op, argument)
    if not isinstance(name, str):  # the label of an iteration's read may be left out
        return
    yield from _well_formed(known, kind, name, parsed.node, parsed.where(argument))
    if kind == "snapshot" and name == "latest":
        yield Problem(
            at(known.path, parsed.node, parsed.where(argument)),
            "a snapshot cannot be called 'latest': acknowledge uses that word",
        )
    if parsed.step.raises is None:
        known.introduce(kind, name)


def _introduce_loosely(known: Known, node: Node) -> None:
    """What a step would introduce that is wrong in some way, so that what follows is not wrong as well."""
    for word, value in node.entries.items() if isinstance(node, Table) else ():
        if isinstance(value, Scalar):
            known.introduce("request", value.text or word.partition(":")[2].strip())
        for key, name in value.entries.items() if isinstance(value, Table) else ():
            written, _, stuck = key.partition(":")  # the name may stick to the colon
            for argument, kind in INTRODUCES.values():
                if argument == written and isinstance(name, Scalar):
                    known.introduce(kind, stuck.strip() or name.text)


def _check_arguments(known: Known, parsed: Parsed) -> Iterable[Problem]:
    op = parsed.step.op
    if parsed.step.raises is not None:
        return
    introduced = INTRODUCES.get(parsed.verb, ("", ""))[0]
    for argument, kind in _USES.items():
        if argument in op.model_fields_set and argument != introduced:
            yield from _check_uses(known, parsed, argument, kind)
    if parsed.verb in _USES_LABEL:
        yield from _check_uses(known, parsed, "as", _USES_LABEL[parsed.verb])
    if isinstance(op, Acknowledge) and op.version != "latest":
        yield from _check_uses(known, parsed, "version", "snapshot")
    yield from _check_groups(known, parsed)
    yield from _check_buffers(known, parsed)


def _check_uses(known: Known, parsed: Parsed, argument: str, kind: str) -> Iterable[Problem]:
    value = _argument(parsed.step.op, argument)
    if isinstance(value, Mapping):
        for name in value:
            where = (*parsed.where(argument), name)
            if problem := known.unknown(kind, name, parsed.node, where, key=True):
                yield problem
        return
    names = value if isinstance(value, tuple) else (value,)
    for number, name in enumerate(names):
        where = (*parsed.where(argument), number) if isinstance(value, tuple) else parsed.where(argument)
        if isinstance(name, Scheduled):
            name, where = name.request, (*where, "request")
        if isinstance(name, str) and (problem := known.unknown(kind, name, parsed.node, where)):
            yield problem


def _check_groups(known: Known, parsed: Parsed) -> Iterable[Problem]:
    op = parsed.step.op
    where = parsed.where("level")
    try:
        if isinstance(op, Prefetch | SeedPrefix | TakeSlots | Evict):
            manager_level(op.level.value, known.pools)
        if isinstance(op, TakeSlots | Evict):
            where = parsed.where("group")
            pool_of(Level.of(op.level.value), op.group, known.pools)
        if isinstance(op, TakeSnapshot | ReadPage | ReadTable):
            where = parsed.where("group")
            one_group(op.group, known.groups)
        if isinstance(op, Iterate) and op.group is not None:
            where = parsed.where("group")
            one_group(op.group, known.groups)
        for number, group in enumerate((op.groups or ()) if isinstance(op, Offload | Write | SeedPrefix) else ()):
            where = (*parsed.where("groups"), number)
            one_group(group, known.groups)
    except RefError as error:
        if where == parsed.where("group") and _argument(op, "group") is None:
            yield Problem(at(known.path, parsed.node, (parsed.verb,), key=True), f"{parsed.verb} {error}")
        else:
            yield reference_problem(known, error, parsed.node, where)


def _check_buffers(known: Known, parsed: Parsed) -> Iterable[Problem]:
    op = parsed.step.op
    if not isinstance(op, IsSparse | PageIndexScale | DenseOffsets | Iterate | Fetch):
        return
    layers = {layer.name: [buffer.role for buffer in layer.buffers] for layer in known.manager.layers}
    named: list[tuple[tuple[Key, ...], str]]
    if isinstance(op, DenseOffsets | Iterate):
        named = [((*parsed.where("layers"), number), name) for number, name in enumerate(op.layers or ())]
    elif isinstance(op, Fetch):
        named = [(parsed.where("layer"), op.layer)]
    else:
        named = [(parsed.where("layer"), op.layer)]
        if op.layer in layers and op.role not in layers[op.layer]:
            roles = layers[op.layer]
            where = at(known.path, parsed.node, parsed.where("role"))
            yield Problem(where, f"the layer {op.layer!r} has no buffer {op.role!r}", one_of(roles), nearest(op.role, roles))
    for where_layer, name in named:
        if name not in layers:
            where = at(known.path, parsed.node, where_layer)
            yield Problem(where, f"unknown layer {name!r}", one_of(list(layers)), nearest(name, layers))


def _argument(op: Operation, name: str) -> object:
    return getattr(op, {"as": "as_"}.get(name, name), None)
