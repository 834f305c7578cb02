"""Moves that fetch selected history (section 15 of the rules), for random lifecycles.

Selections drift, repeat, and name what there is not; fetches are captured, and replayed with new selections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvspec import ops
from kvspec.audit.drawing import STREAMS, Draw
from kvspec.observation import Observation, Phase, RequestStatus

FAR = (2**31 - 1, -(2**31))
"""The largest and the smallest number that can be selected."""
LABELS = 4
"""Labels of fetches are few, so that they are given again."""


# -- what is selected -----------------------------------------------------------------------------------------


def numbers(draw: Draw, name: str, layer: str, count: int) -> tuple[int, ...]:
    """What is selected for a request: like the last time, mostly; here and there a number twice, or one that there is not.

    :param count: of the blocks, or units, that may be selected.
    """
    rng, last = draw.rng, draw.selected.get((name, layer), ())
    if last and rng.random() < 0.2:
        return last
    most = draw.fetched[layer].selects
    found: list[int] = []
    for at in range(most if rng.random() < 0.6 else rng.randint(0, most)):
        roll = rng.random()
        if at < len(last) and roll < 0.5:
            found.append(last[at])
        elif found and roll < 0.6:
            found.append(rng.choice(found))
        elif roll < 0.9 and count > 0:
            found.append(rng.randrange(count))
        else:
            found.append(rng.choice((-1, -1, count, count, count + 1, -2, *FAR)))
    draw.selected[name, layer] = tuple(found)
    return tuple(found)


def countable(draw: Draw, seen: Observation, batch: str, layer: str) -> dict[str, int]:
    """By member of a batch, how many blocks, or units, may be selected, as published or as it would be now."""
    view, of = seen.batches[batch], draw.fetched[layer]
    found: dict[str, int] = {}
    for row, name in enumerate(view.rows):
        if name is not None:
            snapshot = seen.requests[name].snapshots.get((of.group, 0))
            found[name] = max(view.published[of.group].num_blocks[row], 0 if snapshot is None else snapshot.eligible) * of.units
    return found


def selection(draw: Draw, seen: Observation, batch: str, layer: str) -> dict[str, tuple[int, ...]]:
    """What is selected for most members of a batch; now and then for a request that is none, or more than fits."""
    rng = draw.rng
    counts = countable(draw, seen, batch, layer) if batch in seen.batches else {}
    found = {name: numbers(draw, name, layer, count) for name, count in counts.items() if rng.random() < 0.85}
    if rng.random() < draw.profile.wild and seen.requests:
        found[rng.choice(list(seen.requests))] = tuple(range(rng.choice((1, draw.fetched[layer].selects + 1))))
    return found


# -- operations -----------------------------------------------------------------------------------------------


def fetching(draw: Draw, batch: str, layer: str, select: Mapping[str, Sequence[int]], stream: str) -> ops.Operation:
    """A fetch with a label."""
    label, some = f"fetch{draw.rng.randint(1, LABELS)}", {name: tuple(mine) for name, mine in select.items()}
    return ops.Fetch.model_validate({"batch": batch, "layer": layer, "select": some, "stream": stream, "as": label})


def captured(draw: Draw, stream: str, fetches: Sequence[tuple[str, str]]) -> tuple[str, list[ops.Operation]]:
    """A capture of fetches, each of a batch and layer: the label of the graph, and the operations."""
    graph = draw.label("graph")
    draw.graphs[graph] = tuple(fetches)
    moves: list[ops.Operation] = [ops.BeginCapture(stream=stream)]
    moves += [fetching(draw, batch, layer, {}, stream) for batch, layer in fetches]
    return graph, [*moves, ops.EndCapture.model_validate({"stream": stream, "as": graph})]


def replayed(draw: Draw, graph: str, stream: str, select: Mapping[str, Sequence[int]] | None) -> ops.Operation:
    """A replay of a graph with fetches. ``select``: ``None`` for nothing."""
    some = None if select is None else {name: tuple(mine) for name, mine in select.items()}
    return ops.Replay.model_validate({"graph": graph, "stream": stream, "select": some, "as": draw.label("read")})


# -- moves ----------------------------------------------------------------------------------------------------


def fetch(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A fetch, mostly after a publication and now and then with a recorded read behind it; a capture of some; or a replay."""
    if not seen.batches:
        return None
    rng = draw.rng
    serving = {(batch, layer): countable(draw, seen, batch, layer) for batch in seen.batches for layer in draw.fetched}
    useful = [one for one, counts in serving.items() if any(counts.values())]
    if not useful and draw.captured is None and rng.random() < 0.8:
        return bring(draw, seen)
    batch, layer = rng.choice(useful or list(serving))
    stream = draw.stream()
    if draw.captured is not None:
        draw.capturing = (*draw.capturing, (batch, layer))
        return fetching(draw, batch, layer, {}, draw.captured)
    roll = rng.random()
    if roll < 0.25 and draw.graphs:
        return replay(draw, seen)
    publish = ops.Publish(batch=batch, stream=draw.stream())
    if roll < 0.4:
        more = [(rng.choice(list(seen.batches)), rng.choice(list(draw.fetched)))] if rng.random() < 0.3 else []
        draw.queue += captured(draw, rng.choice(STREAMS), [(batch, layer), *more])[1]
        return publish
    draw.queue = [fetching(draw, batch, layer, selection(draw, seen, batch, layer), stream)]
    others = [name for name in draw.fetched if name != layer]
    if others and rng.random() < 0.4:
        other = rng.choice(others)
        draw.queue.append(fetching(draw, batch, other, selection(draw, seen, batch, other), draw.stream()))
    if rng.random() < 0.4:
        draw.queue.append(ops.RecordRead(batch=batch, stream=stream))
    return publish if rng.random() < 0.85 else draw.queue.pop(0)


def bring(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A request of which something could be fetched joins a batch; one that has complete history enters decode first."""
    tpb = draw.manager.tokens_per_block
    some = [(name, view) for name, view in draw.live(seen, RequestStatus.ACTIVE) if view.history >= tpb and view.beam_width == 1]
    free = [batch for batch, view in seen.batches.items() if None in view.rows]
    if not some or not free:
        return None
    name, view = draw.rng.choice(some)
    draw.queue += [] if view.batch is not None else [ops.Add(batch=draw.rng.choice(free), request=name)]
    if view.phase is Phase.PREFILL:
        return ops.EnterDecode(request=name)
    return draw.queue.pop(0) if draw.queue else None


def replay(draw: Draw, seen: Observation) -> ops.Operation:
    """A replay of one of the graphs with fetches, whoever is in their rows now."""
    graph = draw.rng.choice(list(draw.graphs))
    batch, layer = min(draw.graphs[graph], key=lambda one: draw.fetched[one[1]].selects)
    select = selection(draw, seen, batch, layer) if draw.rng.random() < 0.9 else None
    return replayed(draw, graph, draw.rng.choice(STREAMS), select)
