"""Named situations that a lifecycle can come to."""

from kvspec.audit.states import lifecycle, private, fetches  # isort: skip  # each names its own
from kvspec.audit.states.registry import STATES, Reachable, state

__all__ = ["STATES", "Reachable", "fetches", "lifecycle", "private", "state"]
