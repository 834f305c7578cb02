"""The file of a long run: a line of JSON for each lifecycle, so that the run can be stopped and gone on with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspec.cli.fuzzing.plan import Plan
from kvspec.cli.refusing import must_be_writable, refuse

if TYPE_CHECKING:
    from kvspec.audit.lifecycles import LifecycleResult
    from kvspec.harness.workers import Ended

PASSED, UNFINISHED, FAILED, LOST = "passed", "not finished", "failed", "no answer"


@dataclass(slots=True)
class Record:
    """A file of results. ``results``: those that it had when it was opened, by seed. ``why``: of the unfinished, and how many."""

    path: Path
    results: dict[int, str] = field(default_factory=dict)
    why: Counter[str] = field(default_factory=Counter)

    @classmethod
    def opened(cls, path: Path, plan: Plan) -> Record:
        """Read a file, or begin it. Leaves if it is of something else: other options, or other sources."""
        from kvspec.harness.sources import digest

        must_be_writable("--json", path)
        head = {**asdict(plan), "sources": digest((plan.system, plan.against))}
        if not path.exists() or not path.stat().st_size:
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
            return cls(path)
        record = cls(path)
        try:
            text = path.read_text(encoding="utf-8")
            first, *lines = text.splitlines()
            known = json.loads(first)
            for line in lines:
                if line.endswith("}"):  # the last may have been cut off
                    record._take(json.loads(line))
        except (ValueError, TypeError, KeyError):
            refuse(f"--json {path}: is not a file of results of kvspec fuzz: name another one")
        if known != head:
            others = [name for name in head if not isinstance(known, Mapping) or known.get(name) != head[name]]
            refuse(f"--json {path}: has results of a run with other {', '.join(others)}: name another file")
        if not text.endswith("\n"):
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")
        return record

    def _take(self, values: Any) -> None:
        self.results[int(values["seed"])] = str(values["result"])
        if values["result"] == UNFINISHED:
            self.why[str(values["why"])] += 1

    def failed(self) -> tuple[int, ...]:
        """The seeds of earlier runs that failed or had no answer."""
        return tuple(sorted(seed for seed, result in self.results.items() if result in (FAILED, LOST)))

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
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
