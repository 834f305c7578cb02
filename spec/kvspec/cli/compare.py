"""``kvspec compare``: what workloads cost under each policy of ownership."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvspec.cli.refusing import found_system, must_be_writable, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvspec.comparing.figures import Figures
    from kvspec.comparing.workloads import Workload
    from kvspec.config import Ownership
    from kvspec.harness.systems import Factory


def compare(
    workloads: Annotated[
        list[str] | None, typer.Argument(metavar="[WORKLOAD]...", help="chats, agents, document, or a scenario file.")
    ] = None,
    ownership: Annotated[str, typer.Option(metavar="POLICIES", help="The policies to compare.")] = "shared,private",
    system: Annotated[str, typer.Option(help="The system that goes through them; it has to offer the policies.")] = "kvref",
    csv: Annotated[Path | None, typer.Option(help="Write the figures to this file, too.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the pages on the GPU, one line a policy, into this file.")] = None,
    parameters: Annotated[bool, typer.Option("--parameters", help="Say which parameters the workloads have, and stop.")] = False,
) -> None:
    """Go through workloads under each policy of ownership (section 14 of the rules), and show what each costs.

    A WORKLOAD is chats, agents or document, which come with the tool, or a scenario file, of which only the operations count.
    Parameters follow a colon: chats:requests=32,prefix=1024. Without a workload all three are gone through.
    """
    from rich.console import Console

    from kvspec.comparing.picture import picture
    from kvspec.comparing.tables import as_csv, table
    from kvspec.comparing.workloads import BUILT_IN

    if parameters:
        for name, kind in BUILT_IN.items():
            typer.echo(f"{name}: {kind.title}\n  " + ", ".join(f"{key}={value}" for key, value in kind.defaults().items()))
        return
    for option, path in (("--csv", csv), ("--svg", svg)):
        if path is not None:
            must_be_writable(option, path)
    policies = _policies(ownership)
    factory = found_system(system)
    chosen = [workload for text in workloads or list(BUILT_IN) for workload in _workloads(text)]
    console = Console()
    compared: list[list[Figures]] = []
    with console.status("") as status:
        for workload in chosen:
            compared.append(_measured(workload, policies, factory, lambda text: status.update(text)))
            console.print(workload.name, style="bold", highlight=False, markup=False, soft_wrap=True)
            console.print(table(compared[-1]))
    if csv is not None:
        csv.write_text(as_csv([one for figures in compared for one in figures]), encoding="utf-8")
    if svg is not None:
        svg.write_text(picture(compared), encoding="utf-8")


def _policies(text: str) -> list[Ownership]:
    from kvspec.config import Ownership

    known = [one.value for one in Ownership]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            refuse(
                f"--ownership {text}: there is no policy {name!r}: expected {' or '.join(known)}, or both with a comma between"
            )
    return [Ownership(name) for name in dict.fromkeys(names)]


def _workloads(text: str) -> list[Workload]:
    """The workloads that an argument names: one that comes with the tool, or those of a scenario file."""
    from kvspec.cli.choosing import chosen_scenarios
    from kvspec.comparing.workloads import BUILT_IN, WorkloadError, built_in, of_scenario
    from kvspec.language.loader import DEFAULT_MAX_POOL_BYTES

    name, _, given = text.partition(":")
    if name not in BUILT_IN:
        if not Path(text).exists():
            refuse(f"no workload {text!r}: expected {', '.join(BUILT_IN)}, or a scenario file that is there")
        return [of_scenario(one) for one in chosen_scenarios([Path(text)], None, DEFAULT_MAX_POOL_BYTES)]
    values: dict[str, int] = {}
    for part in given.split(",") if given else ():
        key, _, value = part.partition("=")
        if not value.strip().isdecimal():
            refuse(f"workload {text!r}: {part!r} is no parameter: expected NAME=NUMBER, as in {name}:requests=8")
        values[key.strip()] = int(value)
    try:
        return [built_in(name, values)]
    except WorkloadError as error:
        refuse(str(error))


def _measured(workload: Workload, policies: list[Ownership], factory: Factory, say: Callable[[str], None]) -> list[Figures]:
    from kvspec.comparing.figures import measured

    found: list[Figures] = []
    for policy in policies:
        steps = 0

        def went(policy: Ownership = policy) -> None:
            nonlocal steps
            steps += 1
            if steps % 50 == 0:
                say(f"{workload.name}, {policy.value}: {steps} operations")

        try:
            found.append(measured(workload, policy, factory, went))
        except RuntimeError as error:
            refuse(f"{workload.name}, {policy.value}: {error}", 1)
        except ValueError as error:
            refuse(f"{workload.name}: {error}")
    return found
