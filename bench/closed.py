"""``python -m bench.closed``: what a manager still keeps of requests that were closed. Needs no GPU."""

from __future__ import annotations

import argparse

from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.manager import Manager
from kvspec.audit.footprint import footprint
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

TOKENS = 512
COUNTS = (1, 100, 10_000)


def config() -> ManagerConfig:
    return ManagerConfig(
        tokens_per_block=16,
        levels=(LevelConfig(kind=LevelKind.GPU, slots=64), LevelConfig(kind=LevelKind.HOST, slots=64)),
        layers=(
            LayerConfig(name="main", buffers=(BufferConfig(role="key", bytes=64, sparse=True),)),
            LayerConfig(name="index", buffers=(BufferConfig(role="key", bytes=32),)),
        ),
    )


def measure(one_name: bool, counts: tuple[int, ...] = COUNTS) -> list[tuple[int, int, int]]:
    """(closed requests, objects, bytes) of a manager without its device, of requests that committed ``TOKENS`` tokens."""
    device = SimDevice(SimOptions(check=False, poison=False))
    manager = Manager(config(), device)
    stream = device.stream("exec")
    rows = []
    for number in range(max(counts)):
        request = manager.create("r" if one_name else f"r{number}")
        assert manager.resume(request, stream) and manager.resize(request, TOKENS)
        manager.commit(request, [1_000_000 + number + token for token in range(TOKENS)])
        manager.close(request)
        manager.clear_reusable()
        del request
        if number + 1 in counts:
            device.settle()
            found = footprint(manager, without=(device,))
            rows.append((number + 1, found.objects, found.bytes))
    manager.shut()
    device.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.closed", description=__doc__)
    parser.add_argument("--most", type=int, default=max(COUNTS), help="leave out greater numbers of requests")
    most = parser.parse_args().most
    print("| names | closed requests | objects | bytes | bytes a request more |\n| --- | --- | --- | --- | --- |")
    for one_name in (True, False):
        rows = measure(one_name, tuple(count for count in COUNTS if count <= most))
        for count, objects, size in rows:
            more = (size - rows[0][2]) / max(count - 1, 1)
            print(f"| {'one' if one_name else 'distinct'} | {count:,} | {objects:,} | {size:,} | {more:,.0f} |")


if __name__ == "__main__":
    main()
