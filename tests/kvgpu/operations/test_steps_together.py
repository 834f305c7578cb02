"""Members of a batch that complete a block in one call come to the same together and one by one (R8.9, R4.5)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from kvgpu.batch.batch import Batch
from kvgpu.device.api import DeviceError
from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.errors import CopyFailed, InvalidArgument
from kvgpu.manager import Manager
from kvgpu.operations import plain_step
from kvgpu.storage.copier import Copier
from kvgpu.storage.fences import Fence
from kvspec.config import ManagerConfig
from tests.kvgpu.operations.test_plain_step import TWO, written

ROWS, BLOCKS = 6, 14
CONFIG = TWO.model_copy(update={"levels": tuple(level.model_copy(update={"slots": 240}) for level in TWO.levels)})


class Scene:
    """A batch of decoding members on the streams of ``of``, by row."""

    def __init__(self, of: str, hook: Any = None, config: ManagerConfig = CONFIG) -> None:
        self.device = SimDevice(SimOptions())
        self.manager = Manager(config, self.device, payload_hook=hook)
        self.streams = {name: self.device.stream(name) for name in "abx"}
        self.batch = Batch(self.manager, "rows", len(of), BLOCKS)
        self.members: list[Any] = [None] * len(of)
        for row, name in enumerate(of):
            self.begin(row, name, f"r{row}")

    def begin(self, row: int, stream: str, name: str) -> None:
        """A new member, with one block of history: with the first a sink begins."""
        request = self.manager.create(name)
        assert self.manager.resume(request, self.streams[stream], decode=True)
        assert self.manager.resize(request, 2 * BLOCKS)
        assert self.manager.resize(request, None, 2)
        self.batch.add(request, row)
        self.members[row] = request

    def further(self, tokens: int) -> Any:
        """Every member takes so many tokens."""
        return self.batch.resize(None, [each.history + tokens for each in self.members], self.streams["a"])

    def shown(self) -> Any:
        """What there is to see, gates among it, but for which events stand for it."""
        core = self.manager._core
        groups = range(len(core.layout.groups))
        requests = [
            (each.history, each.version, [(each.indices(g).tolist(), each.levels(g).tolist(), each.eligible(g)) for g in groups])
            for each in self.members
        ]
        pages = [(info.serial, info.level, info.slot, self._gates(info.ready)) for info in self.manager.page_infos()]
        pools = []
        for level, numbers in enumerate(core.pools):
            for number, pool in enumerate(numbers):
                info = self.manager.pool_info(level, number)
                pools.append((pool.free_slots().tolist(), [self._gates(fence) for fence in info.fences]))
        counters = core.counters.view(since_reset=False), dict(core.counters.calls), core.operations, core.versions
        return requests, pages, pools, counters, self.batch.dirty_rows()

    def _gates(self, fence: Fence) -> list[str]:
        return sorted({gate for point in fence.points for gate in self.device.position(point.event).gates})


@pytest.mark.parametrize("hook", [None, written], ids=["nobody writes", "who completes a block writes"])
@pytest.mark.parametrize("of", ["aaaaaa", "aabbab"])
@pytest.mark.parametrize("seed", range(3))
def test_together_is_one_by_one(seed: int, of: str, hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, together = plain_step.steps, []

    def counted(core: Any, wanted: Iterable[Any]) -> int:
        together.append(real(core, wanted))
        return together[-1]

    runs = []
    for replacement in (counted, lambda core, wanted: real(core, islice(wanted, 1))):
        monkeypatch.setattr(plain_step, "steps", replacement)
        choose, scene, seen, gates = random.Random(seed), Scene(of, hook), [], []
        for turn in range(40):
            with suppress(InvalidArgument):
                match choose.choice([*["step"] * 4, "read", "gate", "again"]):
                    case "step":
                        scene.further(choose.choice([1, 1, 2]))
                    case "read":
                        scene.batch.record_read(scene.streams[choose.choice("abx")])
                    case "gate" if gates:
                        gates.pop().open()
                    case "gate":
                        gates.append(scene.device.gate(scene.streams[choose.choice("abx")], f"gate {turn}"))
                    case "again":
                        row = choose.randrange(len(of))
                        scene.manager.close(scene.members[row])
                        scene.begin(row, of[row], f"again {turn}")
            seen.append(scene.shown())
        for gate in gates:
            gate.open()
        scene.device.settle()
        assert scene.device.faults() == ()
        runs.append(seen)
    for turn, (one, other) in enumerate(zip(*runs, strict=True)):
        assert one == other, turn
    assert max(together) > 1 or hook is not None


def test_steps_that_go_together_are_one_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    real, submitted = Copier.on_lane, []
    monkeypatch.setattr(Copier, "on_lane", lambda self, *args: submitted.append(args) or real(self, *args))
    scene = Scene("aaabb")
    submitted.clear()
    assert scene.further(2) == (True,) * 5
    assert len(submitted) == 2
    assert scene.manager.copy_calls()["offload"] == 5 + 5


def test_where_they_cannot_be_submitted_together_each_is_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    real, tried = Copier.on_lane, []

    def refusing(self: Any, source: Any, *args: Any) -> Any:
        tried.append(len(source.slots))
        if len(tried) < 3:
            raise DeviceError("no pinned memory")
        return real(self, source, *args)

    scene = Scene("aaa")
    monkeypatch.setattr(Copier, "on_lane", refusing)
    with pytest.raises(CopyFailed, match="gpu to host, pool group 0, 2 pages: no pinned memory"):
        scene.further(2)
    assert tried == [6, 2, 4]
    assert [each.history for each in scene.members] == [2, 4, 4]
    assert scene.manager.copy_calls()["offload"] == 3 + 2
    assert scene.batch.dirty_rows() == ()
    assert scene.further(0) == (True,) * 3
