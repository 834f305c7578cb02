"""Why a page is where it is: in a few words, with the rule that says so."""

from __future__ import annotations

from dataclasses import dataclass

from kvspec.config import LayerConfig, Level, ManagerConfig, group_names
from kvspec.harness.timeline.wording import listed
from kvspec.observation import Observation, PageView, Phase, PoolView, RequestView


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason in a few words, and its rule. ``deferred``: an eligible page at level 0 that was left there (R4.2)."""

    text: str
    rule: str
    deferred: bool = False

    def __str__(self) -> str:
        """The text with its rule."""
        return f"{self.text} ({self.rule})"


def first_layers(manager: ManagerConfig) -> dict[str, LayerConfig]:
    """The layer after which each layer group is named, in the order of the groups (R1.5)."""
    layers = {layer.name: layer for layer in manager.layers}
    return {name: layers[name] for name in group_names(manager)}


def owners_of(now: Observation, page: PageView) -> dict[str, RequestView]:
    """The owners of a page (R2.3)."""
    return {name: now.requests[name] for name in sorted(page.owners) if name in now.requests}


def pool_of(now: Observation, level: Level, group: str) -> tuple[str, PoolView] | None:
    """The pool group that serves a layer group on a level: the name of its first group, and the pool; none without the level."""
    return next(((name, pool) for (at, name), pool in now.pools.items() if at is level and group in pool.groups), None)


def why_here(manager: ManagerConfig, now: Observation, page: PageView) -> Reason | None:
    """Why a page of a sparse group is on the GPU although a decoding request has it; nothing where that cannot be."""
    if page.level is not Level.GPU or not first_layers(manager)[page.group].sparse:
        return None
    owners = owners_of(now, page)
    decoding = {name: view for name, view in owners.items() if view.phase is Phase.DECODE}
    if not decoding:
        return None
    if not any(page.block < view.history // manager.tokens_per_block for view in decoding.values()):
        return Reason("not complete history", "R4.1")
    holding = sorted(owners.keys() - decoding.keys())
    if holding:
        return Reason(f"deferred by {listed(holding)}, in prefill", "R4.2", deferred=True)
    host = pool_of(now, Level.HOST, page.group)
    if host is not None and not host[1].free and not host[1].evictable:
        return Reason("deferred, as no host slot is free", "R4.7", deferred=True)
    return Reason("deferred, and nobody objects: the next retry may take it", "R4.3", deferred=True)
