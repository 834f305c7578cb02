"""Drives a `Reference` from the YAML form of steps."""

from __future__ import annotations

from typing import Any

import yaml

from kvref.system import Reference
from kvspec.config import ManagerConfig
from kvspec.ops import VERBS
from kvspec.system import Outcome, Setup


def reference(manager: str, *streams: str) -> Reference:
    """A reference for the manager that a YAML text describes."""
    return Reference(Setup(ManagerConfig.model_validate(yaml.safe_load(manager)), ("exec", *streams)))


def apply(system: Reference, step: str) -> Outcome:
    """Apply one step, written as in a scenario: ``resize: {request: a, capacity: 8}``."""
    loaded: Any = yaml.safe_load(step)
    ((verb, arguments),) = loaded.items() if isinstance(loaded, dict) else ((loaded, None),)
    model = VERBS[verb]
    if not isinstance(arguments, dict):
        bare = "as" if model.bare == "as_" else model.bare
        arguments = {} if arguments is None else {bare: arguments}
    return system.apply(model.model_validate(arguments))


def run(system: Reference, steps: str) -> Outcome:
    """Apply steps, one a line; none may be an error. The last outcome."""
    outcome = Outcome()
    for line in filter(None, map(str.strip, steps.splitlines())):
        outcome = apply(system, line)
        assert outcome.error is None, f"{line}: {outcome.message}"
    return outcome


def levels(system: Reference, reference_to: str) -> list[str]:
    """The levels of the blocks of ``request.group``, ``-`` for none."""
    request, group = reference_to.split(".")
    shown = system.observe().requests[request].snapshots[group, 0].levels
    return ["-" if level is None else level.label for level in shown]
