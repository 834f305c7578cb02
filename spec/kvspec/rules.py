"""The rules, read from the contract itself: ``docs/rules.md``, or the copy that the package carries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

_SECTION = re.compile(r"^## (?=\d+\. )", re.MULTILINE)
_RULE = re.compile(r"^- (R\d+\.\d+) (.+)$")
_DECISION = re.compile(r"^\s+- (.+)$")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the contract. ``section``: number and title; ``decisions``: the lines indented below it, as binding."""

    id: str
    section: str
    text: str
    decisions: tuple[str, ...]


def rules_path() -> Path:
    """Where the rules are: inside the installed package, else in the repository that this module stands in.

    :raises FileNotFoundError: in neither.
    """
    here = Path(__file__).resolve().parent
    for path in (here / "data" / "rules.md", here.parents[1] / "docs" / "rules.md"):
        if path.is_file():
            return path
    raise FileNotFoundError("docs/rules.md is missing; the installation of kvspec is not complete")


@cache
def load_rules() -> tuple[Rule, ...]:
    """All rules, in the order of the contract."""
    return parse_rules(rules_path().read_text(encoding="utf-8"))


@cache
def rule_ids() -> tuple[str, ...]:
    """The numbers of all rules, such as ``R4.2``."""
    return tuple(rule.id for rule in load_rules())


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules that a text in the form of ``docs/rules.md`` states.

    A section that is prose alone, such as 9, is one rule with the number of the section: ``R9``. Section 0 states
    the problem and is no rule.
    """
    rules: list[Rule] = []
    for part in _SECTION.split(text)[1:]:
        title, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.strip()]
        found = _rules_of(title.strip(), lines)
        number = title.partition(".")[0]
        if not found and number != "0":
            found = [Rule(f"R{number}", title.strip(), " ".join(map(str.strip, lines)), ())]
        rules.extend(found)
    return tuple(rules)


def _rules_of(section: str, lines: Sequence[str]) -> list[Rule]:
    """The numbered rules of a section. A line that continues a rule or a decision is joined to it."""
    rules: list[Rule] = []
    for line in lines:
        if found := _RULE.match(line):
            rules.append(Rule(found[1], section, found[2], ()))
            continue
        if not rules:  # what introduces the section
            continue
        last = rules[-1]
        if found := _DECISION.match(line):
            rules[-1] = replace(last, decisions=(*last.decisions, found[1]))
        elif last.decisions:
            rules[-1] = replace(last, decisions=(*last.decisions[:-1], f"{last.decisions[-1]} {line.strip()}"))
        else:
            rules[-1] = replace(last, text=f"{last.text} {line.strip()}")
    return rules
