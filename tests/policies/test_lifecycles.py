"""Random lifecycles under every policy: the reference goes through them, and nothing is left at their end."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from kvref.system import Reference
from kvspec.audit.lifecycles import try_lifecycle
from kvspec.audit.managers import Profile
from kvspec.harness.difference import Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.report import failure_report, plain
from kvspec.language.loader import read_bytes
from kvspec.policies import POLICIES, Offer, Policies, PolicyValue, checked_offer, default
from kvspec.system import Setup

OTHERS = [(name, value) for name, policy in POLICIES.items() for value in policy.values if value != default(name)]
SEEDS = range(4)


def following(name: str, value: PolicyValue) -> Named:
    class Mine(Reference):
        """A reference that declares a policy."""

        policies: ClassVar[Offer] = checked_offer({name: value})

    return Named("mine", Mine)


@pytest.mark.parametrize(("name", "value"), OTHERS, ids=[name for name, _ in OTHERS])
def test_the_reference_goes_through_lifecycles(name: str, value: PolicyValue) -> None:
    for seed in SEEDS:
        came = try_lifecycle(seed, 50, following(name, value), Named("kvref", Reference), {}, Profile())
        assert came.unfinished == ""
        assert came.found is None, plain(failure_report(came.found.result, ("kvref", "mine"), f"seed {seed}"))


def test_all_of_them_together() -> None:
    class Mine(Reference):
        """A reference that declares every other value."""

        policies: ClassVar[Offer] = checked_offer(dict(OTHERS))

    for seed in SEEDS:
        came = try_lifecycle(seed, 80, Named("mine", Mine), Named("kvref", Reference), {}, Profile(gates=False))
        assert came.found is None and came.unfinished == ""


def test_a_failure_is_written_with_the_policies_that_it_needs() -> None:
    class Other(Reference):
        """It says that it matches blocks, and matches tokens."""

        policies: ClassVar[Offer] = checked_offer({"match": "block"})

        def __init__(self, setup: Setup) -> None:
            usual = setup.manager.model_copy(update={"policy": Policies()})
            super().__init__(Setup(usual, setup.streams, setup.options))

    pair, profile = (Named("mine", Other), Named("kvref", Reference)), Profile(gates=False, faults=False)
    results = (try_lifecycle(seed, 60, *pair, {}, profile).found for seed in range(60))
    found = next(one for one in results if one is not None)
    assert "policy: {match: block}" in found.text
    (written,) = read_bytes(Path("x.yaml"), found.text.encode()).scenarios
    assert replay(written, *pair).verdict is Verdict.FAILED
