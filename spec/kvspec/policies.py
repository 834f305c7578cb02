"""Policies: where good managers differ and none is wrong. A system declares its own, and the reference obeys them.

The default of each is the rule of this project (docs/rules.md); the rule that a policy varies names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from kvspec.model import Model
from kvspec.nearest import did_you_mean

PolicyValue: TypeAlias = str | bool
"""A value of a policy, as YAML has it: a word, or a boolean for ``yes`` and ``no``."""


class Policies(Model):
    """A value of every policy. What it was built with is in ``model_fields_set``: a scenario asks for these."""

    match: Literal["token", "block"] = "token"
    partial_blocks: Literal["kept", "none"] = "kept"
    copy_at: Literal["resume", "create"] = "resume"
    dedupe: Literal["rebase", "keep_both"] = "rebase"
    held: Literal["evictable", "pinned"] = "evictable"
    recency: Literal["release", "access", "let_go"] = "release"
    match_renews: bool = False
    release_order: Literal["by_block", "by_group"] = "by_block"
    evict_unit: Literal["page", "node"] = "page"
    on_drop: Literal["subtree", "page_alone"] = "subtree"
    on_drop_windowed: Literal["subtree", "page_alone"] = "subtree"
    room: Literal["counts", "not_counted"] = "counts"
    failed_operation: Literal["evicts_nothing", "may_have_evicted"] = "evicts_nothing"
    clear_event: Literal["each", "one"] = "each"
    suspend: Literal["hold", "recompute"] = "hold"
    versions: Literal["exactly", "at_least"] = "exactly"

    @property
    def asked(self) -> dict[str, PolicyValue]:
        """What it was built with, by name."""
        return {name: getattr(self, name) for name in POLICIES if name in self.model_fields_set}

    @property
    def unusual(self) -> dict[str, PolicyValue]:
        """The values that are not the default, by name."""
        return {name: value for name in POLICIES if (value := getattr(self, name)) != default(name)}


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: the question, what each of its values means, the default first, and the rule that it varies."""

    text: str
    values: Mapping[PolicyValue, str]
    rules: tuple[str, ...]


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "match": Policy(
            "How far a match goes.",
            {"token": "whole blocks, then a part of one more", "block": "whole blocks alone"},
            ("R3.1",),
        ),
        "partial_blocks": Policy(
            "Whether the tree keeps a last block that is not full.",
            {"kept": "it does", "none": "what is left over of the tokens does not enter"},
            ("R3.9",),
        ),
        "copy_at": Policy(
            "When the private copy of a partly matched block is made.",
            {"resume": "by the first resume", "create": "by the create that matches it"},
            ("R3.4",),
        ),
        "dedupe": Policy(
            "What a commit does with a block that the tree has already.",
            {"rebase": "it takes the tree's page and gives up its own", "keep_both": "its own page enters beside the tree's"},
            ("R3.9",),
        ),
        "held": Policy(
            "Whether pages leave that a request keeps while it is not active.",
            {"evictable": "they may be evicted", "pinned": "they stay where they are"},
            ("R10.1",),
        ),
        "recency": Policy(
            "What makes a page young in the order of eviction.",
            {
                "release": "leaving LOCKED",
                "access": "being locked, or entering the tree",
                "let_go": "that the last request which keeps it lets go of it, active or not",
            },
            ("R10.2",),
        ),
        "match_renews": Policy(
            "Whether a match makes a page young.",
            {False: "it does not", True: "it does, as if the page left LOCKED then"},
            ("R10.2",),
        ),
        "release_order": Policy(
            "Which of the pages leave first that became young in one operation.",
            {
                "by_block": "those of higher blocks, of one block that of the lower group",
                "by_group": "those of the lower group, in a group those of higher blocks",
            },
            ("R10.2",),
        ),
        "evict_unit": Policy(
            "What leaves at a time.",
            {"page": "a page", "node": "a block of the tree, with all its pages of the level that can leave"},
            ("R10.1",),
        ),
        "on_drop": Policy(
            "What goes when a block has lost its last page.",
            {"subtree": "the block and all below it", "page_alone": "the block alone; what is below stays"},
            ("R10.3",),
        ),
        "on_drop_windowed": Policy(
            "The same where that page is of a group with a window.",
            {"subtree": "the block and all below it", "page_alone": "the block alone; what is below stays"},
            ("R10.3",),
        ),
        "room": Policy(
            "Whether what an operation gives up is room for that same operation.",
            {"counts": "it is", "not_counted": "it is given up after the operation has found its room"},
            ("R3.14",),
        ),
        "failed_operation": Policy(
            "Whether pages have left for an operation that then does not fit.",
            {"evicts_nothing": "none has", "may_have_evicted": "those have that it found before it ran out"},
            ("R3.14",),
        ),
        "clear_event": Policy(
            "The events of clear_reusable.",
            {"each": "one for each block removed", "one": "a single one, `cleared`"},
            ("R13.3",),
        ),
        "suspend": Policy(
            "What a suspended request keeps.",
            {"hold": "its pages", "recompute": "none: it is matched again when it resumes, and the rest is computed anew"},
            ("R3.10",),
        ),
        "versions": Policy(
            "Whether a version may be newer where nothing has changed.",
            {"exactly": "it may not", "at_least": "it may, which only costs a row written again"},
            ("R6.4",),
        ),
    }
)
"""Every policy by its name; the first value of each is the default."""


class PolicyError(ValueError):
    """A policy, or a value of one, that there is not; ``str()`` of it says which there are."""


def default(name: str) -> PolicyValue:
    """The default of a policy: the rule of this project."""
    return next(iter(POLICIES[name].values))


def value_text(value: PolicyValue) -> str:
    """A value as YAML writes it."""
    return ("no", "yes")[value] if isinstance(value, bool) else value


def policy_text(values: Mapping[str, PolicyValue]) -> str:
    """Values for the reader: ``match: block, suspend: recompute``."""
    return ", ".join(f"{name}: {value_text(value)}" for name, value in values.items())


Offer: TypeAlias = Mapping[str, tuple[PolicyValue, ...]]
"""What a system offers: of every policy the values that it can be told to follow, its own first."""

EVERYTHING: Offer = MappingProxyType({name: tuple(policy.values) for name, policy in POLICIES.items()})
"""What a system offers that obeys any policy."""

USUAL: Offer = MappingProxyType({name: (default(name),) for name in POLICIES})
"""What a system offers that says nothing: the defaults."""


def checked_offer(declared: Mapping[str, Any]) -> Offer:
    """What a system offers, from what it declares: by name a value, or several, its own first. The rest is as by default.

    :raises PolicyError: a policy or a value that there is not; the text has the nearest one.
    """
    if not isinstance(declared, Mapping):
        raise PolicyError(f"policies is {declared!r}: expected values by the names of policies, such as {{'match': 'block'}}")
    found = dict(USUAL)
    for name, said in declared.items():
        if name not in POLICIES:
            raise PolicyError(f"policies has {name!r}.{did_you_mean(str(name), POLICIES)} There are: {', '.join(POLICIES)}")
        values = tuple(said) if isinstance(said, list | tuple) else (said,)
        found[name] = tuple(_checked_value(name, value) for value in values) or USUAL[name]
    return MappingProxyType(found)


def _checked_value(name: str, value: Any) -> PolicyValue:
    there = POLICIES[name].values
    known: dict[Any, PolicyValue] = {value_text(one): one for one in there}
    if isinstance(value, bool) and value in there:
        return value
    if not isinstance(value, str) or value not in known:
        said = value_text(value) if isinstance(value, bool) else value
        near = did_you_mean(said.replace(" ", "_"), known) if isinstance(said, str) else ""
        raise PolicyError(f"policy {name} is {said!r}.{near} It has the values: {', '.join(known)}")
    return known[value]
