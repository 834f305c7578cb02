"""R12.1. Snapshots that are taken while other threads change what they show: each is of one moment, and its version names it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from kvgpu.device.sim import SimDevice
from kvgpu.manager import Manager
from kvgpu.requests.request import Request, Snapshot
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig
from kvspec.observation import BAD

ROUNDS = 40
WRITERS = 4
CONFIG = ManagerConfig(
    tokens_per_block=2,
    levels=(LevelConfig(kind=LevelKind.GPU, slots=24), LevelConfig(kind=LevelKind.HOST, slots=24)),
    layers=(LayerConfig(name="main", buffers=(BufferConfig(role="key", bytes=64, sparse=True),)),),
)


@pytest.fixture(autouse=True)
def often_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def _must_be_of_one_moment(shot: Snapshot) -> tuple[object, ...]:
    indices, levels = shot.indices.tolist(), shot.levels.tolist()
    assert [index == BAD for index in indices] == [level < 0 for level in levels] == [fence is None for fence in shot.ready]
    mapped = [index for index in zip(levels, indices, strict=True) if index[0] >= 0]
    assert len(set(mapped)) == len(mapped), "two blocks in one slot"
    leading = next((block for block, level in enumerate(levels) if level != 1), len(levels))
    assert shot.eligible in (0, leading)
    return (tuple(indices), tuple(levels), shot.eligible, shot.row)


def test_a_snapshot_is_of_one_moment_and_its_version_names_that() -> None:
    device = SimDevice()
    manager = Manager(CONFIG, device)
    stream = device.stream("exec")
    requests = [manager.create(f"r{number}") for number in range(WRITERS)]
    failures: list[BaseException] = []
    finished = threading.Event()
    shown: dict[tuple[str, int], tuple[object, ...]] = {}

    def write(request: Request) -> None:
        try:
            assert manager.resume(request, stream)
            for _ in range(ROUNDS):
                manager.resize(request, 8, min(request.history + 2, 8))
                if request.history == 4:
                    manager.enter_decode(request)
                manager.suspend(request)
                while not manager.resume(request):
                    pass
        except BaseException as error:
            failures.append(error)

    def look() -> None:
        last = dict.fromkeys(requests, 0)
        try:
            while not finished.is_set():
                for request in requests:
                    shot = manager.snapshot(request, 0)
                    what = _must_be_of_one_moment(shot)
                    assert shot.version >= last[request]
                    last[request] = shot.version
                    assert shown.setdefault((shot.request, shot.version), what) == what, "one version, two contents"
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(request,)) for request in requests]
    looking = threading.Thread(target=look)
    for thread in (looking, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    finished.set()
    looking.join()
    if failures:
        raise failures[0]
    assert len(shown) > WRITERS * 5, "hardly any snapshot was taken beside the writers"
    assert device.faults() == ()
