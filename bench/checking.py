"""What checking costs, on the simulated device with the order check on: ``python -m bench.checking``. Needs no GPU.

All in one process, in CPU time: random lifecycles (generated and replayed, as ``kvspec fuzz`` does), the whole suite (loaded and
replayed, as ``kvspec run`` does), and a scenario of 2,000 blocks and 30 steps. ``--before FOLDER`` measures a checkout of another
commit as well, in turns with this one, and prints ratios.
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

LIFECYCLES = 12
STEPS = 60
BLOCKS = 2_000
TOKENS = 16
OPTIONS = {"device": "sim", "schedule": "fifo", "check": "on"}
FIGURES = {
    "lifecycles": ("random lifecycles, checked steps a second", True),
    "suite": ("the suite, steps a second of replay", True),
    "loading": ("the suite, loading as a part of loading and replay, %", False),
    "long": (f"{BLOCKS} blocks x 30 steps, seconds", False),
    "loading_long": ("the same, seconds to load", False),
}
"""By figure: what it is, and whether more is better."""


def long_scenario(blocks: int = BLOCKS) -> str:
    """A long prompt, half of it in the tree, decode with a windowed group beside the sparse one, a second request: 30 steps."""
    prompt = blocks // 2 * TOKENS
    half, whole = list(range(prompt)), blocks * TOKENS
    more = list(range(prompt, prompt + blocks // 10 * TOKENS))
    steps: list[dict[str, Any]] = [
        {"seed_prefix": {"tokens": half, "level": "host"}},
        {"batch": {"name": "rows", "rows": 2, "blocks": blocks + 4}},
        {"create": {"request": "a", "tokens": half}},
        {"add": {"batch": "rows", "request": "a"}},
        {"resume": "a"},
        {"resize": {"request": "a", "capacity": prompt + blocks // 20 * TOKENS, "history": prompt}},
        {"resize": {"request": "a", "capacity": whole, "history": prompt + blocks // 10 * TOKENS}},
        {"publish": "rows"},
        {"commit": {"request": "a", "tokens": more}},
        {"enter_decode": "a"},
        {"publish": "rows"},
        {"resize": {"request": "a", "history": whole - TOKENS - 1}},
        {"publish": "rows"},
        {"record_read": {"batch": "rows", "stream": "exec"}},
        {"resize": {"request": "a", "history": whole - TOKENS}},
        {"publish": "rows"},
        {"snapshot": {"request": "a", "group": "main", "as": "s"}},
        {"create": {"request": "b", "tokens": half}},
        {"add": {"batch": "rows", "request": "b"}},
        {"resume": "b"},
        {"publish": "rows"},
        {"suspend": "a"},
        {"publish": "rows"},
        {"resume": "a"},
        {"resize": {"request": "b", "capacity": prompt + TOKENS}},
        {"enter_decode": "b"},
        {"publish": "rows"},
        {"record_read": {"batch": "rows", "stream": "exec"}},
        {"suspend": "b"},
        {"close": "a"},
    ]
    manager = {
        "tokens_per_block": TOKENS,
        "levels": [{"kind": "gpu", "slots": blocks + 100}, {"kind": "host", "slots": 2 * blocks}],
        "layers": [
            {"name": "main", "buffers": [{"role": "key", "bytes": 256, "sparse": True}]},
            {"name": "near", "sliding_window": 64 * TOKENS, "buffers": [{"role": "key", "bytes": 128}]},
        ],
    }
    return json.dumps({"kvspec": 1, "name": "a real request", "manager": manager, "steps": steps})


def lifecycles() -> dict[str, float]:
    """Checked steps a second of random lifecycles, their generation included."""
    from kvspec.audit import lifecycles as audit
    from kvspec.audit.managers import Profile
    from kvspec.harness.replay import Named
    from kvspec.harness.systems import find_system

    factory = find_system("kvgpu")
    try_lifecycle = getattr(audit, "try_lifecycle", None) or getattr(audit, "hunt")  # noqa: B009 - its name in older checkouts
    applied = 0

    class Counted(factory):  # type: ignore[misc, valid-type]
        def apply(self, op: Any) -> Any:
            nonlocal applied
            applied += 1
            return super().apply(op)

    systems = Named("kvgpu", Counted), Named("kvref", find_system("kvref"))
    start = time.process_time()
    for seed in range(LIFECYCLES):
        result = try_lifecycle(seed, STEPS, *systems, OPTIONS, Profile(gates=True, faults=True))
        assert result.found is None, result.found.text
    return {"lifecycles": applied / (time.process_time() - start)}


def suite() -> dict[str, float]:
    """Steps a second of replay, and how much of the time was loading."""
    from kvspec.harness.replay import Named, replay
    from kvspec.harness.systems import find_system
    from kvspec.language.loader import load_paths

    kvgpu, kvref = (Named(name, find_system(name)) for name in ("kvgpu", "kvref"))
    files = sorted(Path("scenarios").rglob("*.yaml"))
    start = time.process_time()
    scenarios, problems = load_paths(files)
    assert not problems
    loaded = time.process_time()
    results = [replay(scenario, kvgpu, kvref, OPTIONS) for scenario in scenarios]
    assert all(result.failure is None for result in results)
    end = time.process_time()
    return {
        "suite": sum(result.steps for result in results) / (end - loaded),
        "loading": 100 * (loaded - start) / (end - start),
    }


def long() -> dict[str, float]:
    """Seconds to load and to replay the long scenario."""
    from kvspec.harness.replay import Named, replay
    from kvspec.harness.systems import find_system
    from kvspec.language.loader import read_bytes

    text = long_scenario().encode()
    start = time.process_time()
    loaded = read_bytes(Path("long.yaml"), text)
    assert not loaded.problems, loaded.problems
    read = time.process_time()
    (scenario,) = loaded.scenarios
    assert len(scenario.steps) == 30
    result = replay(scenario, Named("kvgpu", find_system("kvgpu")), Named("kvref", find_system("kvref")), OPTIONS)
    assert result.failure is None, result.failure
    return {"long": time.process_time() - read, "loading_long": read - start}


PARTS: dict[str, Callable[[], dict[str, float]]] = {"lifecycles": lifecycles, "suite": suite, "long": long}


def measured(what: Sequence[str]) -> dict[str, float]:
    """The figures of this process, which does as those of ``kvspec run``. What is imported on first use is not measured."""
    from kvspec.collecting import seldom_collected

    warm()
    found: dict[str, float] = {}
    with seldom_collected():
        for part in what:
            gc.collect()  # what a part leaves is not to be collected in the next
            found |= PARTS[part]()
    return found


def warm() -> None:
    """One short lifecycle, so that nothing is imported or compiled in what is measured."""
    global LIFECYCLES
    kept, LIFECYCLES = LIFECYCLES, 1
    lifecycles()
    LIFECYCLES = kept


def _in(folder: Path, what: Sequence[str]) -> dict[str, float]:
    """The figures of the checkout in a folder, measured by this file in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder / "spec"), str(folder), os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--json", *what]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the measurement in {folder} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.checking", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*PARTS, []], help="all, if none is named")
    parser.add_argument("--before", type=Path, help="a checkout of another commit, measured in turns with this one")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is measured; the median counts")
    parser.add_argument("--json", action="store_true", help="measure once, in this process, and print the figures alone")
    chosen = parser.parse_args()
    what = chosen.what or list(PARTS)
    if chosen.json:
        print(json.dumps(measured(what)))
        return
    here = Path(__file__).resolve().parent.parent
    folders = [here] if chosen.before is None else [chosen.before.resolve(), here]
    runs: list[list[dict[str, float]]] = [[] for _ in folders]
    for _ in range(chosen.repeats):
        for folder, figures in zip(folders, runs, strict=True):
            figures.append(_in(folder, what))
    print("| figure | " + ("before | " if len(folders) > 1 else "") + "now |" + (" times better |" if len(folders) > 1 else ""))
    print("| --- |" + " --- |" * (3 if len(folders) > 1 else 1))
    for name in runs[0][0]:
        title, more = FIGURES[name]
        medians = [statistics.median(one[name] for one in figures) for figures in runs]
        cells = [f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in medians]
        if len(folders) > 1:
            cells.append(f"{medians[1] / medians[0] if more else medians[0] / medians[1]:.1f}")
        print(f"| {title} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
