"""Comparing the order of device work: gates that hold it up, and the edges that the rules demand (section 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kvspec.observation import Order

NOTHING: frozenset[str] = frozenset()


def order_text(order: Order | None) -> str:
    """An order for the reader: pending behind which gates, or done."""
    if order is None:
        return "-"
    return f"pending behind gate {_names(order.gates)}" if order.gates else "done"


def order_problems(reference: Order, implementation: Order, allowed: frozenset[str] = NOTHING) -> list[str]:
    """What is wrong with the implementation's order, against the reference's least order; empty if nothing.

    :param allowed: gates that may hold the implementation's work up besides: those of a shared submission.
    """
    problems = []
    missing = reference.gates - implementation.gates
    if missing:
        problems.append(f"does not wait for gate {_names(missing)}")
    extra = implementation.gates - reference.gates - allowed
    if extra:
        problems.append(f"waits for work that has no part in it: gate {_names(extra)}")
    problems += _missing_edges(reference, implementation)
    return problems


def fence_problems(reference: Sequence[Order], implementation: Sequence[Order], allowed: frozenset[str] = NOTHING) -> list[str]:
    """What is wrong with the fences of a pool group's free slots, which have no names: none fits the other's.

    The fences of the two systems are matched one to one, as well as they can be.
    """
    if len(reference) != len(implementation):
        return [f"{len(implementation)} fences, the reference has {len(reference)}"]
    # Most fences are alike, so kinds of fences are matched, each as often as there are some.
    wanted, have = _kinds(reference), _kinds(implementation)
    if {kind: count for kind, (_, count) in wanted.items()} == {kind: count for kind, (_, count) in have.items()}:
        return []
    ones, twos = list(wanted.values()), list(have.values())
    fits = [[n for n, (two, _) in enumerate(twos) if not order_problems(one, two, allowed)] for one, _ in ones]
    unused = [count for _, count in twos]
    given: list[dict[int, int]] = [{} for _ in twos]
    problems = []
    for number, (one, times) in enumerate(ones):
        left = sum(not _assign(number, fits, unused, given, set()) for _ in range(times))
        if left:
            near = _nearest(one, [two for n, (two, _) in enumerate(twos) if unused[n]], allowed)
            lack = "no free slot has" if left == 1 else f"{left} free slots lack"
            problems.append(f"{lack} the fence that the reference has ({order_text(one)}{_after(one)}): {near}")
    return problems


def _kinds(fences: Sequence[Order]) -> dict[object, tuple[Order, int]]:
    """Each kind of fence, by value: one of them, and how many there are."""
    kinds: dict[object, tuple[Order, int]] = {}
    objects = {id(fence): fence for fence in fences}
    for at, count in Counter(map(id, fences)).items():
        fence = objects[at]
        kind = fence.gates, None if fence.after is None else frozenset(fence.after.items())
        first, others = kinds.get(kind, (fence, 0))
        kinds[kind] = first, others + count
    return kinds


def _assign(number: int, fits: list[list[int]], unused: list[int], given: list[dict[int, int]], tried: set[int]) -> bool:
    """Give one fence of a wanted kind to a kind that is there, moving others aside if need be (an augmenting path)."""
    for other in fits[number]:
        if other in tried:
            continue
        tried.add(other)
        if unused[other]:
            unused[other] -= 1
        else:
            aside = next((n for n, count in given[other].items() if count and _assign(n, fits, unused, given, tried)), None)
            if aside is None:
                continue
            given[other][aside] -= 1
        given[other][number] = given[other].get(number, 0) + 1
        return True
    return False


def _nearest(reference: Order, rest: list[Order], allowed: frozenset[str]) -> str:
    nearest = min((order_problems(reference, one, allowed) for one in rest), key=len, default=[])
    return f"the nearest {'; '.join(nearest)}" if nearest else "each is needed for another slot"


def _missing_edges(reference: Order, implementation: Order) -> list[str]:
    if reference.after is None or implementation.after is None:
        return []
    problems = []
    for stream, step in sorted(reference.after.items()):
        has = implementation.after.get(stream)
        if has is None or has < step:
            known = "for none of it" if has is None else f"only up to step {has}"
            problems.append(f"missing edge: must run after the work on stream {stream} up to step {step}, waits {known}")
    return problems


def _after(order: Order) -> str:
    return "" if not order.after else ", after " + ", ".join(f"{s} up to step {n}" for s, n in sorted(order.after.items()))


def _names(gates: frozenset[str]) -> str:
    return ", ".join(sorted(gates))
