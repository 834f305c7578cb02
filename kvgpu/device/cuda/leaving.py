"""What is not needed any more but by work that was submitted before: memory, streams, words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvgpu.device.cuda.context import Context, Word
from kvgpu.device.cuda.driver import checked, driver
from kvgpu.device.cuda.streams import CudaEvent, CudaStream

WORDS_AT_ONCE = 64
"""Words that are looked through together."""

Range = tuple[str, int, int]
"""Kind, address and size in bytes of memory."""


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """What leaves together, after ``events``."""

    events: list[CudaEvent]
    memory: list[Range]
    streams: list[CudaStream]


class Leaving:
    """Memory and streams that were given back, and words that a stream waits for: each goes once nothing needs it.

    ``memory`` and ``stream`` may be called from any thread; the rest is serialised with the calls of the device. No call waits.
    """

    def __init__(self, context: Context) -> None:
        """Nothing yet."""
        self._context = context
        self._memory: list[Range] = []
        self._streams: list[CudaStream] = []
        self._behind: list[_Batch] = []
        self._words: list[tuple[Word, CudaEvent]] = []
        self._look_at = WORDS_AT_ONCE

    def memory(self, kind: str, address: int, nbytes: int) -> None:
        """Memory that nothing will be submitted to."""
        self._memory.append((kind, address, nbytes))

    def stream(self, stream: CudaStream) -> None:
        """A stream that nothing will be submitted to."""
        self._streams.append(stream)

    def word(self, word: Word, passed: CudaEvent) -> None:
        """A word that is set once: after ``passed`` no stream waits for it."""
        self._words.append((word, passed))
        if len(self._words) >= self._look_at:
            waiting = []
            for each, event in self._words:
                if event.done():
                    self._context.words.give_back(each)
                else:
                    waiting.append((each, event))
            self._words = waiting
            self._look_at = len(waiting) + WORDS_AT_ONCE

    def go(self, streams: Iterable[CudaStream]) -> list[CudaStream]:
        """Let go what no work needs any more. Returns the streams that are gone.

        ``streams``: all that there are; none may be in capture. What was given back since the last call leaves behind what they
        have been given so far.
        """
        if self._memory or self._streams:
            self._line_up([CudaEvent(self._context, each, each.closed_gates()) for each in streams])
        there = [each for each in self._behind if not all(event.done() for event in each.events)]
        gone = [each for each in self._behind if each not in there]
        self._behind = there
        return self._let_go(gone)

    def go_now(self) -> list[CudaStream]:
        """The same, when all work has run."""
        self._line_up([])
        gone, self._behind = self._behind, []
        return self._let_go(gone)

    def close(self) -> None:
        """All words, too: nothing waits any more."""
        for word, _ in self._words:
            self._context.words.give_back(word)
        self._words = []

    def _line_up(self, events: list[CudaEvent]) -> None:
        memory, self._memory = self._memory, []
        streams, self._streams = self._streams, []
        self._behind.append(_Batch(events, memory, streams))

    def _let_go(self, batches: list[_Batch]) -> list[CudaStream]:
        for batch in batches:
            for kind, address, nbytes in batch.memory:
                arena = self._context.pinned_arena if kind == "pinned" else self._context.device_arena
                arena.give_back(address, nbytes)
            for stream in batch.streams:
                stream.points = []
                checked(driver.cuStreamDestroy(stream.raw))
        return [stream for batch in batches for stream in batch.streams]
