"""CPU time, of the calling thread, of a decode iteration, and of what it is made of: ``python -m bench.iteration``. Needs no GPU.

Two groups; every request is one token further each time, and one in 64 completes a block: resize with its publication, the record
of its reads, both; then single steps and a close of each member; then decode entries. On the simulated device the order check is
off. ``--before FOLDER`` measures a checkout of another commit as well, in turns with this one, and prints ratios. A host may be
half as fast a minute later: there are several turns, and of each figure the median is printed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SHAPES = ("256x512", "1024x512", "256x15625")
GROUPS = 2
TOKENS = 64
SPARE = 8
WARM = 10
MEMORY = 64 << 30
FIGURES = {
    "iteration": "an iteration",
    "resize": "resize with its publication",
    "record_read": "record_read",
    "collecting": "garbage collections in them, the longest",
    "token": "a step of one token",
    "step": "a step that completes a block",
    "close": "a close",
    "entry": "decode entry, a page",
}
"""By figure: what it is. All are CPU microseconds."""


def config(slots: int) -> Any:
    """A manager of two sparse layer groups, which differ by window, with small pages."""
    from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

    buffers = (BufferConfig(role="key", bytes=16, sparse=True),)
    layers = [LayerConfig(name=f"g{n}", sliding_window=1_000_000 * n or None, buffers=buffers) for n in range(GROUPS)]
    levels = [LevelConfig(kind=level, slots=slots) for level in (LevelKind.GPU, LevelKind.HOST)]
    return ManagerConfig(tokens_per_block=TOKENS, levels=tuple(levels), layers=tuple(layers))


def opened(kind: str) -> Any:
    """The device. The simulated one only remembers what it is told, which is little beside what is measured."""
    from kvgpu.device.open import open_device
    from kvgpu.device.sim import SimOptions

    return open_device(kind, SimOptions(check=False, memory_limit=MEMORY))


def measure(kind: str, shape: str, repeats: int) -> dict[str, tuple[float, float]]:
    """By figure: median and 99th percentile."""
    from kvgpu.batch.batch import Batch
    from kvgpu.manager import Manager

    rows, blocks = map(int, shape.split("x"))
    device = opened(kind)
    manager = Manager(config(rows * GROUPS * (blocks + SPARE)), device)
    stream = device.stream("exec")
    batch = Batch(manager, "rows", rows, blocks + SPARE)
    times: dict[str, list[float]] = {name: [] for name in FIGURES}
    histories: list[int] = []
    for number in range(rows):
        request = manager.create(f"r{number}")
        manager.resume(request, stream)
        histories.append(blocks * TOKENS + number % TOKENS)
        assert manager.resize(request, (blocks + SPARE) * TOKENS, histories[-1])
        device.settle()
        times["entry"].append(timed(device, lambda: manager.enter_decode(request)) / (blocks * GROUPS))
        batch.add(request)

    began = 0.0

    def collecting(phase: str, _info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
        else:
            times["collecting"].append(1e6 * (time.thread_time() - began))

    gc.collect()
    for turn in range(WARM + repeats):
        histories = [history + 1 for history in histories]
        if turn == WARM:
            gc.callbacks.append(collecting)
        start = time.thread_time()
        batch.resize(None, histories, stream)
        between = time.thread_time()
        batch.record_read(stream)
        end = time.thread_time()
        device.settle()
        if turn >= WARM:
            for name, taken in (("resize", between - start), ("record_read", end - between), ("iteration", end - start)):
                times[name].append(1e6 * taken)
    gc.callbacks.remove(collecting)
    members = [member for member in batch.members if member is not None]
    for member in members:
        if (member.history + 1) % TOKENS:
            times["token"].append(timed(device, lambda: manager.resize(member, None, member.history + 1)))
        times["step"].append(timed(device, lambda: manager.resize(member, None, (member.history_blocks + 1) * TOKENS)))
    for member in members:
        times["close"].append(timed(device, lambda: manager.close(member)))
    manager.shut()
    device.close()
    times["collecting"] = [max(times["collecting"], default=0.0)]
    return {name: (statistics.median(each), statistics.quantiles([*each, each[-1]], n=100)[98]) for name, each in times.items()}


def timed(device: Any, call: Callable[[], object]) -> float:
    """CPU microseconds of a call."""
    start = time.thread_time()
    call()
    taken = 1e6 * (time.thread_time() - start)
    device.settle()
    return taken


Measured = dict[str, tuple[float, float]]


def _in(folder: Path, kind: str, shape: str, repeats: int) -> Measured:
    """The figures of the checkout in a folder, measured by this file in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder / "spec"), str(folder), os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--device", kind, "--repeats", str(repeats), "--one", shape]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the measurement in {folder} failed:\n{done.stderr}")
    figures: Measured = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.iteration", description=__doc__)
    parser.add_argument("shapes", nargs="*", help=f"rows x blocks; {' '.join(SHAPES)} if none is named")
    parser.add_argument("--device", choices=["sim", "cuda", "auto"], default="auto")
    parser.add_argument("--before", type=Path, help="a checkout of another commit, measured in turns with this one")
    parser.add_argument("--repeats", type=int, default=200, help="iterations")
    parser.add_argument("--turns", type=int, default=3, help="how often each shape is measured")
    parser.add_argument("--json", type=Path, help="a file for the raw figures")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one is not None:
        print(json.dumps(measure(chosen.device, chosen.one, chosen.repeats)))
        return
    here = Path(__file__).resolve().parent.parent
    folders = {"now": here} if chosen.before is None else {"before": chosen.before.resolve(), "now": here}
    raw: dict[str, dict[str, Measured]] = {}
    for shape in chosen.shapes or SHAPES:
        turns = [
            {name: _in(folder, chosen.device, shape, chosen.repeats) for name, folder in folders.items()}
            for _ in range(chosen.turns)
        ]
        raw[shape] = {name: middle([turn[name] for turn in turns]) for name in folders}
        print(table(shape, raw[shape]), flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(raw, indent=1))


def middle(turns: Sequence[Measured]) -> Measured:
    """Of each figure the median over all turns."""
    return {
        name: (statistics.median(turn[name][0] for turn in turns), statistics.median(turn[name][1] for turn in turns))
        for name in turns[0]
    }


def table(shape: str, raw: dict[str, Measured]) -> str:
    """The figures of one shape in Markdown."""
    head = ["CPU us: median / 99th percentile", *raw, *(["before / now"] if len(raw) > 1 else [])]
    lines = [f"\n{shape}, {GROUPS} groups\n", f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for name, title in FIGURES.items():
        pairs = [measured[name] for measured in raw.values()]
        cells = [f"{median:,.3f}" if median < 1 else f"{median:,.0f} / {late:,.0f}" for median, late in pairs]
        if len(pairs) > 1:
            cells.append(f"{pairs[0][0] / pairs[1][0]:.2f}x" if pairs[1][0] else "")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
