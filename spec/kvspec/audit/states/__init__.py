"""Named situations that a lifecycle can come to."""

from kvspec.audit.states import lifecycle, private, fetches, combined  # isort: skip  # each names its own
from kvspec.audit.states.registry import STATES, Reachable, state

__all__ = ["STATES", "Reachable", "combined", "fetches", "lifecycle", "private", "state"]
