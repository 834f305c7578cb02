"""What random lifecycles may consist of, for systems that can do only part of the language.

Nobody lists it: what a system lacks is asked of it as it is for a scenario (`kvspec.harness.systems.lacking`), one operation and
one manager at a time. So an adapter's verbs, arguments and ``unfit`` are all that has to be declared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from kvspec import ops
from kvspec.audit.managers import Profile
from kvspec.config import ManagerConfig
from kvspec.harness.policies import with_policies
from kvspec.harness.systems import Factory, capabilities, lacking
from kvspec.ops import VERBS
from kvspec.profiles import EXTENSIONS, MISUSE, PREFIX_VERBS, said_needs, title
from kvspec.scenario import UNSET, Expect, Position, Scenario, Step
from kvspec.system import Outcome, Setup, System

_NOWHERE = Position(Path("lifecycle.yaml"), 1, 1)
SEEDER = "seed"
"""The request whose life stands for a `seed_prefix` where there is none."""


@dataclass(frozen=True)
class Able:
    """What all of some systems can do, with the policies of the first.

    ``allowed``: the extensions of a profile of the suite; ``None`` for any.
    """

    factories: tuple[Factory, ...]
    allowed: frozenset[str] | None = None

    @property
    def anything(self) -> bool:
        """Whether no manager has to be asked about."""
        return self.allowed is None and not any(hasattr(factory, "lacks") for factory in self.factories)

    @property
    def everything(self) -> bool:
        """Whether every verb may be used."""
        return self.verbs == VERBS.keys()

    def narrowed(self, profile: Profile) -> Profile:
        """A run's contents without what cannot be done."""
        verbs = self.verbs
        return replace(
            profile,
            faults=profile.faults and "fail_copy" in verbs,
            gates=profile.gates and {"gate", "open"} <= verbs,
            beams=profile.beams and "set_beam_width" in verbs,
            wild=profile.wild if self.misuse else 0,
        )

    @property
    def misuse(self) -> bool:
        """Whether calls may be made that are wrong."""
        return self.allowed is None or "misuse" in self.allowed

    @property
    def partial(self) -> bool:
        """Whether blocks in the tree may be partly full, and matches end inside a block."""
        return self.allowed is None or "partial" in self.allowed

    def lacks(self, manager: ManagerConfig, *operations: ops.Operation) -> tuple[str, ...]:
        """What of a manager and some operations the systems cannot do, or the profile does not have; a short text each."""
        steps = tuple(Step(n, op, UNSET, None, Expect(), None, _NOWHERE, 1, {}) for n, op in enumerate(operations))
        asked = Scenario("lifecycle", (), (), (), manager, (), steps, _NOWHERE, 0)
        settled = replace(asked, manager=with_policies(manager, self.factories[0]))
        found = [reason for factory in self.factories for reason in lacking(settled, factory)]
        if self.allowed is not None:
            found += [f"{name} in {title(self.allowed)}" for name in EXTENSIONS if name in said_needs(asked) - self.allowed]
        return tuple(dict.fromkeys(found))

    def fitted(self, manager: ManagerConfig, op: ops.Operation) -> ops.Operation | None:
        """The operation without the arguments that cannot be given; ``None`` if it cannot be done at all."""
        lacks = self.lacks(manager, op)
        for name, model in type(op).model_fields.items() if lacks else ():
            if model.is_required() or getattr(op, name) == model.default:
                continue
            plainer = op.model_copy(update={name: model.default})
            fewer = self.lacks(manager, plainer)
            if len(fewer) < len(lacks):
                op, lacks = plainer, fewer
        return None if lacks else op

    @property
    def verbs(self) -> frozenset[str]:
        """The verbs that all of them have, and the profile."""
        usable = frozenset(VERBS).intersection(*(capabilities(factory) for factory in self.factories))
        if self.allowed is None:
            return usable
        return usable & PREFIX_VERBS.union(*(EXTENSIONS[name].verbs for name in self.allowed))

    def instead(self, manager: ManagerConfig, op: ops.Operation) -> list[ops.Operation]:
        """Operations that come to the same where one cannot be done: a request whose life leaves the prefix behind."""
        if not isinstance(op, ops.SeedPrefix) or op.level.level != 0 or op.groups is not None:
            return []
        life: list[ops.Operation] = [
            ops.Create(request=SEEDER, priority=op.priority, key=op.key),
            ops.Resume(request=SEEDER),
            ops.Resize(request=SEEDER, capacity=len(op.tokens)),
            ops.Commit(request=SEEDER, tokens=op.tokens),
            ops.Close(request=SEEDER),
        ]
        fitted = [self.fitted(manager, one) for one in life]
        return [one for one in fitted if one is not None] if all(fitted) else []


@dataclass
class Scout:
    """Goes ahead with a system like the reference, and says whether an operation may be made.

    May not be made: a call that is wrong, unless such calls are allowed; and what makes a block partly full, unless that is.
    """

    able: Able
    factory: Factory
    setup: Setup
    taken: list[ops.Operation] = field(default_factory=list)
    system: System = field(init=False)

    def __post_init__(self) -> None:
        """Build the system."""
        self.system = self.factory(self.setup)

    def may(self, op: ops.Operation) -> bool:
        """Whether an operation may be made now; if so, it counts as made."""
        outcome = self.system.apply(op)
        if outcome.error in MISUSE and not self.able.misuse:
            return False  # an error has changed nothing (section 9)
        if not self.able.partial and self._partly(op, outcome):
            self._begin_again()
            return False
        self.taken.append(op)
        return True

    def take_back(self) -> None:
        """The last operation that was to be made has not been made after all."""
        self.taken.pop()
        self._begin_again()

    def close(self) -> None:
        """Close the system."""
        self.system.close()

    def _partly(self, op: ops.Operation, outcome: Outcome) -> bool:
        size = self.setup.manager.tokens_per_block
        if isinstance(op, ops.Create) and isinstance(outcome.value, int) and outcome.value % size:
            return True
        if not isinstance(op, ops.Commit | ops.Close | ops.SeedPrefix):
            return False
        seen = self.system.observe()
        if isinstance(op, ops.Commit) and "stop_committing" not in self.able.verbs and seen.requests[op.request].committed % size:
            return True  # it could not be closed any more
        return any(len(block.tokens) % size for block in seen.tree)

    def _begin_again(self) -> None:
        self.system.close()
        self.system = self.factory(self.setup)
        for op in self.taken:
            self.system.apply(op)
