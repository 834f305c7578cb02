"""``kvspec rules``: the contract, and which scenarios cover each rule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from kvspec.cli.check import suite_or_exit
from kvspec.language.loader import load_paths
from kvspec.rules import load_rules
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files


def rules(
    paths: Annotated[list[Path] | None, typer.Argument(help="Where to look for scenarios; the suite if left out.")] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Only the rules that no scenario covers.")] = False,
) -> None:
    """Print the rules and the scenarios that cover each."""
    scenarios, problems = load_paths(scenario_files(paths or [suite_or_exit()]))
    for problem in problems:
        typer.echo(str(problem), err=True)
    contract = load_rules()
    covering: dict[str, list[Scenario]] = {rule.id: [] for rule in contract}
    for scenario in scenarios:
        for rule_id in dict.fromkeys(scenario.rules):
            covering[rule_id].append(scenario)
    uncovered = [rule for rule in contract if not covering[rule.id]]
    console = Console(highlight=False, emoji=False)
    section = None
    for rule in uncovered if missing else contract:
        if rule.section != section:
            section = rule.section
            console.print(f"\n[bold underline]{escape(section)}[/]")
        console.print(f"\n[bold cyan]{rule.id}[/] {escape(rule.text)}")
        for decision in rule.decisions:
            console.print(Padding(f"- {escape(decision)}", (0, 0, 0, 4)))
        if not missing:
            console.print(Padding(_coverage(covering[rule.id]), (0, 0, 0, 4)))
    covered = len(contract) - len(uncovered)
    console.print(f"\n{covered} of {len(contract)} rules are covered, by {len(scenarios)} scenarios")
    if problems:
        raise typer.Exit(2)


def _coverage(scenarios: list[Scenario]) -> str:
    """The scenarios of a rule, a line each, as rich markup."""
    if not scenarios:
        return "[red]no scenario[/]"
    return "\n".join(f"[green]{escape(f'{one.position.path}:{one.position.line}')}[/] {escape(one.name)}" for one in scenarios)
