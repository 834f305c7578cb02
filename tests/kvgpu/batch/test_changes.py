"""Long rows: whatever happened between two publications, the tables show the members, and little travels if little changed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from kvgpu import runs
from kvgpu.batch import tables
from kvgpu.batch.batch import Batch
from kvgpu.device.sim import SimDevice
from kvgpu.errors import CopyFailed
from kvgpu.manager import Manager
from kvgpu.requests.request import Request
from kvgpu.upload.packing import gather
from kvgpu.upload.packing.form import CHANGE, MIXED, UNIT
from kvgpu.upload.packing.packer import Packer
from kvspec.config import ManagerConfig

BLOCKS = 531
CONFIG = {
    "tokens_per_block": 2,
    "levels": [{"kind": "gpu", "slots": 4 * BLOCKS}, {"kind": "host", "slots": 6 * BLOCKS}],
    "layers": [
        {"name": "main", "buffers": [{"role": "key", "bytes": 16, "sparse": True}]},
        {"name": "near", "sliding_window": 64, "buffers": [{"role": "key", "bytes": 16, "sparse": True}]},
    ],
}


class Rows:
    """Two requests in a batch of three rows, and what each publication packed: (work, entries used), and heads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = SimDevice()
        self.stream = self.device.stream("s")
        self.manager = Manager(ManagerConfig.model_validate(CONFIG), self.device)
        self.batch = Batch(self.manager, "rows", rows=3, blocks=BLOCKS, levels=True)
        self.packed: list[tuple[int, int]] = []
        self.heads: list[list[list[int]]] = []
        finish = Packer.finish

        def noted(packer: Packer) -> None:
            finish(packer)
            self.packed.append((packer.work, packer._used))
            self.heads.append(packer._packed.heads[: packer._pairs].tolist())

        monkeypatch.setattr(Packer, "finish", noted)

    def decoding(self, name: str, blocks: int, history: int) -> Request:
        """A decoding request of so many blocks, which joins the batch."""
        request = self.manager.create(name)
        assert self.manager.resume(request, self.stream)
        assert self.manager.resize(request, 2 * blocks, 2 * history)
        assert self.manager.enter_decode(request)
        self.batch.add(request)
        return request

    def check(self) -> None:
        """The entries on the device are those of the members."""
        self.device.settle()
        layout = self.batch.tables.layout
        memory = np.frombuffer(self.batch.tables.storage.memory.read_now(0, layout.nbytes), dtype=np.uint8)
        slots, counts, levels = layout.page_table(memory), layout.num_blocks(memory), layout.page_level(memory)
        for row, member in enumerate(self.batch.members):
            for group in range(2):
                shown = [] if member is None else member.indices(group).tolist()
                assert slots[group, row].tolist() == shown + [-1] * (BLOCKS - len(shown))
                of_blocks = [] if member is None else member.levels(group).tolist()
                assert levels[group, row].tolist() == of_blocks + [-1] * (BLOCKS - len(of_blocks))
                assert counts[group, row] == (0 if member is None else member.eligible(group))
        assert self.device.faults() == ()


@pytest.fixture(params=[(False, False), (True, False), (False, True)], ids=["narrow", "wide", "long"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rows]:
    # As if one slot of the larger level were one too many for three bytes.
    wide, as_if_long = request.param
    monkeypatch.setattr(tables, "NARROW_SLOTS", 6 * BLOCKS - wide)
    if as_if_long:
        monkeypatch.setattr(gather, "THREADS_FROM", 0)
        monkeypatch.setattr(runs, "LONG", 1)
    made = Rows(monkeypatch)
    assert made.batch.tables.form.wide == wide
    yield made
    made.manager.shut()
    made.device.close()


@pytest.mark.parametrize("moves", [1, 2, 64, 132, 133, 140])
def test_any_number_of_moves_between_two_publications(rows: Rows, moves: int) -> None:
    request = rows.decoding("a", BLOCKS, 60)
    rows.batch.publish(rows.stream)
    rows.check()
    for _ in range(moves):
        assert rows.manager.resize(request, None, request.history + 2)
    assert rows.batch.publish(rows.stream) == (0,)
    rows.check()
    work, entries = rows.packed[-1]
    if CHANGE * moves <= BLOCKS:
        assert moves <= work <= 2 * moves, "more was written than moved"
        assert entries <= 2 * (2 * CHANGE * moves + UNIT)
    else:
        assert work == 0


def test_a_row_that_shows_what_it_did_is_written_in_no_block(rows: Rows) -> None:
    request = rows.decoding("a", 100, 50)
    rows.batch.publish(rows.stream)
    rows.manager._core.renew(request)
    assert rows.batch.publish(rows.stream) == (0,)
    assert rows.packed[-1] == (1, 0)
    rows.check()


def test_high_bits_that_are_the_same_in_a_whole_row_are_told_by_its_head(rows: Rows) -> None:
    request = rows.decoding("a", BLOCKS, 60)
    rows.batch.publish(rows.stream)
    assert [head[4] for head in rows.heads[-1][:2]] == 2 * [MIXED if gather.THREADS_FROM else 0]
    rows.check()
    rows.manager.suspend(request)
    rows.batch.publish(rows.stream)
    assert [head[4] for head in rows.heads[-1]] == 2 * [MIXED if gather.THREADS_FROM else -1]
    rows.check()


@pytest.mark.parametrize("seed", range(8))
def test_random_rows(rows: Rows, seed: int) -> None:
    rng = random.Random(seed)
    members: list[Request] = []
    small = published = 0
    for step in range(90):
        what = rng.random()
        if len(members) < 2 and what < 0.3:
            blocks = rng.randint(30, BLOCKS)
            members.append(rows.decoding(f"r{step}", blocks, rng.randint(1, blocks - 1)))
        elif members and what < 0.75:
            member = rng.choice(members)
            if member.active:
                blocks = min(BLOCKS, member.blocks + rng.choice((0, 0, 0, 1, 1, 5)))
                history = min(2 * blocks, member.history + rng.choice((0, 1, 2, 2, 6)))
                assert rows.manager.resize(member, 2 * blocks, history)
            else:
                assert rows.manager.resume(member, rows.stream, decode=True)
        elif members and what < 0.8:
            member = rng.choice(members)
            if member.active:
                rows.manager.suspend(member)
        elif members and what < 0.83:
            rows.manager.close(members.pop(rng.randrange(len(members))))
        else:
            refused = rng.random() < 0.25 and bool(rows.batch.dirty_rows())
            if refused:
                rows.manager.faults.arm("upload", queued=rng.random() < 0.5)
                with pytest.raises(CopyFailed):
                    rows.batch.publish(rows.stream)
            else:
                published += bool(rows.batch.publish(rows.stream))
                small += bool(rows.packed) and rows.packed[-1][0] > 0
                rows.check()
    rows.batch.publish(rows.stream)
    rows.check()
    assert published > 3 and small, "nothing was written by its changes alone"
