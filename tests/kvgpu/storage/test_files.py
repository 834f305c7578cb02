"""The disk is full, not there, or changes under us: a clear error, the state as before, nothing left over (section 9)."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvgpu.device.api import DeviceError
from kvspec.errors import ErrorKind
from tests.kvgpu.scene import apply, changed, config, done, seen, system

SEED = """
  - seed_prefix: {tokens: [1, 2, 3, 4], level: disk}
  - create: {request: r, tokens: [1, 2, 3, 4]}
"""


@contextmanager
def no_file_beyond(nbytes: int) -> Iterator[None]:
    """A disk that is full, as far as this process is concerned."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def the_file(folder: Path) -> Path:
    (found,) = folder.rglob("pool-group-0")
    return found


def test_a_full_disk_is_an_error_at_once(folder: Path) -> None:
    with (
        no_file_beyond(100),
        pytest.raises(DeviceError, match=r"no 256 bytes for the disk level in .*; make room or configure fewer"),
    ):
        system()
    system().close()


def test_a_disk_without_space_names_the_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DeviceError, match="No space left on device"):
        system()


def test_the_space_is_there_from_the_start(folder: Path) -> None:
    it = system(config(disk=1000))
    assert os.stat(the_file(folder)).st_blocks * 512 >= 64 * 1000
    it.close()


@pytest.mark.parametrize("place", ["missing", "a file", "read only"])
def test_no_folder_for_the_files(place: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"missing": folder / "none", "a file": Path(__file__), "read only": Path("/proc")}[place]
    monkeypatch.setattr(tempfile, "tempdir", str(where))
    with pytest.raises(DeviceError, match=r"no folder for the files of the disk level: .*set TMPDIR"):
        system()


def test_a_file_in_the_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder / "kvgpu-x"

    class Taken(tempfile.TemporaryDirectory[str]):
        def __init__(self, **arguments: str) -> None:
            super().__init__(**arguments)
            Path(self.name, "pool-group-0").mkdir()

    monkeypatch.setattr(tempfile, "TemporaryDirectory", Taken)
    with pytest.raises(DeviceError, match=r"no file for the disk level at .*: File exists"):
        system()
    assert not made.exists()


@pytest.mark.parametrize("step", ["resume: r", "prefetch: {request: r, level: gpu}", "prefetch: {request: r, level: host}"])
def test_a_truncated_file_refuses_the_copy_and_nothing_else_happens(folder: Path, step: str) -> None:
    it = system()
    done(it, SEED)
    before, kept = seen(it), the_file(folder).read_bytes()
    os.truncate(the_file(folder), 10)
    (outcome,) = apply(it, f"  - {step}")
    assert outcome.error is ErrorKind.COPY_FAILED
    assert "has 10 of 256 bytes: something truncated it" in outcome.message
    the_file(folder).write_bytes(kept)
    assert not changed(before, seen(it))
    done(it, f"  - {step}\n  - suspend: r" if step.startswith("resume") else f"  - {step}\n  - resume: r")
    assert not it.observe().faults
    it.close()


def test_a_truncated_file_refuses_evictions_and_seeds(folder: Path) -> None:
    it = system()
    done(it, "  - seed_prefix: {tokens: [1, 2, 3, 4], level: host}")
    before = seen(it)
    os.truncate(the_file(folder), 0)
    for step in ("evict: {level: host, pages: 1}", "seed_prefix: {tokens: [7, 7, 7, 7], level: disk}"):
        (outcome,) = apply(it, f"  - {step}")
        assert outcome.error is ErrorKind.COPY_FAILED, step
        assert "something truncated it" in outcome.message
        assert not changed(before, seen(it)), step
    it.close()


BEHIND_A_GATE = """
  - create: d
  - resume: d
  - resize: {request: d, capacity: 8, history: 4}
  - gate: {stream: exec, as: shut}
  - enter_decode: d
  - suspend: d
  - prefetch: {request: r, level: host}
"""


def test_a_file_that_is_cut_after_the_submission_is_a_fault_of_the_run(folder: Path) -> None:
    it = system(config(host=1))
    done(it, SEED + BEHIND_A_GATE)  # one page is to go to the disk and another to come from there, behind the gate
    kept = the_file(folder).read_bytes()
    assert not it.observe().faults
    os.truncate(the_file(folder), 0)
    done(it, "  - open: shut")
    it._device.settle()
    faults = it._device.faults()
    assert len(faults) == 2
    assert all("has 0 of 256 bytes: something truncated it" in fault for fault in faults)
    the_file(folder).write_bytes(kept)
    it.close()


def test_files_that_somebody_removed_do_not_hinder_the_end(folder: Path) -> None:
    it = system()
    done(it, SEED)
    for path in folder.iterdir():
        shutil.rmtree(path)
    done(it, "  - resume: r")  # an open file stays usable
    it.close()
    it.close()


@pytest.mark.parametrize("access", ["1", "2"])
def test_an_access_can_be_refused_by_an_option(folder: Path, access: str) -> None:
    it = system(fail_file=access)
    outcomes = [outcome.error for outcome in apply(it, f"{SEED}  - resume: r\n  - resume: r")]
    refused = 0 if access == "1" else 2
    assert outcomes[refused] is ErrorKind.COPY_FAILED
    assert outcomes.count(ErrorKind.COPY_FAILED) == 1
    it.close()


def test_the_option_is_a_number(folder: Path) -> None:
    with pytest.raises(DeviceError, match="option fail_file is 'soon': expected a whole number"):
        system(fail_file="soon")
