"""Steps of a scenario in the terminal: what each changed, or the whole state, in lines that break between words alone."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kvspec.cli.state_lines import Line, state_lines
from kvspec.cli.wrapping import print_line, print_report
from kvspec.harness.timeline.changes import Change, row_text
from kvspec.harness.timeline.record import Divergence, Seen
from kvspec.harness.timeline.timeline import Timeline
from kvspec.harness.timeline.wording import arguments, folded, said
from kvspec.scenario import Scenario, Step

MAX_SUBJECT = 26
"""How wide the column of what has changed is at most."""
INDENT = 5


class Printer:
    """Prints a scenario, and its steps as they are seen."""

    def __init__(self, console: Console, scenario: Scenario, only: int | None, request: str | None, full: bool) -> None:
        """Print the head. ``only``: of one step; ``request``: what concerns this one; ``full``: the whole state."""
        self.console = console
        self.scenario = scenario
        self.only = only
        self.request = request
        self.full = full
        self.before: dict[str, Line] = {}
        self._line(Text(scenario.name, "bold underline"), 0)
        self._line(Text(f"{scenario.position}  {', '.join(scenario.rules)}", "dim"), 0)

    def take(self, seen: Seen) -> None:
        """Print a step, unless it was not asked for."""
        before = self.before
        if self.full:
            self.before = {line.key: line for line in state_lines(self.scenario.manager, seen.now.observation)}
        if self.only is not None and self.only != seen.step.number:
            return
        mine = [one for one in seen.changes if self.request is None or self.request in one.requests]
        if self.request is not None and not mine and not _names(seen.step, self.request) and seen.divergence is None:
            return
        self._head(seen)
        if self.full:
            self._state(before)
        else:
            self._changes(mine)
        if seen.divergence is not None:
            self._divergence(seen, seen.divergence)

    def end(self, timeline: Timeline) -> None:
        """Print why it ended before its last step, if it did."""
        if timeline.report is not None and (self.only is None or self.only >= timeline.last):
            self.console.print()
            if self.only is not None and self.only > timeline.last:
                self._line(Text(f"the two systems differ at step {timeline.last} already", "yellow"), 0)
            print_report(self.console, timeline.report)
        if timeline.stopped:
            self.console.print()
            self._line(Text(timeline.stopped, "yellow"), 0)

    def _head(self, seen: Seen) -> None:
        step, outcome = seen.step, seen.outcome
        self.console.print()
        head = Text.assemble((f"{step.number:3d}  ", "dim"), (step.op.verb, "bold cyan"))
        if given := arguments(step.op):
            head.append(f" {given}")
        if value := said(outcome):
            head.append(f"  {value}", "red" if outcome.error is not None else "green")
        if outcome.message:
            head.append(f": {outcome.message}" if value else f"  {outcome.message}", "dim")
        self._line(head, INDENT)
        if step.note is not None:
            self._line(Text(f"{'':{INDENT}}{step.note}", "dim italic"), INDENT)

    def _changes(self, changes: list[Change]) -> None:
        width = max((len(one.subject) for one in changes if len(one.subject) <= MAX_SUBJECT), default=0)
        for one in changes:
            line = Text(" " * INDENT)
            line.append(f"{one.subject:{width}}  ", "bold")
            line.append(one.text)
            if one.why:
                line.append(f": {one.why}", "yellow")
            self._line(line, INDENT + width + 2)

    def _state(self, before: dict[str, Line]) -> None:
        for line in self.before.values():
            if self.request is not None and self.request not in line.requests:
                continue
            changed = before.get(line.key) != line
            shown = Text(f"   {'*' if changed else ' '} {line.text}", "" if changed else "dim")
            if line.why:
                shown.append(f"  {line.why}", "yellow")
            self._line(shown, INDENT + 2)
        for key in before:
            if key not in self.before and self.request is None:
                self._line(Text(f"   - {key}", "red"), INDENT)

    def _divergence(self, seen: Seen, other: Divergence) -> None:
        """The rows of blocks that differ, of both systems."""
        for key, marks in sorted(other.marks.items(), key=lambda item: str(item[0])):
            if key[0] != "levels":
                continue
            name = f"{key[1]}.{key[2]}" + (f" beam {key[3]}" if key[3] else "")
            for title, facts in (("reference", seen.facts), ("tested", other.facts)):
                line = Text(f"{'':{INDENT}}{title:9}  {name}  ", "red")
                line.append(row_text(facts.get(key, ())))
                self._line(line, INDENT + 2)
            blocks = f"block{'s' if len(marks) > 1 else ''} {folded(marks, 'blocks') if len(marks) > 1 else marks[0]}"
            self._line(Text(f"{'':{INDENT}}{'':9}  differ at {blocks}", "red"), INDENT + 2)

    def _line(self, text: Text, indent: int) -> None:
        print_line(self.console, text, indent)


def _names(step: Step, request: str) -> bool:
    """Whether a step names a request."""
    given = step.op.model_dump(mode="json")
    return request in {
        given.get("request"),
        *(one.get("request") for one in given.get("requests") or () if isinstance(one, dict)),
    }
