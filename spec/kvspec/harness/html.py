"""Results of a run as one HTML page that needs nothing else: for sending, and for keeping beside a build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path

from kvspec.harness.difference import Result, Verdict
from kvspec.harness.policies import unusual_policies
from kvspec.harness.report import REFERENCE_ONLY, by_policy, path_text, reproduce_command, told
from kvspec.harness.runner import Plan
from kvspec.harness.systems import find_system, unobserved_by
from kvspec.harness.timeline.page import assets, environment, rule_sections
from kvspec.harness.unobserved import not_compared
from kvspec.rules import Rule, load_rules

MAX_TIMELINES = 1_700_000
"""How many bytes of timelines a page holds; for the others it has the command that shows them."""

VERDICTS = (Verdict.PASSED.value, Verdict.FAILED.value, REFERENCE_ONLY, Verdict.SKIPPED.value)
"""As the reader is told them, in the order of the page."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The results of the scenarios of one folder, each with its number among all results."""

    name: str
    results: tuple[tuple[int, Result], ...]

    @property
    def tally(self) -> Mapping[str, int]:
        """How many results there are of each verdict, as the reader is told it."""
        return Counter(told(result) for _, result in self.results)

    @property
    def seconds(self) -> float:
        """The time of all replays."""
        return sum(result.seconds for _, result in self.results)


@dataclass(frozen=True, slots=True)
class Covered:
    """A rule and the results of the scenarios that cover it, each with its number among all results."""

    rule: Rule
    results: tuple[tuple[int, Result], ...]

    @property
    def state(self) -> str:
        """``failed`` if one failed, else ``passed`` if one passed, and so on as in ``VERDICTS``; ``none`` if there is none."""
        verdicts = {told(result) for _, result in self.results}
        return next((verdict for verdict in ("failed", *VERDICTS) if verdict in verdicts), "none")


def write_html(path: Path, plan: Plan, results: Sequence[Result], reports: Mapping[int, str]) -> None:
    """Write the page.

    :param reports: by the number of a failed result in ``results``, its report as plain text.
    :raises OSError: the file cannot be written.
    """
    numbered = list(enumerate(results))
    folders: dict[str, list[tuple[int, Result]]] = {}
    for number, result in numbered:
        folders.setdefault(path_text(result.position.path.parent), []).append((number, result))
    sections: dict[str, list[Covered]] = {}
    for rule in load_rules():
        covering = tuple((number, result) for number, result in numbered if rule.id in result.rules)
        sections.setdefault(rule.section, []).append(Covered(rule, covering))
    lacks = Counter(lack for result in results for lack in result.lacks)
    template = environment().from_string((resources.files("kvspec.harness") / "report.html.j2").read_text(encoding="utf-8"))
    shown = _that_fit(results)
    page = template.render(
        plan=plan,
        tally=Counter(map(told, results)),
        verdicts=VERDICTS,
        reference_only=REFERENCE_ONLY,
        told=told,
        count=len(results),
        steps=sum(result.steps for result in results),
        seconds=sum(result.seconds for result in results),
        on_gpu=sum(result.device == "cuda" for result in results),
        folders=[Folder(name, tuple(inside)) for name, inside in folders.items()],
        failures=[(number, results[number], report) for number, report in reports.items()],
        timelines=shown,
        commands={number: show_command(results[number], plan) for number in reports},
        lacks=lacks.most_common(),
        covering=sections,
        sections=rule_sections(),
        covered=sum(one.state in ("passed", "failed") for rules in sections.values() for one in rules),
        rules=sum(map(len, sections.values())),
        not_compared=not_compared(unobserved_by(find_system(plan.system), find_system(plan.against))),
        policies=unusual_policies(find_system(plan.system)),
        by_policy=list(by_policy(results, plan.system, plan.against)),
        version=metadata.version("kvspec"),
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        path_text=path_text,
        **assets(),
    )
    path.write_text(page, encoding="utf-8")


def _that_fit(results: Sequence[Result]) -> dict[int, str]:
    """The timelines of failures, the shortest replays first, as many as the page may hold."""
    found: dict[int, str] = {}
    left = MAX_TIMELINES
    failed = [number for number, result in enumerate(results) if result.timeline]
    for number in sorted(failed, key=lambda number: (results[number].steps, number)):
        size = len(results[number].timeline.encode())
        if size <= left:
            found[number] = results[number].timeline
            left -= size
    return found


def show_command(result: Result, plan: Plan) -> str:
    """The line that shows this scenario alone over time."""
    return reproduce_command(result, plan.system, plan.against, plan.options).replace("kvspec run", "kvspec show", 1)
