"""What a random lifecycle draws from: its randomness, its manager, its text, and the labels that it has handed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from kvspec import ops
from kvspec.audit.managers import Profile
from kvspec.config import LayerKind, LevelKind, ManagerConfig, group_names
from kvspec.observation import Observation, RequestStatus, RequestView
from kvspec.refs import fetching_layers
from kvspec.tokens import numbers

STREAMS = ("exec", "side", "copy", "graph")
"""``graph``: no request works on it, so that some captures have a stream to themselves."""
_SCRIPT = 40
"""Length of the text that most requests of a lifecycle begin with, so that they share pages and rebase."""
_WORDS = (0, 0, 1, 2)
"""Few different tokens, so that prefixes meet."""
_NEAR = (1 << 16, 1 << 31, 1 << 32, 1 << 40)
"""What large tokens of one lifecycle differ by: they are the same to whoever keeps too few bits of them."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A layer that can be fetched (R15.1). ``selects``: numbers for a row; ``reserves``: slots; ``units``: of a page (R15.11)."""

    group: str
    selects: int
    reserves: int
    units: int


@dataclass(slots=True)
class Draw:
    """Keeps only the labels that it has handed out."""

    rng: Random
    manager: ManagerConfig
    profile: Profile = field(default_factory=Profile)
    labels: int = 0
    gates: dict[str, str] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    queue: list[ops.Operation] = field(default_factory=list)
    """Operations that belong together, such as a read and its fence, and are still to come."""
    captured: str | None = None
    """The stream in capture."""
    fetched: dict[str, Fetched] = field(default_factory=dict)
    """The layers that can be fetched, by name."""
    graphs: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """The graphs with fetches: of each the batches and layers that it fetches."""
    capturing: tuple[tuple[str, str], ...] = ()
    """The fetches of the capture that has begun."""
    selected: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    """By request and layer, what was selected last."""
    words: tuple[int, ...] = _WORDS
    script: tuple[int, ...] = ()
    opening: float = 0.6
    """Share of the moves with gates that open one, if there is one."""
    only: str | None = None
    """The request that every move is made of, if it is aimed (`kvspec.audit.steering`)."""
    whole: bool = False
    """Whether texts are of whole blocks. Two blocks of them are equal, or differ from their first token on; where matches are of
    whole blocks alone, now and then in their last token."""

    def __post_init__(self) -> None:
        """Draw the tokens and the text."""
        for name, group, units in fetching_layers(self.manager):
            buffer = next(layer for layer in self.manager.layers if layer.name == name).buffers[0]
            self.fetched[name] = Fetched(group, buffer.selected or 0, buffer.reserve or 0, units)
        if self.profile.big:
            least = self.rng.randrange(1 << 16)
            self.words = (least, least, *(least + far for far in self.rng.sample(_NEAR, 2)))
        length = _SCRIPT * self.profile.scale
        self.script = self.tokens(length // self.span * self.span if self.whole else length)

    @property
    def span(self) -> int:
        """The tokens that lengths are drawn in: those of a block, or of many in a big lifecycle."""
        return self.manager.tokens_per_block * self.profile.scale

    def label(self, kind: str) -> str:
        """A label that is new."""
        self.labels += 1
        return f"{kind}{self.labels}"

    def live(self, seen: Observation, *status: RequestStatus) -> list[tuple[str, RequestView]]:
        """The requests that are not closed, or of some status."""
        wanted = status or (RequestStatus.ACTIVE, RequestStatus.SUSPENDED)
        return [(name, view) for name, view in seen.requests.items() if view.status in wanted]

    def request(self, seen: Observation, *status: RequestStatus) -> tuple[str, RequestView] | None:
        """One of them, or now and then any."""
        if self.only is not None:
            return self.only, seen.requests[self.only]
        if self.rng.random() < self.profile.wild and seen.requests:
            name = self.rng.choice(list(seen.requests))
            return name, seen.requests[name]
        live = self.live(seen, *status)
        return self.rng.choice(live) if live else None

    def free_names(self, seen: Observation) -> list[str]:
        """Names of no request that lives; there are always three."""
        taken = {name for name, _ in self.live(seen)}
        return [name for name in (f"r{number}" for number in range(8)) if name not in taken]

    def stream(self, among: Sequence[str] = STREAMS[:3]) -> str:
        """Any stream that requests work on."""
        return self.rng.choice(among)

    def level(self) -> LevelKind:
        """One of the levels of the manager."""
        return self.rng.choice(self.manager.levels).kind

    def rows(self) -> int:
        """How many rows a new batch has."""
        few = self.rng.randint(1, 3)
        return few if not self.profile.big or self.rng.random() < 0.5 else self.rng.randint(120, 300)

    def tokens(self, count: int) -> tuple[int, ...]:
        """Tokens of no particular text; a part of a block more where blocks are whole."""
        if not self.whole:
            return tuple(self.rng.choice(self.words) for _ in range(count))
        size = self.manager.tokens_per_block
        firsts = [self.rng.choice(self.words) for _ in range(-(-count // size))]
        blocks = [(first, *range(10, 9 + size)) for first in firsts]
        if size > 1 and self.manager.policy.match == "block":
            blocks = [(*block[:-1], block[-1] + (self.rng.random() < 0.3)) for block in blocks]
        return tuple(token for block in blocks for token in block)

    def prefix(self, seen: Observation) -> tuple[int, ...]:
        """Tokens that match something of the tree, often with a tail of their own."""
        base: tuple[int, ...] = ()
        if seen.tree and self.rng.random() < 0.8:
            base = numbers(self.rng.choice(seen.tree).tokens)
            base = self.cut(base[: self.rng.randint(0, len(base))]) if self.rng.random() < 0.4 else base
        if self.rng.random() < 0.6:
            return self.cut(self.script[: self.rng.randint(1, 6 * self.span)])
        return base + self.tokens(self.rng.randint(0, 2 * self.span))

    def cut(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Tokens without a part of a block at their end, where blocks are whole."""
        return tokens[: len(tokens) // self.manager.tokens_per_block * self.manager.tokens_per_block] if self.whole else tokens

    def named(self, group: str) -> str | None:
        """A group, left out now and then."""
        return None if self.rng.random() < self.profile.wild else group

    def attention(self) -> list[str]:
        """The attention groups, which have tables."""
        state = self.states()
        return [group for group in group_names(self.manager) if group not in state]

    def states(self) -> list[str]:
        """The groups of SSM states."""
        names = {layer.name for layer in self.manager.layers if layer.kind is LayerKind.SSM}
        return [group for group in group_names(self.manager) if group in names]
