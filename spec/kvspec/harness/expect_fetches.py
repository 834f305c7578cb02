"""Expectations of fetched history (section 15): what came of each number, what is cached, what is reserved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvspec.harness.checks import Check, check
from kvspec.harness.evidence import Evidence, Nothing
from kvspec.refs import request_group, request_layer


def fetched(e: Evidence, wanted: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[Check]:
    """``fetched``: per label and request, what came of each number (R15.4); those left out came to nothing."""
    for label, by_request in wanted.items():
        view = e.fetch(label)
        for request, said in by_request.items():
            path, title = ("fetched", label, request), f"fetch {label} for {request}"
            if request not in view.requests:
                raise Nothing(f"fetch {label} has no row of {request}")
            if view.found is None:
                yield check(path, title, tuple(said), "nothing yet: the fetch is pending", ok=False)
                continue
            row = view.found[view.requests.index(request)]
            length = max(len(said), *(at + 1 for at, kind in enumerate(row) if kind != "-"), 0)
            yield check(path, title, tuple(said), row[:length])


def resident(e: Evidence, wanted: Mapping[str, Sequence[int]]) -> Iterator[Check]:
    """``resident``: per ``request.layer``, the blocks (or units) that are cached, the most recent first (R15.5)."""
    layers = [layer.name for layer in e.comparison.shared.manager.layers]
    for key, numbers in wanted.items():
        request, layer = request_layer(key, layers)
        view = e.now.caches.get(request, {}).get(layer)
        path, title = ("resident", key), f"cached of {key}"
        if view is None:
            yield check(path, title, tuple(numbers), "nothing is reserved", ok=not numbers)
        elif view.cached is None:
            yield check(path, title, tuple(numbers), "not known: its last fetch is pending", ok=False)
        else:
            yield check(path, title, tuple(numbers), tuple(one.number for one in view.cached))


def reserved(e: Evidence, wanted: Mapping[str, int]) -> Iterator[Check]:
    """``reserved``: per ``request.group``, the slots that are reserved (R15.2)."""
    for key, count in wanted.items():
        named = request_group(key, e.groups, single=True)
        found = e.now.reserved.get(named.owner, {}).get(named.groups[0], frozenset())
        yield check(("reserved", key), f"reserved slots of {key}", count, len(found))
