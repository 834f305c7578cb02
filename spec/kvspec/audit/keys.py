"""Keys of random lifecycles: some have them, and few different ones, so that tokens meet under equal keys and others (R2.7)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kvspec import ops
from kvspec.observation import Observation

SHARE = 0.2
"""How many lifecycles have keys at all."""
SALTS = ("red", "red", "red", "blue", None)
IMAGES = ("cat", "cat", "dog")


@dataclass(slots=True)
class KeyMaker:
    """Puts keys on operations that are proposed without. ``salts``: for requests; none: there are no keys at all.

    ``parts``: where the prompts of this lifecycle have images.
    """

    rng: Random
    salts: tuple[str | None, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, rng: Random, span: int) -> KeyMaker:
        """For a lifecycle whose lengths are drawn in ``span`` tokens. What is drawn otherwise stays as it is."""
        own = Random(rng.getstate()[1][0])
        if own.random() >= SHARE:
            return cls(own)
        start = own.randint(0, 2 * span)
        parts = ((start, start + own.randint(1, 2 * span)),) if own.random() < 0.6 else ()
        return cls(own, SALTS if own.random() < 0.7 or not parts else (None,), parts)

    def put_on(self, op: ops.Operation, seen: Observation) -> ops.Operation:
        """The operation, with keys if it is one that may have them."""
        if not self.salts:
            return op
        match op:
            case ops.Create() | ops.SeedPrefix():
                more = {"key": self.rng.choice(self.salts), "spans": self._spans(len(op.tokens or ()))}
            case ops.Commit():
                more = {"key": self._of_commit(op, seen)}
            case _:
                return op
        return op.model_copy(update=more)

    def _spans(self, tokens: int) -> tuple[ops.Span, ...]:
        if self.rng.random() < 0.2:
            return ()
        return tuple(
            ops.Span(start=start, end=min(end, tokens), key=self.rng.choice(IMAGES))
            for start, end in self.parts
            if start < tokens
        )

    def _of_commit(self, op: ops.Commit, seen: Observation) -> str | None:
        """An image where the tokens are in one of the parts, and now and then elsewhere."""
        view = seen.requests.get(op.request)
        first = view.committed if view is not None else 0
        inside = any(start <= first and first + len(op.tokens) <= end for start, end in self.parts)
        return self.rng.choice(IMAGES) if self.rng.random() < (0.8 if inside else 0.1) else None
