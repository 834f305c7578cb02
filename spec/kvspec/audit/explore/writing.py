"""Paths and walks as scenarios."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as File
from typing import Any

from kvspec.audit.emit import document, step_mapping
from kvspec.audit.explore.covering import Walk, walks
from kvspec.audit.explore.expanding import Kind, Path, Plan, Walker
from kvspec.audit.explore.models import MODELS, SmallModel
from kvspec.audit.explore.search import Answering, explore
from kvspec.config import Ownership
from kvspec.language.formatting import formatted
from kvspec.ops import Operation
from kvspec.system import Outcome

FILE = File("explored.yaml")
"""What the text of a path is called in messages."""


def steps_of(plan: Plan, path: Path) -> list[tuple[Operation, Outcome]]:
    """The operations of a path, from the empty manager on, each with its outcome; refusals are steps of their own."""
    walker = Walker(plan)
    found = [(op, Outcome()) for op in walker.model.begin]
    state = walker.first
    for move in path:
        made = walker.take(state, move)
        if made.fault is not None:
            found.append((made.fault, Outcome()))
        found.append((made.op, made.outcome))
        state = made.after
    return found


def violation_text(plan: Plan, path: Path, what: Sequence[str]) -> str:
    """A scenario of a path that breaks something, with what it breaks in its first lines."""
    model = plan.small()
    steps = [step_mapping(op, outcome.error) for op, outcome in steps_of(plan, path)]
    text = document(f"{model.name}, {plan.ownership}: {what[0].split(' (')[0]}", model.manager, model.streams, steps)
    return "".join(f"# {line}\n" for line in what) + formatted(FILE, text)


DEPTH = 4
"""How deep each model is gone through for the scenarios of all kinds."""
_RULE = re.compile(r"\bR\d+\.\d+\b")
_RESULTS = {"done": "", "false": " is false"}
_BEGUN = "from here on the search has chosen"


def written_plans(against: str) -> list[Plan]:
    """What scenarios are written of: every model, and the first one with private ownership, too."""
    shared = [Plan(name, Ownership.SHARED.value, against) for name in MODELS]
    return [*shared, Plan(next(iter(MODELS)), Ownership.PRIVATE.value, against)]


def file_name(plan: Plan) -> str:
    """The file that the scenarios of a model are written into."""
    return f"{plan.model}.yaml" if plan.ownership == Ownership.SHARED.value else f"{plan.model}-{plan.ownership}.yaml"


def all_kinds(against: str, answering: Answering, depth: int = DEPTH) -> Iterator[tuple[Plan, str, int]]:
    """Of every model, scenarios that have each kind of transition which no model before it has: the text, and how many.

    With private ownership what happens counts anew, in whatever kind of state.
    """
    known: set[Kind] = set()
    for plan in written_plans(against):
        done = explore(plan, depth, answering, kinds=True)
        private = plan.ownership == Ownership.PRIVATE.value
        passed = {kind for kind in known if not private or kind[3] == "in"}
        found = walks(done, Walker(plan), passed)
        known.update(done.kinds)
        yield plan, walks_text(plan, found), len(found)


def walks_text(plan: Plan, found: Sequence[Walk]) -> str:
    """A file of scenarios, in the form of ``kvspec fmt``."""
    model = plan.small()
    named: Counter[str] = Counter()
    texts = []
    for walk in found:
        name = f"explored, {model.name}{'' if plan.ownership == 'shared' else ', ' + plan.ownership}: {_about(walk.about)}"
        named[name] += 1
        texts.append(_walk_text(model, walk, name if named[name] == 1 else f"{name} ({named[name]})"))
    return formatted(FILE, "---\n".join(texts))


def _walk_text(model: SmallModel, walk: Walk, name: str) -> str:
    steps: list[dict[str, Any]] = [step_mapping(op) for op in model.begin]
    steps[-1]["note"] = _BEGUN
    for made in walk.taken:
        if made.fault is not None:
            steps.append(step_mapping(made.fault))
        steps.append({**step_mapping(made.op, made.outcome.error), **_returned(made.outcome)})
    text = document(name, model.manager, model.streams, steps, _rules(walk))
    verbs = ", ".join(sorted({kind[0] for kind in walk.kinds}))
    happens = ", ".join(sorted({event for kind in walk.kinds if kind[3] == "does" for event in kind[4].split(", ") if event}))
    first, rest = text.split("\n", 1)
    said = f"# {len(walk.kinds)} kinds of transitions that no scenario before it has, of {verbs}."
    return "\n".join([first, said, *([f"# What happens: {happens}."] if happens else []), rest])


def _about(kind: Kind) -> str:
    """A kind of transition, for the reader."""
    verb, result, refused, what, words = kind
    said = verb.replace("_", " ") + _RESULTS.get(result, f" raises {result}")
    said += f" ({refused})" if refused else ""
    if what == "in":
        return f"{said}, {words}" if words else said
    return f"{said}, which {words.replace(', ', ' and ')}" if words else f"{said}, where no page moves"


def _rules(walk: Walk) -> list[str]:
    """The rules that the operations of a walk name, and what decides about those that come to nothing."""
    found = {rule for made in walk.taken for rule in _RULE.findall(type(made.op).__doc__ or "")}
    found |= {"R3.14"} if any(made.result in ("false", "out_of_pages") for made in walk.taken) else set()
    found |= {"R4.8"} if any(made.fault is not None for made in walk.taken) else set()
    return sorted(found, key=lambda rule: tuple(map(int, rule[1:].split("."))))


def _returned(outcome: Outcome) -> dict[str, Any]:
    value = outcome.value
    if outcome.error is not None or value is None:
        return {}
    if isinstance(value, (bool, int)):
        return {"returns": value}
    if isinstance(value, tuple):
        return {"returns": list(value)}
    return {"returns": dict(value)} if isinstance(value, Mapping) else {}
