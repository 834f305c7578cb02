"""Why cells of the table stay empty: ``impossible.yaml``, each reason with its rules and the cells that it is for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from kvspec.audit.coverage.cells import Cell, Counts, cells
from kvspec.rules import rule_ids

FILE = Path(__file__).with_name("impossible.yaml")


class _Entry(BaseModel):
    """An entry of the file. Names are patterns, as of files: ``copy_failed*``. What is left out is any. ``except``: outcomes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    verbs: list[str] = ["*"]
    but_verbs: list[str] = []
    subject: str = "*"
    kinds: list[str] = ["*"]
    outcomes: list[str] = ["*"]
    but: list[str] = []
    rules: list[str]
    reason: str

    def covers(self, cell: Cell) -> bool:
        """Whether the reason is for a cell."""
        return (
            _any(cell.verb, self.verbs)
            and not _any(cell.verb, self.but_verbs)
            and fnmatchcase(cell.subject, self.subject)
            and _any(cell.kind, self.kinds)
            and _any(cell.outcome, self.outcomes)
            and not _any(cell.outcome, self.but)
        )


class WrongReason(ValueError):
    """The file of reasons is wrong in itself: an entry is for no cell, or names a rule that does not exist."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why cells cannot happen: ``number`` in the file, from 1."""

    number: int
    text: str
    rules: tuple[str, ...]

    def __str__(self) -> str:
        """The reason and its rules."""
        return f"{self.text} ({', '.join(self.rules)})"


@cache
def reasons(path: Path = FILE) -> dict[Cell, Reason]:
    """By cell, why it cannot happen; the first reason of several that are for it. Raises `WrongReason`."""
    found: dict[Cell, Reason] = {}
    for number, values in enumerate(yaml.safe_load(path.read_text(encoding="utf-8")) or [], 1):
        try:
            entry = _Entry.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise WrongReason(f"{path.name}: entry {number}: {where}: {first['msg'].lower()}") from None
        if unknown := [rule for rule in entry.rules if rule not in rule_ids()]:
            raise WrongReason(f"{path.name}: entry {number}: there is no rule {', '.join(unknown)}")
        covered = [cell for cell in cells() if entry.covers(cell)]
        new = [cell for cell in covered if cell not in found]
        if not new:
            why = "the cells have a reason above" if covered else "no cell is meant: is a name misspelt?"
            raise WrongReason(f"{path.name}: entry {number} ({entry.reason}): {why}")
        reason = Reason(number, " ".join(entry.reason.split()), tuple(entry.rules))
        found.update(dict.fromkeys(new, reason))
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """The table: how often each cell happened in the suite and in random lifecycles, and why others cannot.

    ``lifecycles``: how many there were; 0 if none were asked for.
    """

    suite: Counts
    fuzz: Counts
    why: Mapping[Cell, Reason]
    lifecycles: int = 0

    def happened(self, cell: Cell) -> bool:
        """Whether a cell happened in either."""
        return bool(self.suite[cell] or self.fuzz[cell])

    def state(self, cell: Cell) -> str:
        """``both``, ``suite``, ``fuzz``, ``impossible``, ``gap``, or ``wrong``: it happened, though there is a reason why not."""
        if self.happened(cell):
            if cell in self.why:
                return "wrong"
            return "both" if self.suite[cell] and self.fuzz[cell] else "suite" if self.suite[cell] else "fuzz"
        return "impossible" if cell in self.why else "gap"

    @property
    def gaps(self) -> tuple[Cell, ...]:
        """The cells that no scenario comes to, without a reason; random lifecycles may."""
        return tuple(cell for cell in cells() if not self.suite[cell] and cell not in self.why)

    @property
    def wrong(self) -> tuple[Cell, ...]:
        """The cells that have a reason and happened, and those that are not in the table at all and happened."""
        counted: Collection[Cell] = {*self.suite, *self.fuzz}
        return tuple(sorted(cell for cell in counted if cell in self.why or cell not in cells()))


def _any(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
