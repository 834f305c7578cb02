"""Host tasks in stream order, run by one thread a stream.

The stream records an event and then waits for a word; the thread waits until the event has passed, runs the task and sets the
word. A callback of the driver would run on the driver's thread, hold up other streams and could wait for Python's lock while
its owner waits for the device.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kvgpu.device.cuda.context import Context, Word
from kvgpu.device.cuda.streams import CudaEvent

PAUSE_FROM, PAUSE_TO = 20e-6, 2e-3
"""Seconds between two looks at an event: at first, and after a long wait."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task: it runs once ``after`` is done. ``failed`` is told what it raised."""

    after: CudaEvent
    work: Callable[[], None]
    word: Word
    failed: Callable[[Exception], None]


class Worker:
    """The thread that runs the tasks of one stream, in order."""

    def __init__(self, context: Context, name: str) -> None:
        """Start it."""
        self._context = context
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"host tasks of {name}", daemon=True)
        self._thread.start()

    def submit(self, task: Task) -> None:
        """Have a task run after those before it."""
        self._tasks.put(task)

    def stop(self) -> None:
        """End the thread after the tasks that it has; they must be able to run."""
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._context.use()
        while (task := self._tasks.get()) is not None:
            try:
                pause = PAUSE_FROM
                while not task.after.done():
                    time.sleep(pause)
                    pause = min(2 * pause, PAUSE_TO)
                task.work()
            except Exception as error:  # a finding of the run, reported by the device as a fault
                task.failed(error)
            finally:
                task.word.set()
