"""Workers of a cluster that answer questions; one that ends costs nothing but the time of its range."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

from kvspec.cluster.answering import Question, answer
from kvspec.harness.workers import Ended, Failed

if TYPE_CHECKING:
    from distributed import Client, Future

RANGE = 16
"""So many questions go to a worker at a time."""


class Cluster:
    """The calls of `kvspec.harness.workers.Workers`, for the workers of a cluster.

    Questions go out in ranges. If a worker ends, its range goes to another one, and ``died`` has its name. A range whose workers
    ended again and again has `Ended` for an answer to each of its questions.
    """

    def __init__(self, client: Client, module: str, systems: tuple[str, ...], size: int = RANGE) -> None:
        """Use a connected cluster.

        :param module: of the functions that will be asked about, and ``systems``: the names of those that they drive.
        :param size: how many questions make a range.
        """
        from distributed import as_completed

        self.client, self.module, self.systems, self.size = client, module, systems, size
        self.died: list[str] = []
        self._waiting: list[Question] = []
        self._ranges: dict[Future[Any], list[Question]] = {}
        self._came: deque[tuple[Hashable, Any]] = deque()
        self._completed = as_completed(loop=client.loop)
        client.subscribe_topic("all", self._heard)

    @property
    def count(self) -> int:
        """How many questions are answered at a time."""
        threads: dict[str, int] = self.client.nthreads()
        return max(1, sum(threads.values()))

    @property
    def ahead(self) -> int:
        """How many questions to have asked, so that no worker waits."""
        return 2 * self.count * self.size

    @property
    def under_way(self) -> list[Hashable]:
        """The keys of the questions that are with the cluster."""
        return [key for questions in self._ranges.values() for key, *_ in questions]

    @property
    def unanswered(self) -> int:
        """How many questions have no answer yet, or one that nobody has taken."""
        return len(self._waiting) + len(self.under_way) + len(self._came)

    def ask(self, key: Hashable, function: Callable[..., Any], *args: Any, seconds: float = 0.0) -> None:
        """Have a worker answer ``function(*args)``.

        :param seconds: how long it may take before it interrupts itself; 0 for no limit.
        """
        self._waiting.append((key, function, args, seconds))
        if len(self._waiting) >= self.size:
            self._send()

    def answers(self) -> Iterator[tuple[Hashable, Any]]:
        """The key and the answer of each question, as the ranges come, until all have one: a value, or `Ended`.

        :raises Failed: the function raised.
        """
        while self.unanswered:
            if not self._came:
                if self._waiting:
                    self._send()  # nothing more can be asked until an answer is out
                self._take(next(self._completed))
            while self._came:
                yield self._came.popleft()

    def interrupt(self, seconds: float = 1.0) -> list[tuple[Hashable, Any]]:
        """Forget all questions: each of them with an answer that says so. What is under way stops after its question."""
        left = [key for key, *_ in self._waiting] + self.under_way
        self._waiting.clear()
        futures = list(self._ranges)
        self._ranges.clear()
        self.client.cancel(futures, force=True)
        return [(key, Ended("it was with the cluster", -1, ())) for key in left]

    def stop(self) -> None:
        """Leave the cluster as it was. Idempotent."""
        if self._ranges:
            self.interrupt()
        self.client.unsubscribe_topic("all")

    def __enter__(self) -> Cluster:
        """Itself."""
        return self

    def __exit__(self, *args: object) -> None:
        """Leave the cluster."""
        self.stop()

    def _send(self) -> None:
        questions, self._waiting = self._waiting, []
        future = self.client.submit(answer, self.module, self.systems, questions, pure=False)
        self._ranges[future] = questions
        self._completed.add(future)

    def _take(self, future: Future[Any]) -> None:
        from distributed.scheduler import KilledWorker

        questions = self._ranges.pop(future)
        if future.status == "finished":
            self._came.extend(future.result())
            return
        error = future.exception()
        if isinstance(error, KilledWorker):
            last = error.last_worker.address
            why = f"{error.allowed_failures + 1} workers ended while they were at its range, the last was {last}"
            self._came.extend((key, Ended(why, -1, ())) for key, *_ in questions)
            return
        raise error if isinstance(error, Failed) else Failed(f"{type(error).__name__}: {error}")

    def _heard(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker" and not message.get("expected"):
            self.died.append(str(message.get("worker") or message.get("name") or "a worker"))
