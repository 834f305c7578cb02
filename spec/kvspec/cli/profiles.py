"""``kvspec profiles``, and what the scenarios of a run need, by profile, and how much of each profile passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.choosing import chosen_scenarios
from kvspec.cli.refusing import found_system, refuse
from kvspec.profiles import EXTENSIONS, ProfileError, needs, profile, said_needs, title
from kvspec.scenario import Scenario

if TYPE_CHECKING:
    from kvspec.harness.difference import Result


def of_its_policies(scenarios: Sequence[Scenario], system: str) -> list[Scenario]:
    """The scenarios that ask for no policy which a system does not offer: the others are of no profile of it."""
    from kvspec.harness.policies import lacking_policies

    factory = found_system(system)
    return [one for one in scenarios if not lacking_policies(one, factory)]


def profiles(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders of scenarios; the suite if left out.")] = None,
    against: Annotated[str, typer.Option(help="The reference, which says where blocks are partly full.")] = "kvref",
    asks_more: Annotated[
        bool, typer.Option("--asks-more", help="Name the scenarios that would hold without something that they ask for.")
    ] = False,
) -> None:
    """Count the scenarios of each profile: how many need the prefix cache alone, and how many one extension and nothing else."""
    from kvspec.harness.report import path_text
    from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES

    scenarios = chosen_scenarios(paths, None, DEFAULT_MAX_POOL_BYTES)
    if asks_more:
        from kvspec.audit.asking import asks_more as could_do_without
        from kvspec.harness.replay import Named

        reference = Named(against, found_system(against))
        found = [(one, less) for one in scenarios if (less := could_do_without(one, reference))]
        for one, less in found:
            typer.echo(f"{path_text(one.position.path)}:{one.position.line}  {one.name}\n  holds without: {', '.join(less)}")
        typer.echo(f"{len(found)} of {len(scenarios)} scenarios would hold with less; would they still show what they are for?")
        return
    counts: dict[frozenset[str], int] = {}
    for need in needed(scenarios, against, frozenset(EXTENSIONS) - {"partial"}):
        counts[need] = counts.get(need, 0) + 1
    order = [frozenset[str](), *(frozenset({name}) for name in EXTENSIONS)]
    width = max(len(title(need)) for need in order)
    for need in order:
        alone, with_it = counts.get(need, 0), sum(count for other, count in counts.items() if need <= other)
        typer.echo(f"{title(need):{width}}  {alone:4d}" + (f"  and {with_it - alone} that need more besides" if need else ""))
    typer.echo(f"{len(scenarios)} scenarios")


def of_profile(scenarios: Sequence[Scenario], text: str, against: str) -> list[Scenario]:
    """The scenarios that need no more than a profile gives; leaves with what there is if it is none.

    :param against: the reference, which says where blocks are partly full.
    """
    try:
        allowed = profile(text)
    except ProfileError as error:
        refuse(f"--profile {error}")
    found = [one for one, need in zip(scenarios, needed(scenarios, against, allowed), strict=True) if need <= allowed]
    if not found:
        refuse(f"--profile {text}: none of {len(scenarios)} scenarios needs so little")
    return found


def needed(scenarios: Sequence[Scenario], against: str, allowed: frozenset[str]) -> list[frozenset[str]]:
    """What each scenario needs; where that is more than is allowed anyway, whether it needs partial blocks is left open."""
    from kvspec.harness.replay import Raised, guarded
    from kvspec.harness.systems import setup_for

    factory = found_system(against)
    found = []
    for one in scenarios:
        need = said_needs(one)
        if need <= allowed and "partial" not in allowed:
            whole = guarded(lambda one=one: needs(one, lambda scenario: factory(setup_for(scenario, {}))))  # type: ignore[misc]
            need = need if isinstance(whole, Raised) else whole
        found.append(need)
    return found


def fits(scenarios: Sequence[Scenario], results: Sequence[Result], against: str) -> list[str]:
    """How much of the profile ``prefix`` and of each of its extensions passed, a line each; nothing of a profile that none is of.

    A scenario that needs two extensions counts for neither: it is of the profile that has both.
    """
    tally: dict[frozenset[str], list[Result]] = {}
    by_place = {(result.position, result.index): result for result in results}
    for one, need in zip(scenarios, _needed_with_one(scenarios, against), strict=True):
        result = by_place.get((one.position, one.index))
        if result is not None and len(need) <= 1:
            tally.setdefault(need, []).append(result)
    order = [frozenset[str](), *(frozenset({name}) for name in EXTENSIONS)]
    lines = [(title(need), tally[need]) for need in order if need in tally]
    width = max((len(name) for name, _ in lines), default=0)
    return [f"{name:{width}}  {n_of_n(inside)}" for name, inside in lines]


def _needed_with_one(scenarios: Sequence[Scenario], against: str) -> list[frozenset[str]]:
    """What each scenario needs, worked out in full for those that need at most one extension besides partial blocks."""
    few = [one for one in scenarios if len(said_needs(one)) <= 1]
    known: Mapping[int, frozenset[str]] = {
        id(one): need for one, need in zip(few, needed(few, against, frozenset(EXTENSIONS) - {"partial"}), strict=True)
    }
    return [known.get(id(one), said_needs(one)) for one in scenarios]


def n_of_n(results: Sequence[Result]) -> str:
    """``58 of 60 passed, 1 failed, 1 skipped``."""
    counts = {name: sum(result.verdict.value == name for result in results) for name in ("passed", "failed", "skipped")}
    more = "".join(f", {counts[name]} {name}" for name in ("failed", "skipped") if counts[name])
    return f"{counts['passed']} of {len(results)} passed{more}"
