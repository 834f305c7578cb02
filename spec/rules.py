"""The rules, read from the contract itself: ``docs/rules.md``, or the copy that the package carries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SECTION = re.compile(r"^## (\d+)\. (.+)$")
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
    """Where the rules are: in the repository that this module stands in, else inside the package.

    :raises FileNotFoundError: in neither.
    """
    here = Path(__file__).resolve().parent
    for path in (here.parent / "docs" / "rules.md", here / "data" / "rules.md"):
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
    """The rules that a text in the form of ``docs/rules.md`` states. A line that continues a rule is joined to it."""
    rules: list[Rule] = []
    section = ""
    for line in text.splitlines():
        if found := _SECTION.match(line):
            section = f"{found[1]}. {found[2]}"
        elif found := _RULE.match(line):
            rules.append(Rule(found[1], section, found[2], ()))
        elif rules and rules[-1].section == section and line.strip():
            last = rules[-1]
            if found := _DECISION.match(line):
                rules[-1] = Rule(last.id, section, last.text, (*last.decisions, found[1].strip()))
            elif last.decisions:
                joined = f"{last.decisions[-1]} {line.strip()}"
                rules[-1] = Rule(last.id, section, last.text, (*last.decisions[:-1], joined))
            else:
                rules[-1] = Rule(last.id, section, f"{last.text} {line.strip()}", ())
    return tuple(rules)
