"""The report of a divergence: everything needed to understand it, on one screen."""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from kvspec.harness.difference import Difference, Failure, Kind, Result, Verdict, side_names
from kvspec.policies import POLICIES
from kvspec.suite import suite_name

MAX_DIFFERENCES = 12
"""How many differences one report shows; the rest are counted."""
MAX_LINES = 16
"""How many lines of a step's YAML one report shows."""
OWN = ("kvgpu", "kvref")
"""The systems of this project, whose policies are known."""
MAX_VALUE = 300
"""How many characters of one value a report shows."""
TITLES = {
    Kind.RAISED: "the system raised",
    Kind.SILENT: "no answer",
    Kind.FAULT: "fault",
    Kind.OUTCOME: "differs",
    Kind.EXPECTATION: "expected",
    Kind.STATE: "differs",
}


def reproduce_command(result: Result, system: str, against: str, options: Mapping[str, str]) -> str:
    """The one line that runs this scenario alone in the same way, from where it is printed."""
    parts = ["kvspec", "run", f"{path_text(result.position.path)}:{result.position.line}"]
    for option, value, default in (
        ("--system", system, "kvgpu"),
        ("--against", against, "kvref"),
        ("--device", options.get("device"), "auto"),
        ("--schedule", options.get("schedule"), None),
    ):
        if value is not None and value != default:
            parts += [option, value]
    if options.get("check") == "off":
        parts.append("--no-check")
    return shlex.join(parts)


def failure_report(result: Result, names: tuple[str, str], command: str) -> RenderableType:
    """The report of a failed scenario.

    :param names: the names of the reference and of the system under test.
    :param command: the line that reproduces it.
    """
    failure = result.failure
    assert failure is not None
    where = f"{path_text(failure.position.path)}:{failure.position.line}"
    head = Text.assemble(("FAILED ", "bold red"), (result.name, "bold"), f"\n{where}  step {failure.step}: {failure.verb}")
    if result.rules:
        head.append(f"  scenario covers {', '.join(result.rules)}", "dim")
    parts: list[RenderableType] = [head, *_source(failure)]
    if result.alone:
        parts.append(Text(f"{names[1]} was not run: it does not have the policies that the scenario asks for", "yellow"))
    shown = failure.differences[:MAX_DIFFERENCES]
    said: set[str] = set()
    for difference in shown:
        # What an expectation says is mostly a difference too: the lines around it are shown once.
        fresh = tuple(line for line in difference.detail if line not in said)
        said.update(difference.detail)
        parts += _difference(
            replace(difference, detail=fresh), names[:1] if result.alone else side_names(*names), failure.touched, said
        )
    parts += [Text(f"  {_short(remark)}", "dim") for remark in failure.remarks if remark not in said]
    if len(failure.differences) > len(shown):
        parts.append(Text(f"  and {len(failure.differences) - len(shown)} more differences at this step", "yellow"))
    gates = ", ".join(f"{gate} (since step {step})" for gate, step in failure.gates.items()) or "none"
    parts.append(Text(f"closed gates: {gates}"))
    if result.alone:
        parts.append(Text(f"{names[0]} alone was checked: the scenario may be wrong", "yellow"))
    elif all(d.expected is not None and d.reference == d.implementation for d in failure.differences):
        parts.append(Text("both systems say the same: the scenario may be wrong", "yellow"))
    rules = sorted({rule for d in failure.differences for rule in d.rules} or result.rules, key=_rule_order)
    if rules:
        parts.append(Text.assemble("the rules: ", (f"kvspec explain {' '.join(rules)}", "bold")))
    if policies := _varying(result, failure, names[1]):
        meant = "if it is meant, it may be a policy to declare: "
        parts.append(Text.assemble(meant, (f"kvspec explain {' '.join(policies)}", "bold")))
    parts.append(Text.assemble("reproduce: ", (command, "bold")))
    return Group(*parts)


def _varying(result: Result, failure: Failure, system: str) -> list[str]:
    """The policies that vary a rule which the scenario covers, or by which the first difference is one; for systems of others."""
    first = failure.differences[0]
    if system in OWN or result.alone or first.kind not in (Kind.STATE, Kind.OUTCOME, Kind.EXPECTATION):
        return []
    rules = {*result.rules, *first.rules}
    return [name for name, policy in POLICIES.items() if not rules.isdisjoint(policy.rules)]


def first_difference(failure: Failure) -> str:
    """What a failure begins with, the same for the same mistake in other scenarios: ``version after suspend [R6.4]``."""
    first = failure.differences[0]
    what = TITLES[first.kind] if first.kind in (Kind.RAISED, Kind.SILENT) else first.identity or first.subject
    where = f" {first.subject}" if first.kind in (Kind.RAISED, Kind.SILENT) else f" after {failure.verb}"
    said = f": {first.identity}" if first.kind is Kind.RAISED else ""
    return f"{what}{where}{said}" + (f" [{', '.join(first.rules)}]" if first.rules else "")


def plain(renderable: RenderableType, width: int = 140) -> str:
    """A report as plain text, lines of at most ``width`` characters where words allow."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=False, legacy_windows=False, soft_wrap=True)
    console.print(renderable, soft_wrap=True, highlight=False, markup=False)
    return stream.getvalue().rstrip("\n")


def source_lines(path: Path, first: int, last: int) -> list[tuple[int, str]]:
    """Lines of a file with their numbers, both ends included; none if it cannot be read any more."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [(number, lines[number - 1]) for number in range(first, min(last, len(lines)) + 1)]


def _source(failure: Failure) -> Iterator[RenderableType]:
    marked_lines = {d.position.line for d in failure.differences if d.position is not None}
    lines = source_lines(failure.position.path, failure.position.line, failure.last_line)
    for number, line in lines[:MAX_LINES]:
        marked = number in marked_lines
        yield Text(f"{'>' if marked else ' '}{number:5d} | {line}", "bold" if marked else "")
    if len(lines) > MAX_LINES:
        rest = [number for number, _ in lines[MAX_LINES:] if number in marked_lines]
        yield Text(f"       | ... {len(lines) - MAX_LINES} more lines" + (f", line {rest[0]} among them" if rest else ""))


def _difference(
    difference: Difference, names: tuple[str, ...], touched: Mapping[str, int], said: set[str]
) -> Iterator[RenderableType]:
    line = Text("  ")
    line.append("expected" if difference.expected is not None else TITLES[difference.kind], "red")
    line.append(f" {difference.subject}")
    if difference.position is not None:
        line.append(f" (line {difference.position.line})", "dim")
    if difference.rules:
        line.append(f"  [{', '.join(difference.rules)}]", "dim")
    yield line
    rows: list[tuple[str, str]] = []
    if difference.expected is not None:
        rows.append(("expected", difference.expected))
    rows += zip(names, (difference.reference, difference.implementation), strict=False)  # one name: the reference alone
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        yield Text(f"      {name:>{width}}: {_short(value)}")
    for text in difference.detail:
        yield Text(f"      {_short(text)}", "dim")
    keys = [difference.page] if difference.page is not None else []
    if difference.row is not None:
        keys.append(f"row {difference.row[1]} of {difference.row[0]}")
    for key in keys:
        line_of_key = f"{key} was last touched by step {touched[key]}" if key in touched else ""
        if line_of_key and line_of_key not in said:
            said.add(line_of_key)
            yield Text(f"      {line_of_key}", "dim")


def _rule_order(rule: str) -> tuple[int, ...]:
    return tuple(int(number) for number in rule.removeprefix("R").split("."))


def _short(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 4]} ..."


def path_text(path: Path) -> str:
    """A path as a user would type it here: relative, and below the suite if it is outside of where the user is."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
    return relative if not relative.startswith("..") else suite_name(path) or str(path)


def summary(results: Sequence[Result]) -> str:
    """Counts of verdicts in one line."""
    counts: dict[str, int] = {}
    for result in results:
        counts[told(result)] = counts.get(told(result), 0) + 1
    shown = ("passed", "failed", "skipped", *((REFERENCE_ONLY,) if REFERENCE_ONLY in counts else ()))
    return ", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in shown)


REFERENCE_ONLY = "reference only"
"""How reports call a scenario that the reference passed and the system was not asked to."""


def told(result: Result) -> str:
    """The verdict for the reader: what the reference alone went through is not called skipped."""
    return REFERENCE_ONLY if result.alone and result.verdict is Verdict.SKIPPED else result.verdict.value


def by_policy(results: Sequence[Result], system: str, against: str) -> Iterator[str]:
    """What was checked otherwise, since a scenario and the system follow different policies. ``against``: the reference."""
    if alone := sum(told(result) == REFERENCE_ONLY for result in results):
        yield f"{alone} ask for policies that {system} does not have: {against} alone was run, and does what they expect"
    if loose := [result for result in results if result.passed_over and result.verdict is Verdict.PASSED]:
        count = sum(result.passed_over for result in loose)
        yield f"{count} expectations in {len(loose)} scenarios are for other policies: there it was compared with {against} alone"
