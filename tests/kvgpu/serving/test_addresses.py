"""Base addresses: where kernels find a buffer's page from a slot."""

from __future__ import annotations

import pytest

from kvgpu import Manager, OutOfRange, buffer_address
from kvgpu.device.sim import SimDevice
from kvspec import ManagerConfig

CONFIG = ManagerConfig.model_validate(
    {
        "tokens_per_block": 4,
        "levels": [{"kind": "gpu", "slots": 4}, {"kind": "host", "slots": 4}, {"kind": "disk", "slots": 4}],
        "layers": [
            # Two pools: 32 bytes twice and 48 once.
            {"name": name, "buffers": [{"role": "a", "bytes": 32, "sparse": True}, {"role": "b", "bytes": size, "sparse": True}]}
            for name, size in (("one", 48), ("two", 32))
        ],
    }
)


@pytest.mark.parametrize("level", [0, 1])
def test_the_bytes_of_a_page_are_at_its_buffers_addresses(level: int) -> None:
    device = SimDevice()
    manager = Manager(CONFIG, device)
    request = manager.create("r")
    assert manager.resume(request, device.stream("exec"))
    assert manager.resize(request, 12, 0)
    payloads = [bytes(range(n, n + 144)) for n in (0, 50, 100)]
    manager.write_payloads(request, [(manager.writable(request, [n])[0], payload) for n, payload in enumerate(payloads)])
    assert manager.resize(request, 12, 12)
    assert level == 0 or manager.enter_decode(request)
    device.settle()
    assert request.levels(0).tolist() == [level] * 3
    memory = manager.pool_memory(level, 0)
    layout = {
        ("one", "a"): 0,
        ("two", "a"): 32,
        ("two", "b"): 64,
        ("one", "b"): 96,
    }  # the larger pool first, in it by layer (R1.6)
    for (layer, role), offset in layout.items():
        place = buffer_address(manager, layer, role, level)
        for block, slot in enumerate(request.indices(0).tolist()):
            found = memory.read_now(place.address + slot * place.slot_bytes - memory.address, place.nbytes)
            assert found == payloads[block][offset : offset + place.nbytes], (layer, role, block)
    assert buffer_address(manager, "one", level=level) == buffer_address(manager, "one", "a", level)


def test_what_has_no_address() -> None:
    manager = Manager(CONFIG, SimDevice())
    with pytest.raises(OutOfRange, match=r"no buffer one\.c"):
        buffer_address(manager, "one", "c")
    with pytest.raises(OutOfRange, match="no level 3"):
        buffer_address(manager, "one", "a", 3)
    with pytest.raises(OutOfRange, match="is a file"):
        buffer_address(manager, "one", "a", 2)


def test_scale_and_offset_count_in_pages_of_the_buffer() -> None:
    manager = Manager(CONFIG, SimDevice())
    # As above: three buffers in one pool, in it one.a, two.a, two.b; and one.b alone in the other.
    expected = {("one", "a"): (3, 0), ("two", "a"): (3, 1), ("two", "b"): (3, 2), ("one", "b"): (1, 0)}
    assert {at: (manager.page_index_scale(*at), manager.page_index_offset(*at)) for at in expected} == expected


@pytest.mark.parametrize("group", [-1, 1])
def test_groups_that_there_are_not_are_written_nowhere(group: int) -> None:
    device = SimDevice()
    manager = Manager(CONFIG, device)
    request = manager.create("r")
    assert manager.resume(request, device.stream("exec")) and manager.resize(request, 4, 0)
    with pytest.raises(OutOfRange, match="not all layer groups"):
        manager.writable(request, [0], [group])
