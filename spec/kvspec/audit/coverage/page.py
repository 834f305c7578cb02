"""The tables as one HTML page that needs nothing else: one for each verb, a row for each kind of state, a column for each end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path

from kvspec.audit.coverage.asked import outcomes
from kvspec.audit.coverage.cells import Cell, cells, cells_of
from kvspec.audit.coverage.kinds import KINDS, Kind
from kvspec.audit.coverage.reasons import Judged, Reason
from kvspec.harness.timeline.page import environment
from kvspec.ops import VERBS
from kvspec.words.lookup import summary

STATES = {
    "both": "in the suite and in random lifecycles",
    "suite": "in the suite",
    "fuzz": "in random lifecycles alone",
    "impossible": "cannot happen",
    "gap": "a gap: nothing comes to it",
    "wrong": "happened, though it should not",
}
"""What a cell can be, and what that means."""
SUBJECTS = {"request": "of the request", "batch": "of the batch", "room": "room there is", "device": "of the manager"}
WHY = {"request": "A request has every kind that is true of it before the call; an operation on several counts for each."}


@dataclass(frozen=True, slots=True)
class Square:
    """A cell of a table. ``state``: one of ``STATES``, or nothing where the verb is not asked for it."""

    state: str
    suite: int = 0
    fuzz: int = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table; ``head``: what the rows from here on are, if another thing than above."""

    kind: Kind
    squares: tuple[Square, ...]
    head: str


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a verb. ``never``: the reasons why rows and columns are left out of which nothing can happen."""

    verb: str
    text: str
    tally: Counter[str]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    reasons: tuple[tuple[Reason, int], ...]

    @property
    def state(self) -> str:
        """What is to be said of all of it: ``wrong``, ``gap``, or nothing."""
        return next((one for one in ("wrong", "gap") if self.tally[one]), "")


def write_page(path: Path, judged: Judged, scenarios: int) -> None:
    """Write the page. Raises ``OSError`` if it cannot be written.

    :param scenarios: how many were counted.
    """
    template = environment().from_string((resources.files(__package__) / "page.html.j2").read_text(encoding="utf-8"))
    tables = [_table(verb, judged) for verb in VERBS]
    page = template.render(
        tables=tables,
        tally=sum((table.tally for table in tables), Counter()),
        count=len(cells()),
        states={one: text for one, text in STATES.items() if judged.lifecycles or one not in ("both", "fuzz")},
        judged=judged,
        scenarios=scenarios,
        unexpected=[cell for cell in judged.wrong if cell not in cells()],
        version=metadata.version("kvspec"),
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    path.write_text(page, encoding="utf-8")


def _table(verb: str, judged: Judged) -> Table:
    asked = cells_of(verb)
    columns = tuple(one for one in outcomes(verb) if any(cell.outcome == one and _shown(judged, cell) for cell in asked))
    return Table(
        verb,
        summary(verb),
        Counter(judged.state(cell) for cell in asked),
        columns,
        tuple(_rows(verb, columns, judged)),
        tuple(Counter(judged.why[cell] for cell in asked if judged.state(cell) == "impossible").most_common()),
    )


def _shown(judged: Judged, cell: Cell) -> bool:
    return judged.state(cell) != "impossible"


def _rows(verb: str, columns: tuple[str, ...], judged: Judged) -> Iterator[Row]:
    asked = set(cells_of(verb))
    subject = ""
    for kind in KINDS:
        row = [Cell(verb, kind.subject.value, kind.name, outcome) for outcome in columns]
        if not any(cell in asked and _shown(judged, cell) for cell in row):
            continue
        head = SUBJECTS[kind.subject.value] if kind.subject.value != subject else ""
        subject = kind.subject.value
        yield Row(kind, tuple(_square(judged, cell) if cell in asked else Square("") for cell in row), head)


def _square(judged: Judged, cell: Cell) -> Square:
    state = judged.state(cell)
    title = f"{cell.kind}: {cell.outcome}. {STATES[state][0].upper()}{STATES[state][1:]}"
    title += f": {judged.why[cell]}" if cell in judged.why else ""
    return Square(state, judged.suite[cell], judged.fuzz[cell], title)
