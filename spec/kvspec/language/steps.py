"""One step of a scenario: exactly one verb with its arguments, and what must come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kvspec.errors import ErrorKind
from kvspec.language.messages import at, check, describe, keys_of, unknown_key
from kvspec.language.nodes import Items, Key, Node, Scalar, Table, plain
from kvspec.language.problems import Problem, listed, shown
from kvspec.language.slips import strange_space, without_colon
from kvspec.nearest import nearest
from kvspec.ops import VERBS, Operation
from kvspec.scenario import (
    UNSET,
    ClearedExpect,
    Expect,
    Ints,
    LevelExpect,
    ManagerStatsExpect,
    Position,
    RemovedExpect,
    StatsExpect,
    Step,
    StoredExpect,
    Texts,
)
from kvspec.words.terms import meant_word

BESIDE = ("returns", "raises", "expect", "note")
"""The keys that a step may have beside its verb."""

_PLACES_DEPTH = 3

RETURNS: dict[str, Any] = {
    "create": int,
    "resume": bool,
    "resize": bool,
    "enter_decode": bool,
    "admit_generation": bool,
    "prefetch": bool,
    "set_beam_width": bool,
    "acknowledge": bool,
    "is_sparse": bool,
    "page_index_scale": int,
    "add": int,
    "publish": Ints,
    "resize_batch": Annotated[tuple[bool | None, ...], Field(strict=False)],
    "dense_offsets": Mapping[str, Mapping[str, Texts]],
    "iterate": Mapping[str, Literal["ran", "waiting", "refused"]],
    "stats": Mapping[str, Any],
}
"""What the verbs that return something return, as YAML writes it. The others return nothing."""

_EVENTS: dict[str, type] = {"stored": StoredExpect, "removed": RemovedExpect, "level": LevelExpect, "cleared": ClearedExpect}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A step and the tree that it was read from. ``args``: where its arguments are within the tree.

    ``bare``: the field that the whole argument fills, if it is written bare.
    """

    step: Step
    node: Node
    verb: str
    bare: str | None

    def where(self, field: str) -> tuple[Key, ...]:
        """The path of the argument with this YAML name; of the verb where it is left out."""
        if self.bare is not None or not isinstance(self.node, Table):
            return (self.verb,)
        return (self.verb, field)


def parse_step(path: Path, node: Node, number: int) -> Parsed | list[Problem]:
    """The step that a tree says, or what is wrong with it."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        node = Table({node.value: Scalar(None, "", node.span)}, {node.value: node.span}, node.span)
    if not isinstance(node, Table):
        got = shown(plain(node))
        return [Problem(at(path, node), f"a step is {got}", "a mapping with one verb, such as resume: <request>")]
    verb = _verb(path, node)
    if isinstance(verb, Problem):
        return [verb]
    problems: list[Problem] = []
    op, bare = _operation(path, node, verb, problems)
    returns, raises = _outcome(path, node, verb, problems)
    expect, note = _expect(path, node, problems), _note(path, node, problems)
    if problems or op is None:
        return problems
    span = node.span
    positions: dict[tuple[str, ...], Position] = {}
    for key in ("returns", "raises"):
        if key in node.entries:
            positions[(key,)] = at(path, node, (key,))
    if "expect" in node.entries:
        _collect_positions(path, node.entries["expect"], (), positions)
    position = Position(path, span.line, span.column)
    step = Step(number, op, returns, raises, expect, note, position, span.last_line, positions)
    return Parsed(step, node, verb, bare)


def _verb(path: Path, node: Table) -> str | Problem:
    keys = [key for key in node.entries if key not in BESIDE]
    verbs = [key for key in keys if key in VERBS]
    for key in keys:
        if key not in VERBS:
            where = at(path, node, (key,), key=True)
            if verbs:
                return _unknown_beside(where, key, verbs[0])
            if (strange := strange_space(key)) is not None:
                return Problem(replace(where, column=where.column + strange[0]), strange[1], "a space")
            meant = without_colon(key)
            if meant is not None:
                return Problem(where, f"no colon after {meant.partition(':')[0]!r}", f"'{meant}'")
            if isinstance(value := node.entries[key], Scalar) and value.value in VERBS:
                return Problem(
                    where, f"unknown verb {key!r}", f"the verb as the key, with its arguments after it: {value.value}: ..."
                )
            near = meant_word(key, VERBS) or nearest(key, VERBS)
            return Problem(where, f"unknown verb {key!r}", None if near else f"one of {listed(VERBS, 'or')}", near)
    if not verbs:
        first = next(iter(node.entries), "")
        if first:
            expected = f"{first!r} without a dash, below the verb of the step before"
            return Problem(at(path, node), f"a step has no verb, only {listed(node.entries)}", expected)
        return Problem(at(path, node), "a step has no verb", "exactly one")
    if len(verbs) > 1:
        second = at(path, node, (verbs[1],), key=True)
        return Problem(second, f"a step has {len(verbs)} verbs, {listed(verbs)}", "exactly one")
    return verbs[0]


def _unknown_beside(where: Position, key: str, verb: str) -> Problem:
    """The problem of a key beside a verb that does not belong there."""
    said = f"unknown key {key!r} in a step"
    keys = keys_of(VERBS[verb])
    if key in keys:
        further = ", or under expect" if key in keys_of(Expect) else ""
        return Problem(where, said, f"it among the arguments of {verb}, in their braces or two columns further in{further}")
    if key in keys_of(Expect):
        return Problem(where, said, "it under expect")
    return Problem(where, said, listed(BESIDE, "or"), meant_word(key, BESIDE) or nearest(key, [*BESIDE, *VERBS]))


def _operation(path: Path, node: Table, verb: str, problems: list[Problem]) -> tuple[Operation | None, str | None]:
    model = VERBS[verb]
    args = node.entries[verb]
    bare: str | None = None
    if isinstance(args, Scalar) and args.value is None:
        # `- sync:` and `- clear_reusable` have nothing to say.
        args = Table({}, {}, node.keys[verb])
    elif not isinstance(args, Table) and model.bare is not None and isinstance(args, Scalar):
        bare = model.model_fields[model.bare].alias or model.bare
        if isinstance(args.value, str) and " " in args.value.strip():
            problems.append(Problem(at(path, args), f"{verb} is {shown(args.value)}", _arguments(model)))
            return None, None
        args = Table({bare: args}, {bare: args.span}, args.span)
    elif not isinstance(args, Table):
        expected = _arguments(model)
        problems.append(Problem(at(path, args), f"{verb} is {shown(plain(args))}", expected))
        return None, None
    op, found = check(path, args, model, verb)
    if found and all("needs" in problem.message for problem in found) and not args.entries:
        found = [Problem(at(path, node, (verb,), key=True), problem.message) for problem in found]
    problems.extend(found)
    if op is not None and verb == "record_read" and (op.batch is None) == (op.request is None):
        problems.append(Problem(at(path, node, (verb,), key=True), "record_read needs either 'batch' or 'request'"))
    return op, bare


def _arguments(model: type[BaseModel]) -> str:
    """What a verb takes: the keys that it needs, and those that may be left out."""
    needed = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    others = [key for key in keys_of(model) if key not in needed]
    if not needed and not others:
        return "no argument"
    parts = [listed(needed)] if needed else []
    if others:
        parts.append(f"optionally {listed(others)}" if needed else f"any of {listed(others)}")
    return f"a mapping with {'; '.join(parts)}"


def _outcome(path: Path, node: Table, verb: str, problems: list[Problem]) -> tuple[Any, ErrorKind | None]:
    returns: Any = UNSET
    raises: ErrorKind | None = None
    if "returns" in node.entries and "raises" in node.entries:
        problems.append(
            Problem(at(path, node, ("raises",), key=True), "a step has both returns and raises", "at most one of them")
        )
        return returns, raises
    if "returns" in node.entries:
        tree = node.entries["returns"]
        returns = plain(tree)
        wanted = RETURNS.get(verb)
        if wanted is None:
            if returns is not None:
                problems.append(Problem(at(path, tree), f"{verb} returns nothing, not {shown(returns)}"))
        elif verb == "stats":
            problems.extend(_check_stats(path, tree, "returns"))
        else:
            problems.extend(check(path, tree, wanted, "returns")[1])
    if "raises" in node.entries:
        tree = node.entries["raises"]
        kinds = [kind.value for kind in ErrorKind]
        text = plain(tree)
        if text in kinds:
            raises = ErrorKind(text)
        else:
            hint = nearest(text, kinds) if isinstance(text, str) else None
            problems.append(Problem(at(path, tree), f"raises is {shown(text)}", describe(ErrorKind), hint))
    return returns, raises


def _expect(path: Path, node: Table, problems: list[Problem]) -> Expect:
    tree = node.entries.get("expect")
    if tree is None:
        return Expect()
    if not isinstance(tree, Table):
        problems.append(Problem(at(path, tree), f"expect is {shown(plain(tree))}", "a mapping of expectations"))
        return Expect()
    found: list[Problem] = []
    for key, value in tree.entries.items():
        if isinstance(value, Scalar) and value.value is None:
            found.append(Problem(at(path, value), f"{key} is null", "what must hold"))
        elif key in Expect.model_fields and key != "events" and isinstance(value, Table | Items) and not plain(value):
            found.append(Problem(at(path, value), f"{key} is empty: it could not fail", "at least one entry"))
        elif key in ("same_page", "different_page") and isinstance(value, Items) and len(value.items) == 1:
            found.append(Problem(at(path, value), f"{key} names one page: it could not fail", "at least two"))
    events = tree.entries.get("events")
    rest = tree
    if isinstance(events, Items):
        # Each event is checked as what its key says, for one message instead of one per kind of event.
        for event in events.items:
            found.extend(_check_event(path, event))
        if found:
            rest = Table({key: value for key, value in tree.entries.items() if key != "events"}, tree.keys, tree.span)
    expect, more = check(path, rest, Expect, "expect")
    found.extend(more)
    if (stats := tree.entries.get("stats")) is not None:
        found.extend(_check_stats(path, stats, "stats"))
    problems.extend(found)
    return Expect() if expect is None else expect


def _check_event(path: Path, event: Node) -> list[Problem]:
    kinds = [kind for kind in _EVENTS if isinstance(event, Table) and kind in event.entries]
    if len(kinds) != 1:
        if isinstance(event, Table) and not kinds:
            for key in event.entries:
                return [unknown_key(at(path, event, (key,), key=True), key, "events", list(_EVENTS))]
        what = f"has {listed(kinds)}" if kinds else f"is {shown(plain(event))}"
        return [Problem(at(path, event), f"an event {what}", "a mapping with one of stored, removed, level or cleared")]
    return check(path, event, _EVENTS[kinds[0]], kinds[0])[1]


def _check_stats(path: Path, tree: Node, name: str) -> list[Problem]:
    if not isinstance(tree, Table):
        return [Problem(at(path, tree), f"{name} is {shown(plain(tree))}", "a mapping of groups, and manager, to counters")]
    found: list[Problem] = []
    for key, value in tree.entries.items():
        found.extend(check(path, value, ManagerStatsExpect if key == "manager" else StatsExpect, f"{name}.{key}")[1])
    return found


def _note(path: Path, node: Table, problems: list[Problem]) -> str | None:
    tree = node.entries.get("note")
    if tree is None:
        return None
    note, found = check(path, tree, str, "note")
    problems.extend(found)
    return note if isinstance(note, str) else None


def _collect_positions(path: Path, node: Node, where: tuple[str, ...], positions: dict[tuple[str, ...], Position]) -> None:
    if len(where) == _PLACES_DEPTH:
        return
    match node:
        case Table(entries=entries):
            for key, value in entries.items():
                positions[(*where, key)] = at(path, node, (key,), key=True)
                _collect_positions(path, value, (*where, key), positions)
        case Items(items=items):
            for number, value in enumerate(items):
                positions[(*where, str(number))] = at(path, value)
                _collect_positions(path, value, (*where, str(number)), positions)
        case _:
            pass
