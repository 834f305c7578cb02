"""Scenarios for the tests of timelines, and the timelines of them."""

from __future__ import annotations

from pathlib import Path

from kvgpu.testing.mutants import mutants
from kvref.system import Reference
from kvspec.harness.timeline.timeline import Timeline, see_both, see_one
from kvspec.language import load_file

ROOT = Path(__file__).parents[2]
GAP = ROOT / "scenarios" / "deferral" / "language_example.yaml"
LEVELS = """\
kvspec: 1
name: three levels, a gate, and held and droppable pages
rules: [R2.2, R4.2, R10.1]
manager:
  tokens_per_block: 4
  levels: [{kind: gpu, slots: 10}, {kind: host, slots: 4}, {kind: disk, slots: 8}]
  layers:
    - {name: main, buffers: [{role: key, bytes: 64, sparse: true}]}
    - {name: near, sliding_window: 8, buffers: [{role: key, bytes: 32}]}
streams: [side]
steps:
  - seed_prefix: {tokens: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], level: gpu}
  - seed_prefix: {tokens: [0, 1, 2, 3, 90, 91, 92, 93], level: host}
  - create: {request: alice, tokens: [0, 1, 2, 3, 4, 5, 6, 7]}
  - create: {request: bob, tokens: [0, 1, 2, 3, 4, 5, 6, 7]}
  - create: {request: carol, tokens: [0, 1, 2, 3, 90, 91, 92, 93, 94]}
  - resume: {request: alice, stream: side}
  - resume: bob
  - gate: {stream: side, as: slow}
  - resize: {request: alice, capacity: 24, history: 18}
  - batch: {name: rows, rows: 3, blocks: 10, levels: true}
  - add: {batch: rows, request: alice}
  - add: {batch: rows, request: bob}
  - enter_decode: alice
    note: blocks 0 and 1 are deferred (R4.2)
  - publish: rows
  - resize: {request: alice, capacity: 40}
  - suspend: bob
  - publish: rows
  - resume: carol
  - open: slow
  - publish: rows
"""
BROKEN = "R6.3 the eligible count jumps over a gap"
"""A named break by which the gap of ``GAP`` is not seen."""


class Other(Reference):
    """The reference under another name."""


def seen(path: Path) -> Timeline:
    """The timeline of the reference alone."""
    return see_one(load_file(path)[0], "kvref", {})


def diverging(path: Path = GAP, mutant: str = BROKEN) -> Timeline:
    """The timeline of a scenario that a broken implementation fails."""
    broken = next(one for one in mutants() if one.name == mutant)
    with broken.broken():
        return see_both(load_file(path)[0], "kvgpu", "kvref", {"device": "sim", **broken.options})


def long_prompt(path: Path, steps: int = 200) -> None:
    """Write a scenario of 8 requests that share a prompt of 512 tokens and go on in turns."""
    tokens = list(range(512))
    lines = [
        "kvspec: 1",
        "name: a long prompt that eight requests share",
        "rules: [R4.2]",
        "manager:",
        "  tokens_per_block: 4",
        "  levels: [{kind: gpu, slots: 1400}, {kind: host, slots: 1400}]",
        "  layers:",
        "    - {name: main, buffers: [{role: key, bytes: 4, sparse: true}]}",
        "    - {name: near, sliding_window: 64, buffers: [{role: key, bytes: 4}]}",
        "steps:",
        f"  - seed_prefix: {{tokens: {tokens}, level: gpu}}",
        "  - batch: {name: rows, rows: 8, blocks: 160}",
    ]
    names = [f"chat{number}" for number in range(8)]
    for name in names:
        lines += [f"  - create: {{request: {name}, tokens: {tokens}}}", f"  - add: {{batch: rows, request: {name}}}"]
    lines += [f"  - resume: {name}" for name in names]
    turn = [
        "  - resize: {{request: {0}, capacity: {1}, history: {2}}}",
        "  - enter_decode: {0}",
        "  - publish: rows",
        "  - suspend: {0}",
        "  - publish: rows",
        "  - resume: {0}",
    ]
    done, number = 26, 0
    while done < steps:
        name, round_ = names[number // len(turn) % 8], number // len(turn) // 8
        lines.append(turn[number % len(turn)].format(name, 512 + 9 * (round_ + 1), 512 + 9 * round_))
        number += 1
        done += 1
    path.write_text("\n".join(lines) + "\n")
