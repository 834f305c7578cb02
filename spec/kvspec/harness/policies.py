"""Which policies hold in a replay: what the scenario asks for, and for the rest what the system under test declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvspec.config import ManagerConfig, Ownership
from kvspec.policies import EVERYTHING, USUAL, Offer, Policies, PolicyValue, checked_offer, policy_text
from kvspec.scenario import Scenario


def offer_of(factory: Callable[..., Any]) -> Offer:
    """What the systems of a factory offer: their class attribute ``policies``, the defaults where it says nothing.

    :raises PolicyError: it names a policy or a value that there is not.
    """
    declared = getattr(factory, "policies", USUAL)
    return declared if declared is USUAL or declared is EVERYTHING else checked_offer(declared)


def own_policies(factory: Callable[..., Any]) -> Policies:
    """What the systems of a factory do where nothing is asked of them."""
    return Policies(**{name: values[0] for name, values in offer_of(factory).items()})  # type: ignore[arg-type]


def unusual_policies(factory: Callable[..., Any]) -> str:
    """Their policies that are not the defaults, for the reader: ``match: block, suspend: recompute``; empty if there are none."""
    return policy_text(own_policies(factory).unusual)


def settled(scenario: Scenario, system: Callable[..., Any]) -> Scenario:
    """The scenario, asking for every policy: for what it does not ask for itself, as the system does it."""
    return replace(scenario, manager=with_policies(scenario.manager, system))


def with_policies(manager: ManagerConfig, system: Callable[..., Any]) -> ManagerConfig:
    """The same of a manager."""
    own = own_policies(system)
    if not own.unusual:
        return manager
    return manager.model_copy(update={"policy": own.model_copy(update=manager.policy.asked)})


def lacking_policies(scenario: Scenario, factory: Callable[..., Any]) -> tuple[str, ...]:
    """What a scenario asks for and the systems of a factory do not offer, a text each: ``policy match: block``."""
    offer = offer_of(factory)
    asked = scenario.manager.policy.asked.items()
    lacking = tuple(f"policy {policy_text({name: value})}" for name, value in asked if value not in offer[name])
    private = scenario.manager.ownership is Ownership.PRIVATE
    if private and Ownership.PRIVATE not in getattr(factory, "capabilities", ()):
        lacking += (f"ownership: {Ownership.PRIVATE}",)  # section 14: a policy that has a key of its own
    able = getattr(factory, "capabilities", ())
    if scenario.fetches and "fetch" not in able and "fetch" not in scenario.verbs:
        lacking += ("selected and reserve of buffers",)  # section 15
    return lacking


def not_asked(scenario: Scenario, system: Callable[..., Any]) -> dict[str, PolicyValue]:
    """The policies of a system that are not the defaults and that a scenario does not ask for: it may expect something else."""
    return {name: value for name, value in own_policies(system).unusual.items() if name not in scenario.manager.policy.asked}
