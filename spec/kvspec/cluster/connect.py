"""A cluster that is there, or one on this machine; whether its workers can answer is asked before anything else is."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvspec.harness.sources import digest

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
"""The scheduler that is started on this machine, with workers of its own, and ends with the command."""
CONNECT_SECONDS = 10


class NoCluster(Exception):
    """There is no cluster, or its workers cannot answer. ``str()`` of it says why, and what to do."""


@contextlib.contextmanager
def connected(scheduler: str, systems: tuple[str, ...], jobs: int | None = None) -> Iterator[Client]:
    """A client of a cluster whose workers have the same code as this process.

    :param scheduler: ``tcp://host:port``, or ``local``.
    :param jobs: how many workers a local one gets; one for each core if left out.
    :raises NoCluster: see there.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise NoCluster("Dask is not installed: pip install 'kvspec[dask]'") from None
    if scheduler != LOCAL:
        _must_listen(scheduler)
        with Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False) as client:
            _must_answer(client, systems)
            yield client
        return
    with dask.config.set({"distributed.worker.daemon": False}):  # also while it runs: a worker that ended is started again
        cluster = LocalCluster(
            n_workers=jobs or os.cpu_count() or 1,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
        with cluster, Client(cluster, set_as_default=False) as client:
            _must_answer(client, systems)
            yield client


def _must_listen(scheduler: str) -> None:
    """Raise `NoCluster` if nobody listens at an address: a client of Dask that never connected takes long to end."""
    match = re.fullmatch(r"(?:tcp|tls)://(?:\[(.+)\]|([^:/]+)):(\d{1,5})", scheduler)
    if match is None:
        raise NoCluster(f"expected tcp://HOST:PORT, or {LOCAL}")
    try:
        socket.create_connection((match[1] or match[2], int(match[3])), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NoCluster(f"no scheduler answers there: {' '.join(str(error).split())}") from None


def able(systems: tuple[str, ...]) -> tuple[str, bool]:
    """Asked of a worker: the digest of its sources, or after ``!`` what is missing; and whether it may start processes."""
    from kvspec.harness.systems import SystemNotFound

    try:
        code = digest(systems)
    except (SystemNotFound, ImportError) as error:
        code = f"! {' '.join(str(error).split())}"
    return code, not multiprocessing.current_process().daemon


def _must_answer(client: Client, systems: tuple[str, ...]) -> None:
    """Raise `NoCluster` if there is no worker, or one has other code or may start no processes."""
    if not client.scheduler_info(n_workers=-1)["workers"]:
        raise NoCluster("the cluster has no worker: start some with `dask worker tcp://HOST:PORT`")
    own = digest(systems)
    for address, answer in client.run(able, systems, on_error="return").items():
        if isinstance(answer, BaseException):
            text = " ".join(str(answer).split())
            raise NoCluster(f"worker {address} has no kvspec: {text}: install the same kvspec there")
        code, may_start = answer
        if code.startswith("!"):
            raise NoCluster(f"worker {address}: {code[2:]}")
        if code != own:
            raise NoCluster(f"worker {address} has other sources than here: install the same kvspec, systems and Python there")
        if not may_start:
            raise NoCluster(
                f"worker {address} may start no processes, and each lifecycle has one of its own: "
                "start it with DASK_DISTRIBUTED__WORKER__DAEMON=False, or with --no-nanny"
            )
