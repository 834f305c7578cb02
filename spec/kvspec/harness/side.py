"""One of the two systems that are compared, at one step."""

from __future__ import annotations

from dataclasses import dataclass

from kvspec.harness.memory import Memory
from kvspec.harness.naming import Index
from kvspec.system import Outcome


@dataclass(slots=True)
class Side:
    """One system at one step: what it showed before and shows now, its outcome, and what is remembered of it."""

    name: str
    memory: Memory
    before: Index | None
    now: Index
    outcome: Outcome
