"""``kvspec explain SCENARIO --step N --page request.group.block``: where a page is, why, and what would move it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.refusing import found_system, refuse

if TYPE_CHECKING:
    from kvspec.harness.naming import Index
    from kvspec.harness.timeline.record import Recorder
    from kvspec.observation import PageRef
    from kvspec.scenario import Scenario, Step


def explain_page(
    names: list[str],
    page: str,
    step: int | None,
    expression: str | None,
    system: str,
    max_pool_bytes: int,
    timeout: float,
) -> None:
    """Print what there is to say of a page after a step, the last one if none is named, as a system shows it."""
    from kvspec.harness.systems import lacking
    from kvspec.refs import RefError, group_shapes, pages

    scenarios = chosen_scenarios([Path(name) for name in names], expression, max_pool_bytes)
    if len(scenarios) > 1:
        listed = "; ".join(f"{one.position.path}:{one.position.line} {one.name}" for one in scenarios[:5])
        refuse(f"--page needs one scenario, but there are {len(scenarios)}: choose one with -k: {listed}")
    (scenario,) = scenarios
    if lack := lacking(scenario, found_system(system)):
        refuse(f"{scenario.position}: {system} lacks {', '.join(lack)}")
    try:
        refs = pages(page, tuple(group_shapes(scenario.manager)))
    except RefError as error:
        refuse(f"--page {page}: {error}")
    last = len(scenario.steps) - 1
    if step is not None and step > last:
        refuse(f"--step {step}: there is no such step: the last one is {last}")
    steps, recorder = _walked(scenario, system, last if step is None else step, timeout)
    at, now = steps[-1]
    known = now.observation.requests
    if refs[0].request not in known:
        there = f"there {'are' if len(known) > 1 else 'is only'} {', '.join(sorted(known))}" if known else "there is none yet"
        refuse(f"--page {page}: after step {at.number} there is no request {refs[0].request!r}: {there}")
    for number, ref in enumerate(refs):
        _print(scenario, steps, recorder, ref, first=number == 0)


def _walked(scenario: Scenario, system: str, until: int, timeout: float) -> tuple[list[tuple[Step, Index]], Recorder]:
    """The steps up to one, with what the system shows after each, and who saw them."""
    from dataclasses import replace

    from kvspec.harness.timeline.record import Recorder, Seen, walk

    found: list[tuple[Step, Index]] = []

    def take(seen: Seen) -> None:
        found.append((seen.step, seen.now))

    recorder = Recorder(scenario.manager, take)
    raised = walk(replace(scenario, steps=scenario.steps[: until + 1]), system, found_system(system), {}, recorder, timeout)
    if raised:
        refuse(f"{scenario.position}: {system} {raised}; kvspec run shows where", 1)
    return found, recorder


def _print(scenario: Scenario, steps: list[tuple[Step, Index]], recorder: Recorder, ref: PageRef, first: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from kvspec.cli.wrapping import print_line
    from kvspec.harness.timeline.whereabouts import step_text, story, whereabouts

    console = Console(highlight=False, emoji=False)
    at, now = steps[-1]
    if not first:
        console.print()
    head = Text.assemble((str(ref), "bold"), (f"  after step {at.number}, {step_text(at)}  ", ""), (str(at.position), "dim"))
    print_line(console, head, 2)
    assert recorder.memory is not None
    said = list(whereabouts(scenario.manager, now, recorder.memory, ref, recorder.turns))
    width = max(len(one.title) for one in said)
    title = ""
    for one in said:
        line = Text(f"  {'' if one.title == title else one.title:{width}}  ", "bold")
        line.append(one.text, "not bold")
        line.append(f" ({', '.join(one.rules)})" if one.rules else "", "not bold dim")
        print_line(console, line, width + 4)
        title = one.title
    for number, (step, text) in enumerate(story(steps, ref)):
        line = Text(f"  {'' if number else 'so far':{width}}  ", "bold")
        line.append(f"step {step.number}: {text}", "not bold")
        line.append(f"  {step_text(step)}", "not bold dim")
        print_line(console, line, width + 4)
    rules = dict.fromkeys(rule for one in said for rule in one.rules)
    print_line(console, Text.assemble("  the rules: ", (f"kvspec explain {' '.join(rules)}", "bold")), 4)
