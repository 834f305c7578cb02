"""``kvspec rules``: the contract, and which scenarios cover each rule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.check import suite_or_exit
from kvspec.cli.refusing import refuse
from kvspec.language.loader import load_paths
from kvspec.rules import Rule, load_rules
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files

if TYPE_CHECKING:
    from rich.console import Console


def rules(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders. Left out: the whole suite.")] = None,
    missing: Annotated[bool, typer.Option("--missing", help="List only rules that no scenario covers.")] = False,
    covered: Annotated[bool, typer.Option("--covered", help="List the scenarios below each rule.")] = False,
) -> None:
    """List the rules, and how many scenarios cover each. In a pipe: one line for each rule, number first."""
    from rich.console import Console

    if missing and covered:
        refuse("--missing and --covered contradict each other")
    for path in paths or ():
        if not path.exists():
            hint = f": kvspec explain {path} prints a rule or a section" if re.fullmatch(r"R\d+(\.\d+)?", str(path)) else ""
            refuse(f"{path}: there is no such file or folder{hint}")
    scenarios, problems = load_paths(scenario_files(paths or [suite_or_exit()]))
    for problem in problems:
        typer.echo(str(problem), err=True)
    contract = load_rules()
    covering: dict[str, list[Scenario]] = {rule.id: [] for rule in contract}
    for scenario in scenarios:
        for rule_id in dict.fromkeys(scenario.rules):
            covering[rule_id].append(scenario)
    uncovered = [rule for rule in contract if not covering[rule.id]]
    shown = [rule for rule in contract if not (missing and covering[rule.id]) and not (covered and not covering[rule.id])]
    console = Console(highlight=False, emoji=False)
    if console.is_terminal:
        _print(console, shown, covering, covered)
    else:
        _print_lines(shown, covering, covered)
    said = f"{len(contract) - len(uncovered)} of {len(contract)} rules are covered, by {len(scenarios)} scenarios"
    if console.is_terminal:
        console.print(f"\n{said}")
    else:
        typer.echo(said, err=True)  # a line that is no rule does not belong among them
    if problems:
        raise typer.Exit(2)


def _print_lines(rules: list[Rule], covering: dict[str, list[Scenario]], covered: bool) -> None:
    """For ``grep`` and ``cut``: the number, how many scenarios cover it, all of its text; with ``covered`` a line a scenario."""
    for rule in rules:
        if covered:
            for one in covering[rule.id]:
                typer.echo(f"{rule.id}\t{_where(one)}\t{one.name}")
        else:
            text = " ".join([rule.text, *rule.decisions])
            typer.echo(f"{rule.id}\t{len(covering[rule.id])}\t{' '.join(text.split())}")


def _print(console: Console, rules: list[Rule], covering: dict[str, list[Scenario]], covered: bool) -> None:
    from rich.markup import escape
    from rich.padding import Padding

    section = None
    for rule in rules:
        if rule.section != section:
            section = rule.section
            console.print(f"\n[bold underline]{escape(section)}[/]")
        console.print(f"\n[bold cyan]{rule.id}[/] {escape(rule.text)}")
        for decision in rule.decisions:
            console.print(Padding(f"- {escape(decision)}", (0, 0, 0, 4)))
        scenarios = covering[rule.id]
        if not scenarios:
            console.print(Padding("[red]no scenario[/]", (0, 0, 0, 4)))
        elif not covered:
            console.print(Padding(f"[green]{len(scenarios)} scenarios[/]", (0, 0, 0, 4)))
        else:
            for one in scenarios:
                console.print(Padding(f"[green]{escape(_where(one))}[/] {escape(one.name)}", (0, 0, 0, 4)))


def _where(scenario: Scenario) -> str:
    from kvspec.harness.report import path_text

    return f"{path_text(scenario.position.path)}:{scenario.position.line}"
