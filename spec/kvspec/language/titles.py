"""Names of scenarios over the files of a run: reports, selections and saved failures know a scenario by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvspec.language.problems import Problem, shown
from kvspec.scenario import Position, Scenario


def repeated_names(scenarios: Iterable[Scenario]) -> Iterator[Problem]:
    """What is wrong with scenarios that have the name of an earlier one."""
    first: dict[str, Position] = {}
    for one in scenarios:
        before = first.setdefault(one.name, one.position)
        if before is not one.position:
            where = f"{before.path}:{before.line}"
            yield Problem(one.position, f"the name {shown(one.name)} is that of {where} too", "a name that no other scenario has")
