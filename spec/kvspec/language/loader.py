"""Files to scenarios, or to everything that is wrong with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kvspec.collecting import seldom_collected
from kvspec.language.certain import check_values
from kvspec.language.document import Document
from kvspec.language.limits import check_memory
from kvspec.language.messages import MAX_PROBLEMS, at, check, once
from kvspec.language.names import check_names
from kvspec.language.nodes import Items, Node, Table, plain
from kvspec.language.problems import Problem, ScenarioFileError, shown
from kvspec.language.reader import MAX_FILE_BYTES, Refused, read_documents
from kvspec.language.steps import Parsed, parse_step
from kvspec.nearest import nearest
from kvspec.ops import UNLABELLED
from kvspec.rules import rule_ids
from kvspec.scenario import LANGUAGE_VERSION, Position, Scenario, Step

DEFAULT_MAX_POOL_BYTES = 1 << 30
"""How much memory a scenario may ask for, unless the command line says otherwise."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file holds: its scenarios if nothing is wrong with it, else problems alone, in the order of the file."""

    scenarios: tuple[Scenario, ...] = ()
    problems: tuple[Problem, ...] = ()


def load_file(path: Path | str, *, max_pool_bytes: int = DEFAULT_MAX_POOL_BYTES) -> list[Scenario]:
    """The scenarios of a YAML file, one per document.

    :param max_pool_bytes: the memory, in bytes, that the pools of one scenario may take.
    :raises ScenarioFileError: with everything that is wrong.
    """
    loaded = read(Path(path), max_pool_bytes=max_pool_bytes)
    if loaded.problems:
        raise ScenarioFileError(loaded.problems)
    return list(loaded.scenarios)


def load_paths(paths: Iterable[Path], *, max_pool_bytes: int = DEFAULT_MAX_POOL_BYTES) -> tuple[list[Scenario], list[Problem]]:
    """The scenarios of several files, in the order given, and everything that is wrong with any of them."""
    scenarios: list[Scenario] = []
    problems: list[Problem] = []
    for path in paths:
        loaded = read(path, max_pool_bytes=max_pool_bytes)
        scenarios.extend(loaded.scenarios)
        problems.extend(loaded.problems)
    return scenarios, problems


def read(path: Path, *, max_pool_bytes: int = DEFAULT_MAX_POOL_BYTES) -> Loaded:
    """Read one file. Nothing is raised for a file that is wrong, or cannot be opened."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)  # one more than is allowed: a device may never end
    except OSError as error:
        return Loaded(
            problems=(Problem(Position(path, 1, 1), f"cannot be read: {(error.strerror or 'no reason given').lower()}"),)
        )
    return read_bytes(path, data, max_pool_bytes=max_pool_bytes)


def read_bytes(path: Path, data: bytes, *, max_pool_bytes: int = DEFAULT_MAX_POOL_BYTES) -> Loaded:
    """Read the contents of a file. ``path`` is only for messages."""
    with seldom_collected():
        return _read_bytes(path, data, max_pool_bytes)


def _read_bytes(path: Path, data: bytes, max_pool_bytes: int) -> Loaded:
    try:
        documents = read_documents(path, data)
    except Refused as refused:
        return Loaded(problems=(refused.problem,))
    scenarios: list[Scenario] = []
    problems: list[Problem] = []
    for index, node in enumerate(documents):
        scenario, found = _scenario(path, node, index, max_pool_bytes)
        problems.extend(found)
        if scenario is not None:
            scenarios.append(scenario)
    if problems:
        ordered = sorted(problems, key=lambda one: (one.position.line, one.position.column))
        return Loaded(problems=once(ordered))
    return Loaded(tuple(scenarios))


def _scenario(path: Path, node: Node, index: int, max_pool_bytes: int) -> tuple[Scenario | None, list[Problem]]:
    if problem := _version(path, node):
        return None, [problem]
    document, problems = check(path, node, Document, "the scenario")
    parsed: list[Parsed | Node] = []
    if isinstance(node, Table) and isinstance(steps := node.entries.get("steps"), Items):
        for number, tree in enumerate(steps.items):
            if len(problems) > MAX_PROBLEMS:
                return None, problems
            step = parse_step(path, tree, number)
            if isinstance(step, Parsed):
                parsed.append(step)
            else:
                parsed.append(tree)
                problems.extend(step)
    if document is None:
        return None, problems
    steps_read = [one for one in parsed if isinstance(one, Parsed)]
    meaning = itertools.chain(
        _check_rules(path, node, document),
        check_memory(path, node, document.manager, steps_read, max_pool_bytes),
        check_names(path, node, document.manager, document.streams, parsed),
    )
    problems.extend(itertools.islice(meaning, MAX_PROBLEMS))
    # A value is looked at where nothing else is wrong in its line: one slip is one problem.
    lines = {problem.position.line for problem in problems}
    values = check_values(path, document.manager, steps_read)
    problems.extend(itertools.islice((one for one in values if one.position.line not in lines), MAX_PROBLEMS))
    if problems:
        return None, problems
    streams = ("exec", *(name for name in document.streams if name != "exec"))
    scenario = Scenario(
        document.name,
        document.rules,
        document.tags,
        document.requires,
        document.manager,
        streams,
        tuple(_labelled(one.step) for one in steps_read),
        Position(path, node.span.line, node.span.column),
        index,
    )
    return scenario, []


def _labelled(step: Step) -> Step:
    """The step, with a label where it says none: systems keep everything under one. No label of a file has a space."""
    if getattr(step.op, "as_", None) != UNLABELLED:
        return step
    return replace(step, op=step.op.model_copy(update={"as_": f"step {step.number}"}))


def _version(path: Path, node: Node) -> Problem | None:
    if not isinstance(node, Table):
        value = plain(node)
        text = "the document is empty" if value is None else f"the document is {shown(value)}"
        return Problem(at(path, node), text, "a scenario, which begins with kvspec: 1")
    if "kvspec" not in node.entries:
        return Problem(at(path, node), "the document has no key 'kvspec'", "a scenario, which begins with kvspec: 1")
    version = plain(node.entries["kvspec"])
    if isinstance(version, bool) or version != LANGUAGE_VERSION or not isinstance(version, int):
        return Problem(at(path, node, ("kvspec",)), f"the language version is {shown(version)}", f"{LANGUAGE_VERSION}")
    return None


def _check_rules(path: Path, node: Node, document: Document) -> Iterator[Problem]:
    known = rule_ids()
    for number, rule in enumerate(document.rules):
        if rule not in known:
            where = at(path, node, ("rules", number))
            yield Problem(where, f"unknown rule {rule!r}", "a rule of docs/rules.md", nearest(rule, known))
