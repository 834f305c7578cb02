"""Every site of this process: what a sweep of mutants enumerates."""

from __future__ import annotations

from kvgpu.device.api import Site

_seen: set[Site] = set()


def seen_sites() -> frozenset[Site]:
    """Every site that any device of this process has seen."""
    return frozenset(_seen)


def note(site: Site) -> None:
    """Remember that this process has come by a site."""
    _seen.add(site)
