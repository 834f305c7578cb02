"""``python -m bench.hit_rates``: how much of what a step selects is there already, beside the best possible. Needs no GPU."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kvgpu.batch.batch import Batch
from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.manager import Manager
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

SELECTS, BLOCKS, ROWS, STEPS = 16, 1024, 8, 400
"""Blocks that a step selects, of so many, for each of these rows, so many times."""
WARM = 100
"""Steps before counting begins."""
DRIFTS = {"slow": 0.998, "medium": 0.98, "fast": 0.9}
"""What a block's score keeps from step to step; the rest is drawn anew."""
TIMES = (1, 2, 3, 4)
"""Reserved slots, in selections."""

Selections = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Rate:
    """Shares of the selected blocks that were there. ``repeated``: that the step before had selected, too."""

    drift: str
    times: int
    hits: float
    best: float
    repeated: float


def drifting(keeps: float, seed: int) -> Selections:
    """int32 ``[steps, rows, selects]``: the blocks with the highest scores, which wander about means of their own."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((ROWS, BLOCKS))
    wander = rng.standard_normal((ROWS, BLOCKS))
    found = np.empty((STEPS, ROWS, SELECTS), np.int32)
    for step in range(STEPS):
        found[step] = np.argsort(-(means + wander), axis=1)[:, :SELECTS]
        wander = keeps * wander + np.sqrt(1 - keeps * keeps) * rng.standard_normal((ROWS, BLOCKS))
    return found


def best_hits(selected: Sequence[Sequence[int]], entries: int) -> list[int]:
    """By step, the hits of a cache that knows what will be selected, and evicts what is needed again last."""
    uses: dict[int, list[int]] = defaultdict(list)
    for step, numbers in enumerate(selected):
        for number in numbers:
            uses[number].append(step)
    cached: set[int] = set()
    hits = []
    for numbers in selected:
        for number in numbers:
            uses[number].pop(0)
        hits.append(len(cached.intersection(numbers)))
        others = sorted(cached.difference(numbers), key=lambda number: uses[number][0] if uses[number] else len(selected))
        cached = {*numbers, *others[: entries - len(numbers)]}
    return hits


def fetched_hits(selections: Selections, entries: int) -> float:
    """The share of hits after ``WARM`` steps of fetches by ``kvgpu``, on the simulated device."""
    device = SimDevice(SimOptions(check=False, poison=False))
    buffer = BufferConfig(role="key", bytes=16, sparse=True, selected=SELECTS, reserve=entries)
    slots = ROWS * (BLOCKS + entries)
    config = ManagerConfig(
        tokens_per_block=1,
        levels=(LevelConfig(kind=LevelKind.GPU, slots=slots), LevelConfig(kind=LevelKind.HOST, slots=slots)),
        layers=(LayerConfig(name="main", buffers=(buffer,)),),
    )
    manager, stream = Manager(config, device), device.stream("exec")
    batch = Batch(manager, "rows", ROWS, BLOCKS)
    for row in range(ROWS):
        request = manager.create(f"r{row}")
        assert manager.resume(request, stream) and manager.resize(request, BLOCKS, BLOCKS) and manager.enter_decode(request)
        batch.add(request)
    batch.publish(stream)
    fetch = batch.fetch("main")
    for step, selected in enumerate(selections):
        if step == WARM:
            manager.counters(reset=True)
        fetch.selected.host_array()[: fetch.nbytes] = selected.view(np.uint8).reshape(-1)
        fetch.run(stream)
        device.settle()
    counts = manager.counters().groups[0]
    manager.shut()
    device.close()
    return float(counts["fetch_hits"]) / (counts["fetch_hits"] + counts["fetch_misses"])


def measure() -> list[Rate]:
    """All drifts and sizes; always the same."""
    rates = []
    for seed, (drift, keeps) in enumerate(DRIFTS.items()):
        selections = drifting(keeps, seed)
        rows = [selections[:, row].tolist() for row in range(ROWS)]
        again = [len(set(now) & set(before)) for row in rows for before, now in zip(row[WARM - 1 :], row[WARM:], strict=False)]
        for times in TIMES:
            best = [hits for row in rows for hits in best_hits(row, times * SELECTS)[WARM:]]
            rates.append(
                Rate(
                    drift,
                    times,
                    fetched_hits(selections, times * SELECTS),
                    float(np.mean(best)) / SELECTS,
                    float(np.mean(again)) / SELECTS,
                )
            )
    return rates


def table(rates: Sequence[Rate]) -> str:
    """The rates as a table in Markdown."""
    lines = [
        "| drift | of a selection in the one before | n | hits | hits at best | of the misses, unavoidable |",
        "|" + " --- |" * 6,
    ]
    for rate in rates:
        unavoidable = (1 - rate.best) / (1 - rate.hits)
        lines.append(
            f"| {rate.drift} | {rate.repeated:.1%} | {'' if rate.times == 1 else rate.times}k | {rate.hits:.1%} "
            f"| {rate.best:.1%} | {unavoidable:.0%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hit_rates", description=__doc__)
    parser.add_argument("--json", type=Path, help="a file for the raw figures, which `python -m bench.plot` draws")
    chosen = parser.parse_args()
    rates = measure()
    print(table(rates))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"hit_rates": [asdict(rate) for rate in rates]}, indent=1))


if __name__ == "__main__":
    main()
