"""Every single change of an observation, one at a time, made by walking its dataclass fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum, IntEnum
from typing import Any

from kvspec.config import Level
from kvspec.observation import Order, PageRef, SnapshotView, TableEntries
from kvspec.payload import Content

Path = tuple[str, ...]


def tamperings(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every tampered copy of a value, with where it was tampered."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            own = getattr(value, field.name)
            made = _special(value, field.name, own)
            if made is None:
                made = list(tamperings(own, (_name(value, field.name),)))
            for where, new in made:
                yield (*path, *where), replace(value, **{field.name: new})
        if isinstance(value, SnapshotView):
            yield from (((*path, where), new) for where, new in _of_other_length(value))
        if isinstance(value, TableEntries):
            yield (*path, "a row more"), _with_a_row_more(value)
    elif isinstance(value, Mapping):
        yield (*path, "one more"), {**value, _more(value): _any(value)}
        for key, own in value.items():
            yield (*path, str(key), "gone"), {k: v for k, v in value.items() if k != key}
            for where, new in tamperings(own, (*path, str(key))):
                yield where, {**value, key: new}
    elif isinstance(value, frozenset):
        for one in sorted(value, key=str):
            yield (*path, f"without {one}"), value - {one}
            for where, new in tamperings(one, (*path, str(one))):
                yield where, value - {one} | {new}
        yield (*path, "one more"), value | {_like(value)}
    elif isinstance(value, bytes):
        yield (*path, "first byte"), bytes([value[0] ^ 1]) + value[1:]
        yield (*path, "last byte"), value[:-1] + bytes([value[-1] ^ 1])
        yield (*path, "shorter"), value[:-1]
        yield (*path, "empty"), b""
        yield (*path, "none"), None
    elif isinstance(value, tuple):
        if value:
            yield (*path, "last gone"), value[:-1]
        yield (*path, "one more"), (*value, value[-1] if value else 77)
        if value != value[::-1] and not isinstance(value[0], Order):
            yield (*path, "reversed"), value[::-1]
        for number, own in enumerate(value):
            for where, new in tamperings(own, (*path, str(number))):
                yield where, (*value[:number], new, *value[number + 1 :])
    else:
        yield from ((path, new) for new in _leaf(value))


def _of_other_length(view: SnapshotView) -> Iterator[tuple[str, SnapshotView]]:
    """A block more, and one less, in all that is said of blocks: what is said agrees with itself."""
    longer = replace(view, indices=(*view.indices, -1), levels=(*view.levels, None), ready=(*view.ready, None))
    yield "a block more", longer
    if view.indices:
        yield "a block less", replace(view, indices=view.indices[:-1], levels=view.levels[:-1], ready=view.ready[:-1])


def _with_a_row_more(entries: TableEntries) -> TableEntries:
    """An empty row, in every table."""
    blank = (-1,) * len(entries.page_table[0])
    levels = None if entries.page_level is None else (*entries.page_level, blank)
    return TableEntries((*entries.page_table, blank), (*entries.num_blocks, 0), levels)


def _name(owner: Any, field: str) -> str:
    return f"{type(owner).__name__}.{field}"


def _special(owner: Any, field: str, own: Any) -> list[tuple[Path, Any]] | None:
    """Fields in which not every change is a mistake: only those that are."""
    here = (_name(owner, field),)
    if isinstance(owner, Order) and field == "after":
        # To run behind more, or not to say behind what, is no mistake.
        made: list[tuple[Path, Any]] = []
        for stream, number in (own or {}).items():
            made.append(((*here, stream, "gone"), {s: n for s, n in own.items() if s != stream}))
            made.append(((*here, stream, "earlier"), {**own, stream: number - 1}))
        return made
    if field == "payload" and own is None:
        return []
    if field == "pages":
        # The order of pages means nothing, and what never was written may hold anything.
        made = [((*here, str(n), "gone"), (*own[:n], *own[n + 1 :])) for n in range(len(own))]
        made += [((*here, str(n), "twice"), (*own, own[n])) for n in range(len(own))]
        for n, page in enumerate(own):
            for where, new in tamperings(page, (*here, str(n))):
                made.append((where, (*own[:n], new, *own[n + 1 :])))
        return made
    if field == "tree":
        return [((*here, "gone"), own[:-1]), ((*here, "twice"), (*own, own[-1]))] + [
            (where, (new, *own[1:])) for where, new in tamperings(own[0], here)
        ]
    return None


def _leaf(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case Enum():
            return [other for other in type(value) if other is not value][:2] + ([None] if isinstance(value, IntEnum) else [])
        case int():
            return [value + 1, value - 1, value + 100]
        case str():
            return [value + "x"]
        case None:
            return [1, "x", Level.GPU]
        case Content():
            return [Content("nobody", value.group, value.block), None]
    raise AssertionError(f"no way to tamper with {value!r}")


def _more(mapping: Mapping[Any, Any]) -> Any:
    key = next(iter(mapping), "x")
    if isinstance(key, tuple):
        return (key[0], "another")
    return "another"


def _any(mapping: Mapping[Any, Any]) -> Any:
    return next(iter(mapping.values()), 1)


def _like(value: frozenset[Any]) -> Any:
    one = next(iter(value), "another")
    return replace(one, request="another") if isinstance(one, PageRef) else "another"
