"""Plans that do not fit and copies that are refused have no leftovers (R3.14, R4.8)."""

from __future__ import annotations

import pytest

from kvgpu.device.api import DeviceError
from kvgpu.errors import CopyFailed, LogicError, OutOfPages
from kvgpu.requests.request import Request
from kvgpu.storage.texts import Text
from tests.kvgpu.build import Bench, bench, configuration, layer, payload


def shown(made: Bench, request: Request, group: int, block: int) -> bytes:
    made.device.settle()
    return made.manager.payload_now(int(request.groups[group].page[0, block]))


def test_a_growth_that_does_not_fit_undoes_what_it_evicted_and_let_go_of() -> None:
    made = bench(configuration(layer("a", 64), layer("w", 96, sliding_window=4), slots=(4, 1)))
    manager = made.manager
    other = made.running("other", 8, 8)
    manager.suspend(other)
    request = made.running("r", 8, 4)
    made.device.settle()
    before = made.state()
    assert not manager.resize(request, 32, 8)
    assert made.state() == before


@pytest.mark.parametrize("queued", [False, True])
def test_of_two_page_sizes_the_second_is_refused_and_the_first_undone(queued: bool) -> None:
    made = bench(
        configuration(layer("a", 64, sparse=True), layer("b", 96, sparse=True, sliding_window=64), slots=(4, 4)), poison=True
    )
    request = made.running("r", 12, 8)
    made.device.settle()
    version, free = request.version, made.manager.pool_info(1, 0).free
    made.manager.faults.arm("offload", call=2, queued=queued)
    with pytest.raises(CopyFailed):
        made.manager.enter_decode(request)
    assert not request.decoding and request.levels(0).tolist() == [0, 0, 0] and made.manager.pool_info(1, 0).free == free
    # The first submission was made and is undone behind a fence, so readiness changed in both cases.
    assert request.version != version
    assert made.manager.enter_decode(request)
    assert request.levels(0).tolist() == request.levels(1).tolist() == [1, 1, 0]
    for group in range(2):
        for block in range(2):
            assert shown(made, request, group, block) == payload(made.manager, "r", group, block)
    assert made.device.faults() == ()


def test_what_an_undone_copy_overwrote_is_put_back() -> None:
    # Two groups share the host; resuming both brings up the first into the slot of an evicted page, and the second is refused.
    made = bench(configuration(layer("a", 64), layer("b", 96, sliding_window=64), slots=(2, 4)))
    manager = made.manager
    first = made.running("first", 8, 8)
    manager.suspend(first)
    second = made.running("second", 8, 8)
    manager.suspend(second)
    assert first.table.level[first.pages(0)].tolist() == [1, 1]
    made.device.settle()
    before = made.state()
    manager.faults.arm("onboard", call=2)
    with pytest.raises(CopyFailed):
        manager.resume(first)
    made.device.settle()
    after = made.state()
    assert after == before
    assert manager.resume(first)
    for group in range(2):
        for block in range(2):
            assert shown(made, first, group, block) == payload(manager, "first", group, block)
    assert made.device.faults() == ()


def test_a_dropped_page_whose_slot_was_overwritten_comes_back_with_its_payload() -> None:
    made = bench(configuration(layer("a", 64), layer("b", 96, sliding_window=64), slots=(1, 1)))
    manager = made.manager
    request = made.running("r", 4, 4)
    manager.suspend(request)
    for group in range(2):
        manager.evict(0, group, 1)
    manager.seed_prefix([1, 2, 3, 4], 0, content=lambda prefix, group, block: payload(manager, "seed", group, block))
    made.device.settle()
    before = made.state()
    # Nothing can go down to the full host: both seeded pages are dropped, and the first is overwritten before the refusal.
    manager.faults.arm("onboard", call=2)
    with pytest.raises(CopyFailed):
        manager.resume(request)
    made.device.settle()
    assert made.state() == before
    assert manager.tree_blocks() == [Text((1, 2, 3, 4))]
    assert made.device.faults() == ()
    assert manager.resume(request)
    assert [shown(made, request, group, 0) for group in range(2)] == [payload(manager, "r", group, 0) for group in range(2)]


def test_an_eviction_by_hand_is_all_or_nothing() -> None:
    made = bench(configuration(layer("a", 64), slots=(4, 1)))
    request = made.running("r", 12, 0)
    made.manager.suspend(request)
    before = made.state()
    with pytest.raises(OutOfPages, match="only 1 can leave"):
        made.manager.evict(0, 0, 2)
    assert made.state() == before


def test_a_request_of_thousands_of_blocks_moves_in_one_submission_a_group() -> None:
    blocks = 3000
    made = bench(
        configuration(
            layer("a", 16, sparse=True),
            layer("b", 32, sparse=True, sliding_window=64),
            slots=(blocks + 1, blocks + 1),
            tokens_per_block=1,
        )
    )
    made.manager._core.hook = None
    request = made.running("r", blocks + 1, blocks, decode=True)
    assert made.manager.copy_calls()["offload"] == 2
    assert request.eligible(0) == request.eligible(1) == blocks
    made.manager.close(request)
    assert all(
        made.manager.pool_info(pool.level, pool.number).free == pool.slots
        for level in made.manager.layout.levels
        for pool in level
    )


def test_a_truncated_file_is_a_refused_copy_and_files_are_removed_in_the_end() -> None:
    made = bench(configuration(layer("a", 64), slots=(2, 1, 4)))
    manager = made.manager
    request = made.running("r", 8, 8)
    manager.suspend(request)
    manager.evict(0, 0, 1)
    manager.evict(1, 0, 1)
    made.device.settle()
    file = manager._core.pools[2][0].file
    assert file is not None
    path = file.path
    with path.open("r+b") as opened:
        opened.truncate(10)
    before = [(info.page, info.level, info.slot, info.status) for info in manager.page_infos()]
    with pytest.raises(CopyFailed, match="truncated"):
        manager.resume(request)
    assert [(info.page, info.level, info.slot, info.status) for info in manager.page_infos()] == before
    manager.shut()
    assert not path.parent.exists()


def test_memory_that_is_not_there_is_an_error_of_the_device() -> None:
    with pytest.raises(DeviceError, match="limit"):
        bench(configuration(layer("a", 1 << 20), slots=(4096,)))


def test_an_operation_leaves_a_manager_of_its_own_alone() -> None:
    one, two = (bench(configuration(layer("a", 64))) for _ in range(2))
    request = one.running("r", 4, 0)
    with pytest.raises(LogicError, match="another manager"):
        two.manager.suspend(request)
