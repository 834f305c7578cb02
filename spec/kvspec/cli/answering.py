"""Whoever answers many questions at a time: processes of this machine, or the workers of a cluster (``--scheduler``)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kvspec.cli.refusing import refuse

if TYPE_CHECKING:
    from rich.console import Console

    from kvspec.cluster.cluster import Cluster
    from kvspec.harness.workers import Workers

Scheduler: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Have the workers of a Dask cluster do the work: tcp://HOST:PORT, or local for one on this machine.",
    ),
]
"""The option."""


@contextlib.contextmanager
def answering(
    module: str, systems: tuple[str, ...], jobs: int, scheduler: str | None, size: int = 16
) -> Iterator[Workers | Cluster]:
    """Workers for questions about functions of a module that drive some systems, by name; leaves if there are none.

    :param jobs: how many processes, here or in a cluster that is started on this machine.
    :param size: how many questions a worker of a cluster gets at a time.
    """
    if scheduler is not None:
        with on_cluster(scheduler, module, systems, jobs, size) as cluster:
            yield cluster
        return
    from kvspec.harness.runner import process_context
    from kvspec.harness.workers import Workers

    with Workers(jobs, process_context(module, *systems)) as workers:
        yield workers


@contextlib.contextmanager
def on_cluster(scheduler: str, module: str, systems: tuple[str, ...], jobs: int, size: int) -> Iterator[Cluster]:
    """The workers of a cluster; see `answering`."""
    from kvspec.cluster.cluster import Cluster
    from kvspec.cluster.connect import NoCluster, connected

    try:
        with connected(scheduler, systems, jobs) as client, Cluster(client, module, systems, size) as cluster:
            yield cluster
    except NoCluster as error:
        refuse(f"--scheduler {scheduler}: {error}")


def tell_of_workers(console: Console, workers: Workers | Cluster) -> None:
    """Which workers of a cluster ended while they were at something."""
    for name in getattr(workers, "died", ()):
        console.print(f"worker {name} ended; what it was at went to another", style="yellow", markup=False, soft_wrap=True)
