"""What random lifecycles consisted of: how often each verb was called and how it ended; and what they could not contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvspec.cli.refusing import refuse

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.audit.able import Able
    from kvspec.audit.fitting import Range
    from kvspec.audit.reached import Reached

MOST_REASONS = 6
"""How many things that are in the way are listed."""


def print_calls(console: Console, reached: Reached, verbs: Sequence[str]) -> None:
    """A table of the verbs, then those that never succeeded, then those that were never called.

    :param verbs: those that both systems have.
    """
    from rich.table import Table

    table = Table("call", box=None)
    for title in ("times", "done", "false"):
        table.add_column(title, justify="right")
    table.add_column("errors", overflow="fold")
    called = sorted({verb for verb, _ in reached.calls}, key=lambda verb: (-_times(reached, verb), verb))
    for verb in called:
        results = {result: count for (one, result), count in reached.calls.items() if one == verb}
        done, false = results.pop("done", 0), results.pop("false", 0)
        errors = ", ".join(f"{result} {count}" for result, count in sorted(results.items(), key=lambda one: (-one[1], one[0])))
        table.add_row(verb, str(_times(reached, verb)), str(done), str(false), errors or "-")
    console.print(table)
    if reached.fetched:
        hits, misses, lives = (reached.fetched[name] for name in ("hits", "misses", "lifecycles"))
        console.print(f"fetched: {hits} hits and {misses} misses in {lives} lifecycles", highlight=False)
    never_done = [f"{verb} ({_times(reached, verb)})" for verb in called if not reached.calls[verb, "done"]]
    if never_done:
        console.print(f"never succeeded: {', '.join(never_done)}", style="yellow", soft_wrap=True, highlight=False)
    if never := sorted(set(verbs) - set(called)):
        console.print(f"never called: {', '.join(never)}", soft_wrap=True, highlight=False)


def _times(reached: Reached, verb: str) -> int:
    return sum(count for (one, _), count in reached.calls.items() if one == verb)


def tell_what_is_left(console: Console, able: Able, system: str) -> Range:
    """What lifecycles cannot contain, if there is something; leaves, with what is in the way, if there can be none at all.

    :returns: the managers that fit.
    """
    from kvspec.audit.fitting import Range, in_the_way
    from kvspec.harness.replay import Raised, guarded
    from kvspec.ops import VERBS

    answer = guarded(lambda: (found := Range.of(able), in_the_way(able, found)))
    if isinstance(answer, Raised):
        lines = [f"{system} raised while it was asked what it lacks: {answer.text}", *(f"  {frame}" for frame in answer.frames)]
        refuse("\n".join(lines))
    fits, obstacles = answer
    if obstacles:
        most = obstacles[0]
        lines = [f"no lifecycle can be made for {system}, as it lacks:"]
        lines += [f"  {one.what}" for one in obstacles[:MOST_REASONS]]
        lines += [f"  and {len(obstacles) - MOST_REASONS} more things"] if len(obstacles) > MOST_REASONS else []
        lines.append(
            f"what is there: {', '.join(sorted(able.verbs)) or 'no verb'}; managers: {fits or 'none that was tried fits'}"
        )
        alone = f": with it alone {most.opens} of {most.tried} managers that were tried would do" if most.opens else ""
        lines.append(f"begin with: {most.what}{alone}")
        refuse("\n".join(lines))
    assert fits is not None
    if not (fits.whole and able.everything):
        missing = sorted(VERBS.keys() - able.verbs)
        console.print(f"lifecycles of: {', '.join(sorted(able.verbs))}", soft_wrap=True, highlight=False)
        if missing:
            console.print(f"without: {', '.join(missing)}", soft_wrap=True, highlight=False, style="dim")
        console.print(f"managers: {fits}", soft_wrap=True, highlight=False)
    return fits
