"""The cells of the table: a verb, a kind of state, and how a call ended with which fault about."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from kvspec.audit.coverage.asked import OUTCOMES, asked_of, outcomes, subjects
from kvspec.audit.coverage.kinds import KINDS, kinds_before
from kvspec.audit.coverage.past import Past
from kvspec.audit.moment import Moment
from kvspec.errors import ErrorKind
from kvspec.ops import VERBS


class Cell(NamedTuple):
    """A cell."""

    verb: str
    subject: str
    kind: str
    outcome: str

    def __str__(self) -> str:
        """Where it is, in words."""
        return f"{self.verb} | {self.subject} | {self.kind} | {self.outcome}"


Counts = Counter[Cell]


@cache
def cells_of(verb: str) -> tuple[Cell, ...]:
    """Every cell of a verb, in the order of its table."""
    return tuple(
        Cell(verb, kind.subject.value, kind.name, outcome)
        for kind in KINDS
        if kind.subject.value in subjects(verb)
        for outcome in outcomes(verb)
        if outcome in asked_of(verb, kind.subject.value, kind.name, kind.says.value)
    )


@cache
def cells() -> dict[Cell, None]:
    """Every cell of every verb."""
    return {cell: None for verb in VERBS for cell in cells_of(verb)}


@dataclass(slots=True)
class Covering:
    """Counts the cells that the steps of one lifecycle come to, one step after the other."""

    past: Past = field(default_factory=Past)

    def count(self, moment: Moment, counts: Counts) -> None:
        """Count the cells of a step, and remember it. A way to end that the verb should not have is counted, too."""
        outcome = outcome_of(moment, self.past)
        expected = outcome in outcomes(moment.verb)
        for subject, kind in kinds_before(moment, self.past):
            cell = Cell(moment.verb, subject.value, kind, outcome)
            if cell not in cells():  # where no fault is asked for, with and without are one
                cell = cell._replace(outcome=outcome.partition(", ")[0])
            if cell in cells() or not expected:
                counts[cell] += 1
        self.past.follow(moment)


def outcome_of(moment: Moment, past: Past) -> str:
    """How a call ended, and with which fault about, as far as it is asked of its verb."""
    result = _result(moment)
    if moment.trail.memory.gates and f"{result}, gate" in outcomes(moment.verb):
        return f"{result}, gate"
    return f"{result}, queued" if result == ErrorKind.COPY_FAILED and past.queued() else result


def _result(moment: Moment) -> str:
    """How a call ended; false also where one row or request of several was."""
    value = moment.outcome.value
    if moment.outcome.error is not None:
        return moment.result
    if moment.verb in ("is_sparse", "page_index_scale"):
        return "done"
    if moment.verb == "resize_batch" and isinstance(value, list | tuple):
        return "false" if any(one is False for one in value) else "done"
    if moment.verb == "iterate" and isinstance(value, dict):
        return "false" if "waiting" in value.values() else "done"
    return moment.result


__all__ = ["OUTCOMES", "Cell", "Counts", "Covering", "cells", "cells_of", "outcome_of"]
