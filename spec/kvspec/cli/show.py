"""``kvspec show``: the state after every step of a scenario, to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kvspec.cli.run import chosen_scenarios, found_system, refuse
from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES
from kvspec.scenario import Scenario, Step

T = TypeVar("T")

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.cli.state_lines import Line
    from kvspec.system import Outcome


def show(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders to search.")],
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only scenarios whose name, tags or rules match.")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="The state after this step alone; steps count from 0.")] = None,
    changes: Annotated[bool, typer.Option("--changes", "-c", help="Only the lines that a step has changed.")] = False,
    system: Annotated[str, typer.Option(help="Whose state: a name, or package.module:Class.")] = "kvref",
    max_pool_bytes: Annotated[
        int, typer.Option(min=1, help="Refuse scenarios that ask for more memory than this.")
    ] = DEFAULT_MAX_POOL_BYTES,
) -> None:
    """Show who has which page where after every step, and why a page was not moved. Nothing is checked: `run` does that.

    Blocks are written G (GPU), H (host), D (disk) and . (no page); a line that a step has changed begins with *.
    """
    # Imported here, so that the help is quick.
    from rich.console import Console

    from kvspec.harness.systems import lacking

    scenarios = chosen_scenarios(paths, expression, max_pool_bytes)
    factory = found_system(system)
    if step is not None and all(step >= len(one.steps) for one in scenarios):
        last = max(len(one.steps) for one in scenarios) - 1
        refuse(f"--step {step}: there is no such step: the last one is {last}")
    console = Console(highlight=False, soft_wrap=True)
    for number, scenario in enumerate(scenarios):
        if number:
            console.print()
        if step is not None and step >= len(scenario.steps):
            continue
        lack = lacking(scenario, factory)
        if lack:
            refuse(f"{scenario.position}: {system} lacks {', '.join(lack)}")
        _scenario(console, scenario, system, step, changes)


def _scenario(console: Console, scenario: Scenario, system: str, only: int | None, changes: bool) -> None:
    from kvspec.cli.state_lines import state_lines
    from kvspec.harness.replay import Raised, guarded
    from kvspec.harness.systems import find_system, setup_for

    console.print(scenario.name, style="bold underline", markup=False)
    console.print(f"{scenario.position}  {', '.join(scenario.rules)}", style="dim", markup=False)

    def of_system(doing: str, call: Callable[[], T]) -> T:
        answer = guarded(call)
        if isinstance(answer, Raised):
            refuse(f"{scenario.position}: {system} raised {doing}: {answer.text}; kvspec run shows where", 1)
        return answer

    built = of_system("while it was built", lambda: find_system(system)(setup_for(scenario, {})))
    before: dict[str, Line] = {}
    try:
        for step in scenario.steps:
            doing = f"in step {step.number}, {step.op.verb}"
            outcome = of_system(doing, lambda step=step: built.apply(step.op))  # type: ignore[misc]
            now = {line.key: line for line in of_system(doing, lambda: list(state_lines(scenario.manager, built.observe())))}
            if only is None or only == step.number:
                _step(console, step, outcome, before, now, changes)
            before = now
            if step.number == only:
                break
    finally:
        guarded(built.close)


def _step(
    console: Console, step: Step, outcome: Outcome, before: Mapping[str, Line], now: Mapping[str, Line], changes: bool
) -> None:
    from rich.text import Text

    from kvspec.harness.compare import text

    head = Text.assemble((f"\n{step.number:3d}  ", "dim"), (step.op.verb, "bold cyan"), f" {_arguments(step)}")
    if outcome.error is not None:
        head.append(f"  raises {outcome.error.value}", "red")
        head.append(f": {outcome.message}", "dim")
    elif outcome.value is not None:
        head.append(f"  -> {text(outcome.value)}", "green")
    console.print(head)
    if step.note is not None:
        console.print(f"     {step.note}", style="dim italic", markup=False)
    gone = [line for key, line in before.items() if key not in now]
    for line in now.values():
        changed = before.get(line.key) != line
        if changed or not changes:
            shown = Text(f"   {'*' if changed else ' '} {line.text}", "" if changed else "dim")
            if line.why:
                shown.append(f"  {line.why}", "yellow")
            console.print(shown)
    for line in gone:
        console.print(Text(f"   - {line.key}", "red"))


def _arguments(step: Step) -> str:
    """The arguments that a step gives, as in the file."""
    given = step.op.model_dump(exclude_defaults=True, by_alias=True, mode="json")
    if len(given) == 1 and step.op.bare is not None:
        return str(next(iter(given.values())))
    return ", ".join(f"{key} {_plain(value)}" for key, value in given.items())


def _plain(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_plain(one)}' for key, one in value.items())}}}"
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
