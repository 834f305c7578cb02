"""The file of a long run: a line of JSON for each lifecycle, so that the run can be stopped and gone on with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspec.cli.fuzzing.plan import Plan, Tally
from kvspec.cli.refusing import must_be_writable, refuse
from kvspec.cli.results_file import NotResults, OfAnotherRun, add_result, read_or_begin

if TYPE_CHECKING:
    from kvspec.audit.lifecycles import LifecycleResult
    from kvspec.harness.workers import Ended

PASSED, UNFINISHED, FAILED, LOST = "passed", "not finished", "failed", "no answer"


@dataclass(slots=True)
class Record:
    """A file of results. ``results``: those that it had when it was opened, by seed, each with why if it was not finished."""

    path: Path
    results: dict[int, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def opened(cls, path: Path, plan: Plan) -> Record:
        """Read a file, or begin it. Leaves if it is of something else: other options, or other sources."""
        from kvspec.harness.sources import digest

        must_be_writable("--json", path)
        head = {**asdict(plan), "sources": digest((plan.system, plan.against))}
        record = cls(path)
        try:
            read_or_begin(path, head, record._take)
        except NotResults:
            refuse(f"--json {path}: is not a file of results of kvspec fuzz: name another one")
        except OfAnotherRun as error:
            others = [name for name in head if not isinstance(error.known, Mapping) or error.known.get(name) != head[name]]
            refuse(f"--json {path}: has results of a run with other {', '.join(others)}: name another file")
        return record

    def _take(self, values: Any) -> None:
        self.results[int(values["seed"])] = str(values["result"]), str(values.get("why", ""))

    def tally(self, seeds: Container[int]) -> Tally:
        """What came out of these seeds before."""
        known = {seed: result for seed, result in sorted(self.results.items()) if seed in seeds}
        return Tally(
            done=len(known),
            unfinished=Counter(why for result, why in known.values() if result == UNFINISHED),
            before=tuple(seed for seed, (result, _) in known.items() if result in (FAILED, LOST)),
        )

    def add(self, seed: int, answer: LifecycleResult | Ended) -> None:
        """Write down what came of a lifecycle."""
        from kvspec.harness.workers import Ended

        values: dict[str, Any] = {"seed": seed}
        if isinstance(answer, Ended):
            values |= {"result": LOST, "why": answer.why}
        elif answer.found is not None:
            failure = answer.found.result.failure
            where = {} if failure is None else {"step": failure.step, "verb": failure.verb}
            values |= {"result": FAILED, **where}
        elif answer.unfinished:
            values |= {"result": UNFINISHED, "why": answer.unfinished}
        else:
            values |= {"result": PASSED}
        add_result(self.path, values)
