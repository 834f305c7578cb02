"""Random lifecycles with fetches, plain and replayed: selections that drift, repeat, and name what there is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kvspec import ops
from kvspec.audit.drawing import STREAMS
from kvspec.audit.managers import Profile, owned, random_manager
from kvspec.audit.workload import Chooser
from kvspec.config import LayerConfig, ManagerConfig
from kvspec.harness.replay import Named, replay_chosen
from kvspec.harness.systems import find_system
from kvspec.observation import Observation
from kvspec.ops import Operation
from kvspec.scenario import Position, Scenario, Step

SEEDS, STEPS = (44, 102, 173, *range(5)), 90
SHARE = 0.3
"""Of the moves, those that fetch."""
Next = Callable[[Observation], Operation | None]


def fetching(rng: Random, manager: ManagerConfig) -> ManagerConfig:
    """A manager most of whose sparse groups reserve slots, of which there are a few more."""
    said: dict[tuple[object, ...], dict[str, int | None]] = {}
    units = [unit for unit in (1, 2) if manager.tokens_per_block % unit == 0]
    even = all(
        buffer.bytes % manager.tokens_per_block == 0 and buffer.tokens_per_block is None
        for layer in manager.layers
        for buffer in layer.buffers
    )

    def with_it(layer: LayerConfig) -> LayerConfig:
        if not layer.sparse:
            return layer
        key = (layer.kind, layer.sliding_window, layer.sink_tokens)
        if key not in said:
            unit, reserve = rng.choice((None, *units)) if even else None, rng.choice((1, 1, 2, 3))
            most = reserve * (manager.tokens_per_block // (unit or manager.tokens_per_block))
            numbers = {"selected": rng.randint(1, min(4, most)), "reserve": reserve, "unit": unit}
            said[key] = numbers if rng.random() < 0.9 else {}
        buffers = tuple(buffer.model_copy(update=said[key]) for buffer in layer.buffers)
        return layer.model_copy(update={"buffers": buffers})

    gpu = manager.levels[0]
    roomy = gpu.model_copy(update={"slots": (gpu.slots or 0) + rng.choice((0, 2, 6))})
    layers = tuple(with_it(layer) for layer in manager.layers)
    made = manager.model_copy(update={"layers": layers, "levels": (roomy, *manager.levels[1:])})
    return ManagerConfig.model_validate(made.model_dump())


@dataclass
class Story:
    """Chooses operations: those of any lifecycle, and fetches."""

    rng: Random
    manager: ManagerConfig
    chooser: Chooser
    left: int = STEPS
    queue: list[Next] = field(default_factory=list)
    graphs: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def layers(self) -> dict[str, int]:
        """The layers that can be fetched, with how many numbers are selected."""
        found = {layer.name: layer.buffers[0].selected for layer in self.manager.layers}
        return {name: count for name, count in found.items() if count is not None}

    def __call__(self, seen: Observation) -> Operation | None:
        """The next operation; ``None`` at the end."""
        self.left -= 1
        if self.left < 0:
            return None
        if self.queue:
            return self.queue.pop(0)(seen)
        if self.layers and seen.batches and not self.chooser.draw.queue and self.rng.random() < SHARE:
            return self.fetches(seen)
        return self.chooser.next(seen)

    def fetches(self, seen: Observation) -> Operation | None:
        """A publication and a fetch, a capture of some, or a replay."""
        rng, batch, layer = self.rng, self.rng.choice(list(seen.batches)), self.rng.choice(list(self.layers))
        stream, roll = rng.choice(STREAMS), rng.random()
        if roll > 0.75 and self.graphs and self.chooser.draw.captured is None:
            graph, of, fetched = rng.choice(self.graphs)
            more = {"select": self.select(seen, of, fetched)} if of in seen.batches else {}
            return self.made(ops.Replay, graph=graph, stream=stream, label="again", **more)
        publish = ops.Publish(batch=batch, stream=rng.choice(("exec", "side")))
        if roll > 0.6 and self.chooser.draw.captured is None:
            self.graphs.append((f"graph of {len(self.graphs)}", batch, layer))
            graph = self.graphs[-1][0]
            again = [self.fetch(batch, layer, stream) for _ in range(rng.choice((1, 1, 2)))]
            end = self.made(ops.EndCapture, stream=stream, label=graph)
            self.queue = [lambda _: ops.BeginCapture(stream=stream), *again, lambda _: end]
            return publish
        self.queue = [self.fetch(batch, layer, stream)]
        if rng.random() < 0.5:
            self.queue.append(lambda _: ops.RecordRead(batch=batch, stream=stream))
        return publish if rng.random() < 0.8 else self.queue.pop(0)(seen)

    def fetch(self, batch: str, layer: str, stream: str) -> Next:
        """A fetch, for what is there when its turn comes."""
        label = f"f{self.rng.randint(0, 3)}"

        def now(seen: Observation) -> Operation:
            select = self.select(seen, batch, layer) if batch in seen.batches else {}
            return self.made(ops.Fetch, batch=batch, layer=layer, select=select, stream=stream, label=label)

        return now

    def select(self, seen: Observation, batch: str, layer: str) -> dict[str, tuple[int, ...]]:
        """Numbers for most members: few different ones, and some that there are not."""
        rng = self.rng
        members = [name for name in seen.batches[batch].rows if name is not None and rng.random() < 0.85]
        return {
            name: tuple(rng.choice((rng.randint(0, 2), rng.randint(-1, 9))) for _ in range(rng.randint(0, self.layers[layer])))
            for name in members
        }

    def made(self, kind: type[Operation], label: str, **given: Any) -> Operation:
        """An operation with a label."""
        return kind.model_validate({**given, "as": label})


def test_random_lifecycles_with_fetches_agree() -> None:
    kvgpu, kvref = (Named(name, find_system(name)) for name in ("kvgpu", "kvref"))
    found: Counter[str] = Counter()

    def look(step: Step, one: Observation, two: Observation) -> None:
        if isinstance(step.op, ops.Fetch | ops.Replay):
            found[step.op.verb] += 1
            found.update(kind for view in one.fetches.values() for row in view.found or () for kind in row)

    for seed in SEEDS:
        rng, profile = Random(seed), Profile()
        manager = fetching(rng, owned(random_manager(rng, profile), seed, None))
        story = Story(rng, manager, Chooser(rng, manager, profile))
        nothing = Scenario(f"story {seed}", (), (), (), manager, STREAMS, (), Position(Path("story"), 1, 1), 0)
        options = {"device": "sim", "schedule": f"seed={seed}"}
        result, _ = replay_chosen(nothing, story, kvgpu, kvref, options, look)
        assert result.failure is None, (seed, result.failure)
    assert all(found[kind] for kind in ("fetch", "replay", "hit", "miss", "-")), found
