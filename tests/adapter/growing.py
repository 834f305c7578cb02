"""A manager that can do little: requests that grow, on the GPU alone, and share nothing."""

from __future__ import annotations

from collections.abc import Iterator

from kvspec.adapter import Facts, Page, Request, adapter
from kvspec.config import LayerKind, ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.system import Setup


def unfit(manager: ManagerConfig) -> Iterator[str]:
    """What about a configuration it cannot do."""
    if len(manager.levels) > 1:
        yield "a host level"
    if len(group_names(manager)) > 1:
        yield "several layer groups"
    if any(layer.kind is LayerKind.SSM or layer.sliding_window for layer in manager.layers):
        yield "windows or states"


@adapter(
    errors={KeyError: ErrorKind.OUT_OF_RANGE},
    unfit=unfit,
    unobserved={"payloads", "order", "tree", "eviction", "counters", "events", "versions", "device", "staging"},
)
class Growing:
    """Requests that grow, one layer group, no prefixes."""

    def __init__(self, setup: Setup) -> None:
        (self.group,) = group_names(setup.manager)
        self.size = setup.manager.tokens_per_block
        self.free = list(range(setup.manager.levels[0].slots or 0))
        self.requests: dict[str, tuple[bool, int, list[int]]] = {}

    def create(self, request: str) -> int:
        self.requests[request] = False, 0, []
        return 0

    def resume(self, request: str) -> bool:
        _, length, slots = self.requests[request]
        self.requests[request] = True, length, slots
        return True

    def resize(self, request: str, capacity: int | None) -> bool:
        active, length, slots = self.requests[request]
        capacity = length if capacity is None else capacity
        more = -(-capacity // self.size) - len(slots)
        if more > len(self.free):
            return False
        slots = slots + [self.free.pop() for _ in range(more)]
        self.requests[request] = active, capacity, slots
        return True

    def observe(self) -> Facts:
        """What it shows."""
        requests = {
            name: Request(
                "active" if active else "suspended", "prefill", length, 0, {self.group: [Page("gpu", x) for x in slots]}
            )
            for name, (active, length, slots) in self.requests.items()
        }
        return Facts(requests, {"gpu": len(self.free)})
