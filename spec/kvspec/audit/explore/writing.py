"""Paths as scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as File

from kvspec.audit.emit import document, step_mapping
from kvspec.audit.explore.expanding import Path, Plan, Walker
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
