"""The names and references inside ``expect`` and ``returns``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from kvspec.config import LevelKind
from kvspec.language.known import Known, reference_problem
from kvspec.language.messages import at
from kvspec.language.nodes import Items, Key, Node, Table, plain
from kvspec.language.problems import Problem, listed, one_of, shown
from kvspec.language.steps import Parsed
from kvspec.nearest import nearest
from kvspec.ops import Span
from kvspec.refs import (
    GroupRef,
    RefError,
    batch_group,
    entry,
    level_group,
    one_group,
    page,
    pages,
    request_group,
    request_layer,
    work,
)
from kvspec.scenario import TREE_KEYS

_LEVELS = tuple(kind.value for kind in LevelKind)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A value inside the tree of a step."""

    known: Known
    node: Node
    where: tuple[Key, ...]
    key: bool = False

    def problem(self, message: str, expected: str | None = None, hint: str | None = None) -> Problem:
        return Problem(at(self.known.path, self.node, self.where, key=self.key), message, expected, hint)

    def name(self, kind: str, name: str) -> Iterator[Problem]:
        if problem := self.known.unknown(kind, name, self.node, self.where, key=self.key):
            yield problem

    def inside(self, *path: Key) -> _Spot:
        return _Spot(self.known, self.node, (*self.where, *path))


_Check = Callable[[_Spot, str], Iterable[Problem]]


def check_expectations(known: Known, parsed: Parsed) -> Iterator[Problem]:
    """What is wrong with the references of a step's expectations, and of the offsets that it returns."""
    if not isinstance(parsed.node, Table):
        return
    if "returns" in parsed.node.entries:
        yield from _check_returns(known, parsed)
    expect = parsed.node.entries.get("expect")
    for key, tree in expect.entries.items() if isinstance(expect, Table) else ():
        spot = _Spot(known, parsed.node, ("expect", key))
        if key in _KEYED and isinstance(tree, Table):
            for name in tree.entries:
                yield from _guarded(_KEYED[key], _Spot(known, parsed.node, ("expect", key, name), key=True), name)
        if key in _LISTED and isinstance(tree, Items):
            for number, text in enumerate(plain(tree)):
                yield from _guarded(_LISTED[key], spot.inside(number), text)
        yield from _inside(spot, key, tree)


def _guarded(check: _Check, spot: _Spot, text: str) -> Iterator[Problem]:
    try:
        yield from check(spot, text)
    except RefError as error:
        yield reference_problem(spot.known, error, spot.node, spot.where, key=spot.key)


def _request(spot: _Spot, text: str) -> Iterable[Problem]:
    return spot.name("request", text)


def _batch(spot: _Spot, text: str) -> Iterable[Problem]:
    return spot.name("batch", text)


def _group(spot: _Spot, text: str) -> Iterable[Problem]:
    one_group(text, spot.known.groups)
    return ()


def _owner_first(spot: _Spot, kind: str, text: str, resolve: Callable[[], GroupRef]) -> Iterator[Problem]:
    """Ask for the request or batch first: where the name is wrong, the rest says little."""
    name = text.split(".")[0]
    found = list(spot.name(kind, name)) if name else []
    yield from found
    if not found:
        resolve()


def _request_group(spot: _Spot, text: str) -> Iterable[Problem]:
    return _owner_first(spot, "request", text, lambda: request_group(text, spot.known.groups))


def _request_one_group(spot: _Spot, text: str) -> Iterable[Problem]:
    return _owner_first(spot, "request", text, lambda: request_group(text, spot.known.groups, single=True))


def _batch_group(spot: _Spot, text: str) -> Iterable[Problem]:
    return _owner_first(spot, "batch", text, lambda: batch_group(text, spot.known.groups))


def _batch_one_group(spot: _Spot, text: str) -> Iterable[Problem]:
    return _owner_first(spot, "batch", text, lambda: batch_group(text, spot.known.groups, single=True))


def _page(spot: _Spot, text: str) -> Iterator[Problem]:
    found = list(spot.name("request", text.split(".")[0])) if "." in text else []
    yield from found
    if not found:
        pages(text, spot.known.groups)


def _level_group(spot: _Spot, text: str) -> Iterable[Problem]:
    level_group(text, spot.known.pools)
    return ()


def _entry(spot: _Spot, text: str) -> Iterable[Problem]:
    named = entry(text)
    return spot.name("request", named[0]) if named is not None else ()


def _work(spot: _Spot, text: str) -> Iterator[Problem]:
    label = work(text, spot.known.groups, spot.known.pools)
    match label.kind:
        case "publish":
            yield from spot.name("batch", label.name)
        case "page":
            yield from spot.name("request", label.pages[0].request)
        case "read":
            reads = [*spot.known.of("read"), *spot.known.of("table read")]
            if label.name not in reads:
                there = one_of(reads) if reads else "a read_page, read_table or replay before this step"
                yield spot.problem(f"unknown read label {label.name!r}", there, nearest(label.name, reads))
        case "fetch":
            yield from spot.name("fetch", label.name)
        case "slot":
            pass


def _table_read(spot: _Spot, text: str) -> Iterable[Problem]:
    return spot.name("table read", text)


def _fetch_label(spot: _Spot, text: str) -> Iterable[Problem]:
    return spot.name("fetch", text)


def _request_layer(spot: _Spot, text: str) -> Iterator[Problem]:
    name = text.split(".")[0]
    found = list(spot.name("request", name)) if name else []
    yield from found
    if not found:
        request_layer(text, [layer.name for layer in spot.known.manager.layers])


def _snapshot(spot: _Spot, text: str) -> Iterable[Problem]:
    return spot.name("snapshot", text)


def _stats_key(spot: _Spot, text: str) -> Iterable[Problem]:
    return () if text == "manager" else _group(spot, text)


_KEYED: dict[str, _Check] = {
    "levels": _request_one_group,
    "owners": _page,
    "eligible": _request_group,
    "num_blocks": _batch_group,
    "table": _batch_one_group,
    "status": _request,
    "phase": _request,
    "history": _request,
    "capacity": _request,
    "row": _request,
    "committed": _request,
    "dirty": _request,
    "dirty_rows": _batch,
    "version": _request,
    "free": _level_group,
    "page_status": _page,
    "backing": _page,
    "copies": _page,
    "moved": _group,
    "page_level": _page,
    "version_since": _request,
    "level_table": _batch_one_group,
    "would_evict": _level_group,
    "snapshot": _snapshot,
    "stats": _stats_key,
    "staging": _batch,
    "payload": _page,
    "sees": _table_read,
    "fetched": _fetch_label,
    "resident": _request_layer,
    "reserved": _request_one_group,
}
"""What the keys of each expectation that is a mapping name."""

_LISTED: dict[str, _Check] = {"same_page": _page, "different_page": _page, "pending": _work, "done": _work}
"""What the entries of each expectation that is a list name."""


def _inside(spot: _Spot, key: str, tree: Node) -> Iterator[Problem]:
    """References in the values of an expectation."""
    value = plain(tree)
    match key:
        case "owners":
            for name, requests in value.items():
                for number, request in enumerate(requests):
                    yield from spot.inside(name, number).name("request", request)
        case "table" | "sees":
            for name, rows in value.items():
                yield from _rows(spot.inside(name), rows)
        case "fetched":
            for label, requests in value.items():
                for request in requests:
                    yield from _Spot(spot.known, spot.node, (*spot.where, label, request), key=True).name("request", request)
        case "version_since":
            for request, labels in value.items():
                for label in labels:
                    inner = _Spot(spot.known, spot.node, (*spot.where, request, label), key=True)
                    yield from inner.name("snapshot", label)
        case "snapshot":
            for label, parts in value.items():
                if parts.get("row") == "unset":
                    yield spot.inside(label, "row").problem("row is 'unset'", "a whole number or null")
        case "would_evict":
            for name, order in value.items():
                for number, item in enumerate(order):
                    if isinstance(item, str):
                        yield from _guarded(_one_page, spot.inside(name, number), item)
        case "tree":
            for number, block in enumerate(value):
                yield from _tree_entry(spot.inside(number), block)
        case "events":
            for number, event in enumerate(value):
                if "group" in event:
                    yield from _guarded(_group, spot.inside(number, "group"), event["group"])


def _one_page(spot: _Spot, text: str) -> Iterator[Problem]:
    found = list(_page(spot, text))
    yield from found
    if not found:
        page(text, spot.known.groups)


def _rows(spot: _Spot, rows: list[list[str]]) -> Iterator[Problem]:
    for number, row in enumerate(rows):
        for column, text in enumerate(row):
            yield from _guarded(_entry, spot.inside(number, column), text)


def _tree_entry(spot: _Spot, block: dict[str, object]) -> Iterator[Problem]:
    tokens = block.get("tokens")
    if "tokens" not in block:
        yield spot.problem("a tree entry needs 'tokens'")
    elif not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        yield spot.inside("tokens").problem(f"tokens is {shown(tokens)}", "a list of whole numbers")
    words = [*_LEVELS, "absent"]
    about = [name for name in TREE_KEYS if name not in spot.known.groups]
    for name, level in block.items():
        if name == "tokens":
            continue
        if name in about:
            yield from _of_tokens(spot, name, level)
            continue
        key = _Spot(spot.known, spot.node, (*spot.where, name), key=True)
        yield from _guarded(_group, key, name)
        if level not in words:
            hint = nearest(level, words) if isinstance(level, str) else None
            yield spot.inside(name).problem(f"{name} is {shown(level)}", listed(words, "or"), hint)


def _of_tokens(spot: _Spot, name: str, value: object) -> Iterator[Problem]:
    """What is wrong with the key or the spans of a tree entry."""
    if name == "key":
        if not isinstance(value, str) or not value:
            yield spot.inside(name).problem(f"key is {shown(value)}", "a text that is not empty (R2.7)")
        return
    for number, span in enumerate(value if isinstance(value, list) else [value]):
        try:
            Span.model_validate(span)
        except ValidationError:
            where = spot.inside(name, number) if isinstance(value, list) else spot.inside(name)
            yield where.problem(f"spans[{number}] is no span", "a mapping with start, end and key (R2.7)")


def _check_returns(known: Known, parsed: Parsed) -> Iterator[Problem]:
    spot = _Spot(known, parsed.node, ("returns",))
    value = parsed.step.returns
    if parsed.verb == "stats":
        for name in value:
            yield from _guarded(_stats_key, _Spot(known, parsed.node, ("returns", name), key=True), name)
    if parsed.verb == "iterate":
        for name in value:
            yield from _Spot(known, parsed.node, ("returns", name), key=True).name("request", name)
    if parsed.verb != "dense_offsets":
        return
    layers = [layer.name for layer in known.manager.layers]
    for layer, requests in value.items():
        here = _Spot(known, parsed.node, ("returns", layer), key=True)
        if layer not in layers:
            yield here.problem(f"unknown layer {layer!r}", one_of(layers), nearest(layer, layers))
        for request, offsets in requests.items():
            yield from _Spot(known, parsed.node, ("returns", layer, request), key=True).name("request", request)
            yield from _rows(spot.inside(layer, request), [offsets])
