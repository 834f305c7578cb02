"""What a system says that it cannot show, and which comparisons that leaves out.

A system under test may lack something that every observation has a field for: it keeps no payloads, or cannot say in
what order device work runs. It says so by its class attribute ``unobserved``, the harness compares the rest, and every
summary of a run names what was not compared. The two systems of this project leave nothing out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kvspec.nearest import did_you_mean


@dataclass(frozen=True, slots=True)
class Aspect:
    """A part of an observation that a system may leave out.

    ``title``: for the reader. ``state``: the identities of the differences of state that are passed over. ``expectations``:
    the keys of ``expect`` that nobody can answer without it.
    """

    title: str
    state: frozenset[str]
    expectations: frozenset[str] = frozenset()


def _aspect(title: str, state: str, expectations: str = "") -> Aspect:
    return Aspect(title, frozenset(state.split(",")), frozenset(expectations.split()))


ASPECTS: Mapping[str, Aspect] = MappingProxyType(
    {
        "phase": _aspect("phases of requests", "phase", "phase"),
        "eligible": _aspect("eligible counts", "eligible", "eligible"),
        "payloads": _aspect("contents of pages", "payload,cached payload", "payload"),
        "order": _aspect("order of device work", "ready,fences,upload,read order,fetch order,stream", "pending done"),
        "tree": _aspect("the prefix tree and pages that only it keeps", "tree,tokens", "tree"),
        "eviction": _aspect("eviction order", "evictable", "would_evict"),
        "counters": _aspect("counters of pages and copies", "counters,copy calls", "moved copy_calls stats"),
        "events": _aspect("tree events", "events", "events"),
        "versions": _aspect("versions and acknowledgements", "version,acknowledged,dirty", "version version_since dirty"),
        "device": _aspect("entries read back from the device", "device entries"),
        "staging": _aspect("staging buffers", "staging", "staging"),
        "reserved": _aspect("slots that are reserved for fetches", "reserved", "reserved"),
        "caches": _aspect("what is cached of fetched history", "cache,cached payload", "resident"),
        "fetches": _aspect("what fetches put out", "fetch", "fetched"),
    }
)
"""Everything that a system may leave out, by the name that it says. Requests, lengths, indices, levels, owners,
free slots, rows and published tables are always compared."""

NOTHING: frozenset[str] = frozenset()


class AspectError(ValueError):
    """A name in ``unobserved`` that is none of ``ASPECTS``; ``str()`` of it says which there are."""


def checked_aspects(names: Iterable[str]) -> frozenset[str]:
    """The names, if all are in ``ASPECTS``.

    :raises AspectError: one is not; the text has the nearest one.
    """
    for name in names:
        if name not in ASPECTS:
            raise AspectError(f"unobserved has {name!r}.{did_you_mean(name, ASPECTS)} There are: {', '.join(ASPECTS)}")
    return frozenset(names)


def passed_over(identity: str, state: bool, unobserved: frozenset[str]) -> bool:
    """Whether a difference is one that nobody can judge.

    :param identity: that of the difference; of an expectation it is the key.
    :param state: whether it is one of state, else one of an expectation.
    """
    return any(identity in (ASPECTS[name].state if state else ASPECTS[name].expectations) for name in unobserved)


def not_compared(unobserved: frozenset[str]) -> str:
    """What a run with such a system did not compare, for the reader; empty if it left out nothing."""
    return ", ".join(aspect.title for name, aspect in ASPECTS.items() if name in unobserved)
