"""More memory than there is: a clear error, the state as before, nothing kept (R3.14, R4.8, R8.1, section 9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgpu.device.api import DeviceError
from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.manager import Manager
from kvspec.audit.leftovers import Allowed
from kvspec.errors import ErrorKind
from tests.kvgpu.scene import apply, changed, config, done, limit_memory, seen, system


def in_use(device: SimDevice) -> int:
    return device._bytes


@pytest.mark.parametrize(("gpu", "host", "name"), [(1 << 16, 4, "device"), (4, 1 << 16, "pinned")])
def test_pools_that_do_not_fit_are_an_error_and_keep_nothing(folder: Path, gpu: int, host: int, name: str) -> None:
    device = SimDevice(SimOptions(memory_limit=1 << 20))
    with pytest.raises(DeviceError, match=rf"4194304 bytes for '{name} pool group 0'.* limit of 1048576 bytes"):
        Manager(config(gpu, host), device)
    assert in_use(device) == 0
    fits = Manager(config(), device)
    fits.shut()
    assert in_use(device) == 0
    device.close()


@pytest.mark.parametrize("kind", ["device", "pinned"])
def test_memory_that_the_machine_has_not(kind: str) -> None:
    device = SimDevice(SimOptions(memory_limit=1 << 62))
    with pytest.raises(DeviceError, match="this machine has no 1152921504606846976 bytes for 'pool'"):
        device.allocate(kind, 1 << 60, "pool")
    assert in_use(device) == 0
    device.close()


@pytest.mark.parametrize("spare", [0, 300, 4096])
def test_a_batch_without_memory_is_refused(spare: int) -> None:
    it = system(config(disk=None))
    done(it, "  - create: r\n  - resume: r\n  - resize: {request: r, capacity: 8, history: 4}")
    before, used = seen(it), in_use(it._device)  # type: ignore[arg-type]
    limit_memory(it, spare)
    (outcome,) = apply(it, "  - batch: {name: rows, rows: 64, blocks: 64}")
    assert outcome.error is ErrorKind.OUT_OF_PAGES
    assert "no memory for the tables of batch 'rows'" in outcome.message
    assert not changed(before, seen(it))
    limit_memory(it, None)
    it._device.settle()
    done(it, "  - batch: {name: rows, rows: 64, blocks: 64}\n  - close_batch: rows")
    assert in_use(it._device) == used  # type: ignore[arg-type]
    it.close()


def test_a_payload_that_finds_no_buffer_is_a_refused_copy() -> None:
    it = system(config(disk=None))
    done(it, "  - create: r\n  - resume: r\n  - resize: {request: r, capacity: 8}\n  - gate: {stream: exec, as: shut}")
    done(it, "  - create: other\n  - resume: other\n  - resize: {request: other, capacity: 4, history: 4}")
    before = seen(it)
    limit_memory(it, 0)
    (outcome,) = apply(it, "  - resize: {request: r, history: 4}")
    assert outcome.error is ErrorKind.COPY_FAILED
    assert "payloads cannot be written" in outcome.message
    assert not changed(before, seen(it))
    limit_memory(it, None)
    done(it, "  - resize: {request: r, history: 4}\n  - open: shut\n  - enter_decode: r")
    assert not it.observe().faults
    it.close()


def test_a_move_that_finds_no_buffer_is_a_refused_copy() -> None:
    it = system(config(disk=None))
    done(it, "  - create: r\n  - resume: r\n  - gate: {stream: exec, as: shut}")
    done(it, "  - resize: {request: r, capacity: 12, history: 8}")
    before = seen(it)
    limit_memory(it, 0)
    (outcome,) = apply(it, "  - enter_decode: r")
    assert outcome.error is ErrorKind.COPY_FAILED
    assert "limit" in outcome.message
    assert not changed(before, seen(it), Allowed(queued=False))
    limit_memory(it, None)
    done(it, "  - enter_decode: r\n  - open: shut")
    shown = it.observe()
    assert not shown.faults
    assert [level.label for level in shown.requests["r"].snapshots["kv", 0].levels if level is not None] == [
        "host",
        "host",
        "gpu",
    ]
    it.close()


def test_a_publication_that_finds_no_staging_buffer_is_a_refused_upload() -> None:
    it = system(config(disk=None))
    done(it, "  - create: r\n  - resume: r\n  - batch: {name: rows, rows: 1, blocks: 4}\n  - add: {batch: rows, request: r}")
    done(it, "  - resize: {request: r, capacity: 4}\n  - gate: {stream: exec, as: shut}\n  - publish: rows")
    done(it, "  - resize: {request: r, capacity: 8}\n  - publish: rows\n  - resize: {request: r, capacity: 12}")
    before = seen(it)
    limit_memory(it, 0)
    (outcome,) = apply(it, "  - publish: rows")
    assert outcome.error is ErrorKind.COPY_FAILED
    assert "upload of a publication of batch 'rows' was refused" in outcome.message
    assert not changed(before, seen(it))
    limit_memory(it, None)
    done(it, "  - publish: rows\n  - open: shut")
    shown = it.observe()
    assert not shown.faults
    assert shown.batches["rows"].dirty_rows == ()
    it.close()
