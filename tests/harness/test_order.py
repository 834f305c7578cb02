from __future__ import annotations

import itertools

import pytest

from kvspec.harness.order import fence_problems, order_problems
from kvspec.observation import Order


def _order(gates: str = "", **after: int) -> Order:
    return Order(frozenset(gates.split()), after)


@pytest.mark.parametrize(
    ("reference", "implementation", "allowed", "says"),
    [
        (_order("g"), _order(), "", "does not wait for gate g"),
        (_order(), _order("g"), "", "waits for work that has no part in it: gate g"),
        (_order("h"), _order("g h"), "", "has no part in it: gate g"),
        (_order(exec=3), _order(exec=2), "", "stream exec up to step 3, waits only up to step 2"),
        (_order(exec=0), _order(side=4), "", "stream exec up to step 0, waits for none of it"),
        (_order(), _order("g"), "h", "gate g"),
    ],
)
def test_what_is_wrong_with_an_order(reference: Order, implementation: Order, allowed: str, says: str) -> None:
    (problem,) = order_problems(reference, implementation, frozenset(allowed.split()))
    assert says in problem


@pytest.mark.parametrize(
    ("reference", "implementation", "allowed"),
    [
        (_order("g", exec=3), _order("g", exec=3), ""),
        (_order(exec=3), _order(exec=5, side=1), ""),
        (Order(frozenset(), None), _order(exec=1), ""),
        (_order(exec=1), Order(frozenset(), None), ""),
        (_order("h"), _order("g h"), "g"),
    ],
)
def test_what_is_right(reference: Order, implementation: Order, allowed: str) -> None:
    assert order_problems(reference, implementation, frozenset(allowed.split())) == []


FENCES = (_order(), _order("g"), _order(exec=1), _order(exec=2), _order("g", exec=2), _order(exec=1, side=1))


def test_fences_match_exactly_when_some_permutation_fits() -> None:
    for one in itertools.combinations_with_replacement(FENCES, 3):
        for two in itertools.combinations_with_replacement(FENCES, 3):
            fits = any(
                all(not order_problems(a, b) for a, b in zip(one, order, strict=True)) for order in itertools.permutations(two)
            )
            assert (fence_problems(one, two) == []) == fits, (one, two)


def test_a_missing_fence_says_what_the_nearest_lacks() -> None:
    (problem,) = fence_problems([_order("g"), _order()], [_order(), _order()])
    assert "pending behind gate g" in problem
    assert "does not wait for gate g" in problem


def test_the_number_of_fences_counts() -> None:
    assert fence_problems([_order()], [_order(), _order()]) == ["2 fences, the reference has 1"]


def test_many_fences_take_no_time() -> None:
    reference = [_order(exec=n % 7) for n in range(3000)]
    assert fence_problems(reference, [_order(exec=n % 7 + 1) for n in range(3000)]) == []
