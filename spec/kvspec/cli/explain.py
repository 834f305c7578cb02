"""``kvspec explain``: one rule, a section of rules or a word of the language, and the scenarios that cover it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.check import suite_or_exit
from kvspec.cli.explain_page import explain_page
from kvspec.cli.refusing import refuse
from kvspec.cli.word_lines import all_words, is_word, other_word, print_line, word_lines
from kvspec.harness.watch import DEFAULT_SECONDS
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES, load_paths
from kvspec.nearest import nearest
from kvspec.ops import VERBS
from kvspec.rules import Rule, load_rules
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files
from kvspec.words.document import KEYS
from kvspec.words.expectations import EXPECTATIONS
from kvspec.words.terms import TERMS

if TYPE_CHECKING:
    from rich.console import Console

MAX_SCENARIOS = 10
"""How many scenarios are listed without ``--all``."""


def explain(
    names: Annotated[
        list[str],
        typer.Argument(help="Rules (R4.2), sections (R4), verbs, expectations, keys or terms; or a scenario, with --page."),
    ],
    every: Annotated[bool, typer.Option("--all", help="List all scenarios that cover it.")] = False,
    page: Annotated[
        str | None, typer.Option(metavar="R.GROUP.B", help="Explain why this page of a scenario is where it is.")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="With --page: after this step. Left out: after the last.")] = None,
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="With --page: only the scenario whose name, tags or rules match.")
    ] = None,
    system: Annotated[str, typer.Option(help="With --page: the system to look at: a name, or package.module:Class.")] = "kvref",
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="With --page: the longest that it may take; 0 for no limit.")
    ] = DEFAULT_SECONDS,
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse a scenario whose pools need more bytes than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
) -> None:
    """Explain a rule or a word of the language, and list scenarios that use it.

    With --page: say where a page of a scenario is after a step, why, by which rules, and what would move it.
    """
    from rich.console import Console

    if page is not None:
        explain_page(names, page, step, expression, system, max_pool_bytes, timeout)
        return
    if step is not None or expression is not None:
        refuse("--step and -k need a page of a scenario: --page request.group.block")
    if names == ["words"]:
        _print_words()
        return
    for name in names:
        if name.endswith((".yaml", ".yml")) or (not is_word(name) and Path(name).is_file()):
            refuse(f"{name} is a scenario file: name a page with --page request.group.block, and a step with --step N")
    rules = load_rules()
    for name in names:
        if not _rules(name, rules) and not is_word(name):
            near = other_word(name) or nearest(name, [*(rule.id for rule in rules), *all_words()])
            hint = f" Did you mean {near}?" if near else ""
            refuse(f"there is no rule or word {name!r}.{hint} `kvspec rules` prints all rules, `kvspec explain words` all words")
    scenarios, _ = load_paths(scenario_files([suite_or_exit()]))
    console = Console(highlight=False, emoji=False)
    for number, name in enumerate(names):
        if number:
            console.print()
        for rule in _rules(name, rules):
            _print_rule(console, rule)
            _print_scenarios(console, [one for one in scenarios if rule.id in one.rules], every)
        for line in word_lines(name):
            print_line(line, console.width if console.is_terminal else None)
        if name in VERBS:
            _print_scenarios(console, [one for one in scenarios if name in one.verbs], every)


def _rules(name: str, rules: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in rules if rule.id == name or rule.id.startswith(f"{name}.")]


def _print_rule(console: Console, rule: Rule) -> None:
    from rich.markup import escape

    console.print(f"[bold cyan]{rule.id}[/]  [dim]{escape(rule.section)}[/]")
    width = console.width if console.is_terminal else None
    print_line(rule.text, width)
    for decision in rule.decisions:
        print_line(f"  - {decision}", width)


def _print_scenarios(console: Console, scenarios: Sequence[Scenario], every: bool) -> None:
    from rich.text import Text

    from kvspec.cli.wrapping import print_line as print_styled

    shown = scenarios if every else scenarios[:MAX_SCENARIOS]
    for one in shown:
        print_styled(console, Text(f"  {one.position.path}:{one.position.line}  {one.name}", "green"), 4)
    if len(shown) < len(scenarios):
        console.print(f"  and {len(scenarios) - len(shown)} more scenarios; --all lists them", style="dim", markup=False)
    if not scenarios:
        console.print("  no scenario", style="red")


def _print_words() -> None:
    """Print all words of the language, by kind."""
    for title, some in (
        ("verbs", VERBS),
        ("expectations", EXPECTATIONS),
        ("keys", dict.fromkeys(key for keys in KEYS.values() for key in keys)),
        ("terms", TERMS),
    ):
        print_line(f"{title}: {', '.join(some)}", shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
