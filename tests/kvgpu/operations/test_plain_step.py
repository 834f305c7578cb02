"""A step that completes a block comes to the same in the plain case as in a transaction (R3.6, R4.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgpu.device.api import DeviceError
from kvgpu.errors import CopyFailed
from kvgpu.operations import plain_step
from kvgpu.requests.request import Request
from kvgpu.storage.copier import Copier
from kvgpu.storage.fences import Fence
from kvgpu.storage.pages import FIELDS, PLACE_FIELDS
from kvspec.config import ManagerConfig, Ownership
from tests.kvgpu.operations.calls import CONFIG, Calls

TWO = ManagerConfig.model_validate(
    {
        "tokens_per_block": 2,
        "levels": [{"kind": "gpu", "slots": 40}, {"kind": "host", "slots": 40}],
        "layers": [
            {"name": "one", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]},
            {"name": "two", "sliding_window": 4, "buffers": [{"role": "key", "bytes": 64, "sparse": True}]},
            {"name": "near", "sliding_window": 30, "sink_tokens": 2, "buffers": [{"role": "key", "bytes": 32}]},
        ],
    }
)
OTHER_SHAPES = ManagerConfig.model_validate(
    {
        "tokens_per_block": 2,
        "levels": [{"kind": "gpu", "slots": 10}, {"kind": "host", "slots": 6}],
        "layers": [
            {"name": "one", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]},
            {"name": "two", "sliding_window": 4, "buffers": [{"role": "key", "bytes": 32, "sparse": True}]},
        ],
    }
)

PRIVATE = TWO.model_copy(update={"ownership": Ownership.PRIVATE})

OF_ALL = [*["one"] * 24, *["record"] * 4, *["create"] * 4, "close", "evict", "gate", "own", "batch"]
OF_A_REQUEST = [*["resume", "grow", "enter"] * 3, *["step"] * 12, *["publish"] * 3, "suspend", "commit", "add", "remove"]


class Seen:
    """Everything that a manager keeps, after each call."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._names: dict[str, int] = {}  # of streams: lanes and tables have numbers that go on from manager to manager
        self.after: list[Any] = []

    def look(self) -> None:
        core = self._calls.manager._core
        pages = np.flatnonzero(core.pages.alive)
        names = FIELDS if core.backings is None else [*FIELDS, *PLACE_FIELDS]
        columns = {name: getattr(core.pages, name)[pages].tolist() for name in names}
        ready = [self._points(core.fences[number]) for number in core.pages.ready[pages].tolist()]
        pools = [self._pool(pool) for level in core.pools for pool in level]
        queues = [queue.ordered().tolist() for level in core.queues for queue in level]
        requests = [self._request(request) for request in self._calls.requests]
        batches = [(batch.dirty_rows(), [member and member.name for member in batch.members]) for batch in self._calls.batches]
        counters = [core.counters.view(since_reset=False), dict(core.counters.calls), core.operations, core.versions]
        self.after.append((pages.tolist(), columns, ready, pools, queues, requests, batches, counters))

    def _points(self, fence: Fence) -> list[tuple[int, int, str]]:
        return [(self._names.setdefault(point.key, len(self._names)), point.number, point.site) for point in fence.points]

    def _pool(self, pool: Any) -> Any:
        every = np.arange(pool.spec.slots, dtype=np.int32)
        fences = self._calls.manager.fences
        kept = [[self._points(fences[number]) for number in of.tolist()] for of in (pool.fence, pool.readers_seen(every))]
        return pool.page.tolist(), pool.free, pool.evictable, pool.free_slots().tolist(), kept

    def _request(self, request: Request) -> Any:
        groups = range(0 if request.closed else request.group_count)
        shown = [(request.indices(g).tolist(), request.levels(g).tolist(), request.eligible(g)) for g in groups]
        state = request.status, request.phase, request.capacity, request.history, request.version, request.acknowledged
        return request.name, *state, request.maybe_deferred, shown


def written(request: Request, targets: Any) -> None:
    manager: Any = request.manager
    groups = manager.layout.groups
    manager.write_payloads(request, [(target, bytes(groups[target.group].page_bytes)) for target in targets])


@pytest.mark.parametrize("config", [CONFIG, TWO, OTHER_SHAPES, PRIVATE], ids=["one group", "two groups", "two shapes", "private"])
@pytest.mark.parametrize("seed", range(2))
def test_the_plain_case_is_what_a_transaction_does(seed: int, config: ManagerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    step, plain = plain_step.step, []

    def counted(*args: Any) -> bool:
        done = step(*args)
        plain.append(done)
        return done

    runs = []
    for replacement in (counted, lambda *args: False):
        monkeypatch.setattr(plain_step, "step", replacement)

        faults = ["fail"] if seed % 2 else []
        calls = Calls(
            seed, config, written if seed % 3 else None, [*OF_ALL, *faults], OF_A_REQUEST, 16 if config in (TWO, PRIVATE) else 6
        )
        seen = Seen(calls)
        calls.run(seen.look)
        runs.append(seen.after)
    for number, (fast, slow) in enumerate(zip(*runs, strict=True)):
        assert fast == slow, number
    assert sum(plain) >= 4 or config not in (TWO, PRIVATE)


def test_a_copy_that_cannot_be_submitted_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(0, TWO, blocks=8)
    (request, stream), seen = (calls.manager.create("r"), calls.streams[0]), Seen(calls)
    calls.requests.append(request)
    assert calls.manager.resume(request, stream, decode=True)
    assert calls.manager.resize(request, 8)
    seen.look()

    def refused(*_: Any) -> None:
        raise DeviceError("no pinned memory")

    with monkeypatch.context() as patch:
        patch.setattr(Copier, "on_lane", refused)
        with pytest.raises(CopyFailed, match="copy refused: gpu to host, pool group 0, 2 pages: no pinned memory"):
            calls.manager.resize(request, None, 2)
    seen.look()
    before, after = ([*each[:-1], each[-1][:2], each[-1][3:]] for each in seen.after)
    assert before == after
    assert calls.manager.resize(request, None, 2)
    assert request.levels(0).tolist() == [1, 0, 0, 0]
