"""What a step costs over a pipe, against the same step in process: ``python -m bench.wire``. Needs no GPU.

The suite is replayed against the reference in turns, scenario by scenario: ``kvgpu`` in this process, and the same behind
``kvspec serve``. Only what the system under test costs is measured (``apply`` and ``observe``), in wall-clock time.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

EVERY = 3
"""One scenario of so many."""
OPTIONS = {"device": "sim"}
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"


class Timed:
    """A factory whose systems add up how long they take."""

    def __init__(self, factory: Any) -> None:
        self.factory, self.seconds, self.steps = factory, 0.0, 0
        self.capabilities = factory.capabilities

    def __call__(self, setup: Any) -> Any:
        outer, inner = self, self.factory(setup)

        class System:
            capabilities = self.capabilities
            close = inner.close

            def apply(self, op: Any) -> Any:
                outer.steps += 1
                return outer.timed(lambda: inner.apply(op))

            def observe(self) -> Any:
                return outer.timed(inner.observe)

        return System()

    def timed(self, call: Any) -> Any:
        start = time.perf_counter()
        try:
            return call()
        finally:
            self.seconds += time.perf_counter() - start


def main() -> None:
    from kvspec.harness.replay import Named, replay
    from kvspec.harness.systems import find_system
    from kvspec.language.loader import load_paths

    scenarios, problems = load_paths(sorted(Path("scenarios").rglob("*.yaml")))
    assert not problems
    kvref = Named("kvref", find_system("kvref"))
    piped = shlex.join([sys.executable, "-c", RUN, "serve", "--system", "kvgpu"])
    timed = {"in process": Timed(find_system("kvgpu")), "over a pipe": Timed(find_system(f"cmd:{piped}"))}
    for scenario in scenarios[::EVERY]:
        for factory in timed.values():
            result = replay(scenario, Named("kvgpu", factory), kvref, OPTIONS)
            assert result.failure is None, result.failure
    each = {name: 1e6 * one.seconds / one.steps for name, one in timed.items()}
    for name, micros in each.items():
        print(f"{name:12} {micros:7.0f} us a step, of {timed[name].steps}")
    here, there = each.values()
    print(f"a step over the pipe takes {there / here:.2f} times as long, {there - here:.0f} us more")


if __name__ == "__main__":
    main()
