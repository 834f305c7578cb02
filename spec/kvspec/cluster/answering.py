"""What runs on a worker of a cluster: a range of questions, answered by a process of its own that stays for the next range."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from kvspec.harness.runner import process_context
from kvspec.harness.workers import Failed, Workers

Question: TypeAlias = "tuple[Hashable, Callable[..., Any], tuple[Any, ...], float]"
"""A key, a function and its arguments, and how many seconds it may take (0: as long as it likes)."""

_idle: dict[tuple[str, ...], list[Workers]] = {}
_lock = threading.Lock()


def answer(module: str, systems: tuple[str, ...], questions: Sequence[Question]) -> list[tuple[Hashable, Any]]:
    """The key and the answer of each question of a range.

    :param module: the code that the functions are of, and ``systems``: by name, those that they drive; both are imported once.
    :raises Failed: a function raised.
    """
    kind = (module, *systems)
    with _lock:
        free = _idle.setdefault(kind, [])
        workers = free.pop() if free else None
    if workers is None:
        workers = Workers(1, process_context(module, *systems))
    try:
        for key, function, args, seconds in questions:
            workers.ask(key, function, *args, seconds=seconds)
        found: list[tuple[Hashable, Any]] = []
        for one in workers.answers():
            found.append(one)
            if _forgotten():
                break
    except Failed:
        workers.stop()
        raise
    if workers.unanswered:
        workers.stop()
    else:
        with _lock:
            _idle[kind].append(workers)
    return found


def _forgotten() -> bool:
    """Whether whoever asked does not want the answers of this range any more."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:  # not on a worker
        return False
    executing = worker.get_current_task()
    task = worker.state.tasks.get(executing)
    return task is None or task.state == "cancelled"
