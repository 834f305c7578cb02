"""Pydantic's errors in the language's own words: one problem a field, where the field stands."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kvspec.config import ConfigError, Model
from kvspec.language.nodes import Items, Key, Node, Scalar, Table, find, plain
from kvspec.language.problems import Problem, listed, shown
from kvspec.language.slips import strange_space
from kvspec.nearest import nearest
from kvspec.scenario import Expect, Position
from kvspec.words.expectations import EXPECTATIONS
from kvspec.words.terms import meant_word

MAX_PROBLEMS = 100
"""How many problems of one mapping, or of the steps of one document, are looked at."""
MAX_LISTED = 10
"""How many valid names a message lists beside the nearest one."""

_SIMPLE: dict[Any, list[str]] = {
    int: ["a whole number"],
    bool: ["true", "false"],
    float: ["a number"],
    str: ["text"],
    type(None): ["null"],
}
_COUNTED = ("a whole number", "a number", "a mapping")
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def check(path: Path, node: Node, wanted: Any, name: str) -> tuple[Any, list[Problem]]:
    """Validate a tree against a pydantic model or a plain annotation.

    :param name: what the tree is called in messages.
    :returns: the validated value, or ``None`` and the problems.
    """
    value = plain(node)
    try:
        if _is_model(wanted):
            return wanted.model_validate(value), []
        return _adapter(wanted).validate_python(value), []
    except ValidationError as error:
        return None, _problems(path, node, wanted, name, error)


def _is_model(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, BaseModel)


@lru_cache(maxsize=64)
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config={"strict": True})


def describe(annotation: Any) -> str:
    """What a value of this type is, as a message calls it."""
    return listed(dict.fromkeys(_alternatives(annotation)), "or")


def _alternatives(annotation: Any) -> list[str]:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _alternatives(args[0])
    if origin is Literal:
        # The marker of a key left out is not something to write.
        return [_quoted(arg) for arg in args if arg != "unset"]
    if origin in (Union, types.UnionType):
        return [alternative for arg in args for alternative in _alternatives(arg)]
    if origin is tuple:
        if args[0] is Any:
            return ["a list"]
        return [f"a list of {listed(dict.fromkeys(map(_plural, _alternatives(args[0]))), 'or')}"]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [_quoted(member.value) for member in annotation]
    return _SIMPLE.get(annotation, ["a mapping"])


def _plural(text: str) -> str:
    return f"{text.removeprefix('a ')}s" if text in _COUNTED else re.sub("^a list", "lists", text)


def at(path: Path, node: Node, where: tuple[Key, ...] = (), *, key: bool = False) -> Position:
    """The position of what stands at ``where`` in a tree; of its key with ``key``."""
    span = find(node, where, key=key)
    return Position(path, span.line, span.column)


def named(where: tuple[Key, ...], name: str) -> str:
    """What a message calls the value at ``where`` in the tree called ``name``: ``manager.layers[0]``, ``capacity``."""
    text = name if not where or isinstance(where[0], int) else ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _quoted(value: object) -> str:
    return "'-'" if value == "-" else str(value)


def _problems(path: Path, node: Node, wanted: Any, name: str, error: ValidationError) -> list[Problem]:
    found: dict[tuple[Key, ...], Problem] = {}
    for detail in error.errors(include_url=False, include_input=False)[:MAX_PROBLEMS]:
        where = _existing(node, detail["loc"])
        if detail["type"] == "too_short" and _value(node, where):
            continue  # pydantic does not count the entries that are wrong themselves
        if detail["type"] in ("missing", "extra_forbidden"):
            # The last part of such a location is a key, and several may be missing in one mapping.
            where = (*_existing(node, detail["loc"][:-1]), str(detail["loc"][-1]))
        found.setdefault(where, _problem(path, node, wanted, name, where, detail))
    # Where one member of a union was wrong further inside, what was wrong with the others says nothing.
    inner = {where[:length] for where in found for length in range(len(where))}
    # A key that is missing because it is misspelt is one problem, not two.
    meant = {(*where[:-1], problem.hint) for where, problem in found.items() if problem.message.startswith("unknown key")}
    # Nor is one whose colon has no space after it.
    meant |= {(*where[:-1], str(where[-1]).partition(":")[0]) for where in found if where and ":" in str(where[-1])}
    return [problem for where, problem in found.items() if where not in inner and where not in meant]


def _problem(path: Path, node: Node, wanted: Any, name: str, where: tuple[Key, ...], detail: ErrorDetails) -> Problem:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        owner = where[:-1]
        return Problem(at(path, node, owner, key=True), f"{named(owner, name)} needs {where[-1]!r}")
    if kind == "extra_forbidden":
        owner = where[:-1]
        key = str(where[-1])
        keys = keys_of(_annotation(wanted, owner))
        return unknown_key(at(path, node, where, key=True), key, named(owner, name), keys)
    if kind == "value_error":
        cause = context["error"]
        below = cause.path if isinstance(cause, ConfigError) else ()
        return Problem(at(path, node, (*where, *below)), str(cause))
    # The keys of a model are words of the language; those of a plain mapping need to be told what they are keys of.
    subject = named(where if _is_model(wanted) else (name, *where), name)
    value = _value(node, where)
    got = f"{subject} is {shown(value)}"
    said = describe(_annotation(wanted, where))
    if quoted := _wants_quotes(node, where, said):
        return Problem(at(path, node, where), f"{got}, as YAML reads {quoted} without quotes", f"{quoted!r}{_QUOTES}")
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        bound = context[key]
        return Problem(at(path, node, where), got, f"{words} {bound if isinstance(bound, int) else format(bound, 'g')}")
    if kind in ("too_short", "string_too_short"):
        return Problem(at(path, node, where), f"{subject} is empty")
    annotation = _annotation(wanted, where)
    hint = nearest(value, _choices(annotation)) if isinstance(value, str) else None
    if kind in ("model_type", "mapping_type", "dict_type", "tuple_type", "list_type"):
        said = _with_example(said, wanted, where)
    return Problem(at(path, node, where), got, said, hint)


def once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems, of names that need quotes the first of each alone: whoever writes one name so writes it so everywhere."""
    said: set[str] = set()
    found = []
    for problem in problems:
        if problem.expected is not None and problem.expected.endswith(_QUOTES):
            if problem.expected in said:
                continue
            said.add(problem.expected)
        found.append(problem)
    return tuple(found)


_QUOTES = " in quotes, wherever it stands"


def _wants_quotes(node: Node, where: tuple[Key, ...], said: str) -> str | None:
    """What stands where text must be and YAML takes for something else: a name such as ``on`` or ``12``."""
    found: Any = node
    for part in where:
        found = found.entries[str(part)] if isinstance(found, Table) else found.items[int(part)]
    if where[:1] == ("rules",) or said != "text" or not isinstance(found, Scalar) or isinstance(found.value, str | None):
        return None
    return found.text


def _with_example(said: str, wanted: Any, where: tuple[Key, ...]) -> str:
    """What was expected, as somebody writes it who has written something of another form."""
    if wanted is Expect and where:
        word = EXPECTATIONS[str(where[0])]
        return f"{word.shape if len(where) == 1 else said}, such as {word.example}"
    path = ".".join(part if isinstance(part, str) else "#" for part in where)
    document = _is_model(wanted) and wanted.__name__ == "Document"
    return f"{said}, such as {_PARTS[path]}" if document and path in _PARTS else said


_BUFFER = "{role: key, bytes: 64}"
_LAYER = f"{{name: main, buffers: [{_BUFFER}]}}"
_PARTS = {
    "manager": f"{{tokens_per_block: 4, levels: [{{kind: gpu, slots: 4}}], layers: [{_LAYER}]}}",
    "manager.levels": "[{kind: gpu, slots: 4}, {kind: host, slots: 4}]",
    "manager.levels.#": "{kind: host, slots: 4}",
    "manager.layers": f"[{_LAYER}]",
    "manager.layers.#": _LAYER,
    "manager.layers.#.buffers": f"[{_BUFFER}]",
    "manager.layers.#.buffers.#": _BUFFER,
    "steps": "[{create: chat}, {resume: chat}]",
}
"""Of what is often written in another form, the form that is meant."""


def unknown_key(position: Position, key: str, owner: str, keys: list[str]) -> Problem:
    """The problem of a key that ``owner`` does not have."""
    word, colon, rest = key.partition(":")
    if (strange := strange_space(key)) is not None:
        return Problem(replace(position, column=position.column + strange[0]), strange[1], "a space")
    if colon and word in keys:
        return Problem(position, f"no space after the colon of {word!r}", f"'{word}: {rest}'")
    near = meant_word(key, keys) or nearest(key, keys)
    # A long list of keys says less than the one that was meant.
    expected = None if near is not None and len(keys) > MAX_LISTED else listed(keys, "or") or "no keys"
    return Problem(position, f"unknown key {key!r} in {owner}", expected, near)


def keys_of(model: Any) -> list[str]:
    """The keys that a model's mapping may have, as YAML spells them."""
    for option in _options(model):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return [field.alias or name for name, field in option.model_fields.items()]
    return []


def _existing(node: Node, location: tuple[int | str, ...]) -> tuple[Key, ...]:
    """A location without what is not in the tree: pydantic adds the names of the members of a union."""
    where: list[Key] = []
    for part in location:
        match node, part:
            case Table(entries=entries), str() if part in entries:
                node = entries[part]
            case Items(items=items), int() if part < len(items):
                node = items[part]
            case _:
                continue
        where.append(part)
    return tuple(where)


def _value(node: Node, where: tuple[Key, ...]) -> Any:
    for part in where:
        match node, part:
            case Table(entries=entries), str():
                node = entries[part]
            case Items(items=items), int():
                node = items[part]
            case _:
                raise AssertionError("the path was cut to what exists")
    return node.value if isinstance(node, Scalar) else plain(node)


def _options(annotation: Any) -> list[Any]:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _options(args[0])
    if origin in (Union, types.UnionType):
        # Most optional keys are left out rather than set to null; `null` is not worth a word there.
        return [option for arg in args for option in _options(arg)]
    return [annotation]


def _annotation(wanted: Any, where: tuple[Key, ...]) -> Any:
    """The annotation of the value at a path, without the ``None`` that stands for a key left out."""
    for part in where:
        for option in _options(wanted):
            inner = _inner(option, part)
            if inner is not None:
                wanted = inner
                break
    return wanted


def _inner(option: Any, part: Key) -> Any:
    origin, args = get_origin(option), get_args(option)
    if isinstance(part, int):
        return args[0] if origin is tuple else None
    if origin is not None and issubclass(origin, Mapping):
        return args[1]
    if isinstance(option, type) and issubclass(option, Model):
        for name, field in option.model_fields.items():
            if (field.alias or name) == part:
                return _field(field)
    return None


def _field(field: FieldInfo) -> Any:
    options = _options(field.annotation)
    if field.is_required() or type(None) not in options or field.default is not None:
        return field.annotation
    given = tuple(option for option in options if option is not type(None))
    return Union[given]  # noqa: UP007 - built at run time


def _choices(annotation: Any) -> list[str]:
    found: list[str] = []
    for option in _options(annotation):
        if get_origin(option) is Literal:
            found.extend(str(arg) for arg in get_args(option))
        elif isinstance(option, type) and issubclass(option, Enum):
            found.extend(str(member.value) for member in option)
    return found
