"""The names that a scenario may use at some step."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kvspec.config import ManagerConfig, group_names
from kvspec.language.messages import at
from kvspec.language.nodes import Key, Node
from kvspec.language.problems import Problem, one_of
from kvspec.nearest import nearest
from kvspec.refs import Pools, RefError, pool_groups


@dataclass(slots=True)
class Known:
    """The names that may be used at some step."""

    path: Path
    manager: ManagerConfig
    groups: tuple[str, ...]
    pools: Pools
    names: dict[str, dict[str, None]] = field(default_factory=dict)

    @classmethod
    def at_start(cls, path: Path, manager: ManagerConfig) -> Known:
        """Before the first step: the manager's own names alone."""
        return cls(path, manager, group_names(manager), pool_groups(manager))

    def of(self, kind: str) -> dict[str, None]:
        """The names of this kind so far, in order."""
        return self.names.get(kind, {})

    def introduce(self, kind: str, name: str) -> None:
        """From now on, there is a thing of this kind with this name."""
        self.names.setdefault(kind, {})[name] = None

    def unknown(self, kind: str, name: str, node: Node, where: tuple[Key, ...], *, key: bool = False) -> Problem | None:
        """The problem of a name of this kind that no earlier step introduced."""
        names = self.of(kind)
        if name in names:
            return None
        there = one_of(list(names)) if names else "a step before this one that makes it (there is none yet)"
        what = kind if kind in ("request", "batch", "stream") else f"{kind} label"
        return Problem(at(self.path, node, where, key=key), f"unknown {what} {name!r}", there, nearest(name, names))


def reference_problem(known: Known, error: RefError, node: Node, where: tuple[Key, ...], *, key: bool = False) -> Problem:
    """A reference that cannot be resolved, as a problem where it stands."""
    hint = nearest(error.name, error.choices)
    text = str(error)
    layer = next((layer for layer in known.manager.layers if layer.name == error.name), None)
    if layer is not None and "group" in text:
        # A layer that is not the first of its group is easily taken for one.
        own = _group_of(known.manager, layer.name)
        text, hint = f"{text} ({error.name!r} is a layer of the group {own!r})", own
    return Problem(at(known.path, node, where, key=key), text, None, hint)


def _group_of(manager: ManagerConfig, name: str) -> str:
    """The group of a layer, which is named after the first layer like it (R1.5)."""
    wanted = next(layer for layer in manager.layers if layer.name == name)
    alike = [layer for layer in manager.layers if group_names(manager.model_copy(update={"layers": (wanted, layer)})) == (name,)]
    return alike[0].name
