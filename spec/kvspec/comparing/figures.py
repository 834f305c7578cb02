"""What a workload costs under a policy: where its pages are, what moves, what waits. Counted from what the reference shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvspec.comparing.workloads import Workload
from kvspec.config import Level, Ownership
from kvspec.harness.systems import Factory
from kvspec.observation import Observation, PageStatus, Phase, RequestStatus
from kvspec.system import Outcome, Setup


@dataclass(frozen=True, slots=True)
class Figures:
    """A workload under a policy. Pages of all groups together; means over the operations.

    ``gpu``, ``host``: of every operation, the pages on that level after it. ``down``, ``up``: pages that went to a colder level,
    and that came to the GPU, each with bytes. ``copies``: pages copied on the GPU. ``attached``: R14.13. ``waited``: summed over
    the operations, the pages of complete history of decoding requests that were still on the GPU after it. ``false``: operations
    that were false, errors among them. ``eligible``, ``complete``: blocks on the host, and blocks of complete history of decoding
    requests, summed over the operations.
    """

    workload: str
    ownership: Ownership
    gpu: tuple[int, ...]
    host: tuple[int, ...]
    down: int
    down_bytes: int
    up: int
    up_bytes: int
    copies: int
    attached: int
    waited: int
    false: int
    eligible: int
    complete: int

    @property
    def operations(self) -> int:
        """The number of operations."""
        return len(self.gpu)

    @property
    def share(self) -> float:
        """Eligible history as a share of complete history; 1 where there is none."""
        return self.eligible / self.complete if self.complete else 1.0


def measured(workload: Workload, ownership: Ownership, factory: Factory, went: Callable[[], None] = lambda: None) -> Figures:
    """Go through a workload under a policy. ``went``: called after every operation.

    Raises ``RuntimeError`` if the workload says that it cannot go on, ``ValueError`` for a manager that cannot be.
    """
    manager = workload.manager.model_copy(update={"ownership": ownership})
    streams = ("exec", *(name for name in workload.streams if name != "exec"))
    system = factory(Setup(manager, streams, {}))
    sparse = {layer.name for layer in manager.layers if layer.sparse}
    gpu: list[int] = []
    host: list[int] = []
    waited = false = eligible = complete = 0
    seen = system.observe()
    try:
        calls = workload.calls()
        operation = next(calls, None)
        while operation is not None:
            outcome = system.apply(operation)
            seen = system.observe()
            levels = [page.level for page in seen.pages]
            gpu.append(levels.count(Level.GPU))
            host.append(levels.count(Level.HOST))
            false += _false(outcome)
            history = _history(seen, manager.tokens_per_block)
            waited += _waiting(seen, history, sparse)
            for name, blocks in history.items():
                counts = [view.eligible for (group, _), view in seen.requests[name].snapshots.items() if group in sparse]
                eligible, complete = eligible + sum(counts), complete + blocks * len(counts)
            went()
            try:
                operation = calls.send(outcome)
            except StopIteration:
                operation = None
    finally:
        system.close()
    groups = seen.lifetime.groups.values()
    return Figures(
        workload.name,
        ownership,
        tuple(gpu),
        tuple(host),
        sum(g.offload_pages for g in groups),
        sum(g.offload_bytes for g in groups),
        sum(g.onboard_pages for g in groups),
        sum(g.onboard_bytes for g in groups),
        sum(g.copy_pages for g in groups),
        sum(g.attach_pages for g in groups),
        waited,
        false,
        eligible,
        complete,
    )


def _false(outcome: Outcome) -> bool:
    return outcome.error is not None or outcome.value is False


def _history(seen: Observation, block: int) -> dict[str, int]:
    """The blocks of complete history of every active request in decode."""
    return {
        name: view.history // block
        for name, view in seen.requests.items()
        if view.status is RequestStatus.ACTIVE and view.phase is Phase.DECODE
    }


def _waiting(seen: Observation, history: dict[str, int], sparse: set[str]) -> int:
    """The pages on the GPU that are complete history of a decoding owner (R4.1): deferred, or without a slot on the host."""
    return sum(
        page.level is Level.GPU
        and page.status is PageStatus.LOCKED
        and page.group in sparse
        and any(page.block < history.get(name, 0) for name in page.owners)
        for page in seen.pages
    )
