"""A cluster gives the results that processes give; a worker that ends costs nothing, a system that does only itself."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvspec.cli.fuzzing.going import go_through
from kvspec.cli.fuzzing.plan import Plan, Tally
from kvspec.cli.main import app
from kvspec.cluster.cluster import Cluster
from kvspec.cluster.connect import NoCluster, able, connected
from kvspec.harness.workers import Ended, Failed

distributed = pytest.importorskip("distributed")
MODULE = "kvspec.audit.lifecycles"
SYSTEMS = ("kvgpu", "kvref")
PLAN = Plan(20, *SYSTEMS, {"device": "sim", "schedule": "fifo"}, True, True, "small", 60.0)


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    with connected("local", SYSTEMS, 2) as found:
        yield found


def fuzz(*args: str) -> Result:
    return CliRunner().invoke(app, ["fuzz", *args])


def gone(client: distributed.Client, plan: Plan, seeds: range, size: int = 4) -> tuple[Tally, list[str]]:
    tally = Tally()
    with Cluster(client, MODULE, (plan.system, plan.against), size) as cluster:
        go_through(plan, seeds, cluster, None, True, tally, lambda seed, answer: None)
        return tally, list(cluster.died)


def square(number: int) -> int:
    if number == 13:
        raise ValueError("thirteen")
    return number * number


def test_answers_come_with_their_keys(client: distributed.Client) -> None:
    with Cluster(client, MODULE, SYSTEMS, 3) as cluster:
        for number in range(8):
            cluster.ask(number, square, number)
        assert dict(cluster.answers()) == {number: number * number for number in range(8)}
        assert not cluster.unanswered


def test_a_mistake_of_a_function_is_raised_here(client: distributed.Client) -> None:
    with Cluster(client, MODULE, SYSTEMS, 3) as cluster, pytest.raises(Failed, match="ValueError: thirteen"):
        cluster.ask("it", square, 13)
        list(cluster.answers())


def test_results_are_those_of_processes(tmp_path: Path) -> None:
    args = ("--seeds", "12", "--steps", "15", "--jobs", "2")
    alone, together = fuzz(*args), fuzz(*args, "--scheduler", "local")
    assert alone.exit_code == together.exit_code == 0
    without_time = [re.sub(r"[\d.]+ s$", "", one.output.rstrip()) for one in (alone, together)]
    assert without_time[0] == without_time[1]


def test_a_system_that_ends_its_process_costs_its_own_lifecycles_and_no_worker(client: distributed.Client) -> None:
    plan = Plan(20, "tests.audit.mortal:Dies", "kvref", {"device": "sim", "schedule": "fifo"}, True, True, "small", 60.0)
    tally, died = gone(client, plan, range(3))
    assert sorted(tally.lost) == [0, 1, 2] and not died
    assert all("exit code 3" in ended.why for ended in tally.lost.values())


def test_a_worker_that_is_killed_is_named_and_its_lifecycles_are_gone_through_by_another() -> None:
    with connected("local", SYSTEMS, 2) as client:
        victims = client.run(os.getpid)
        address, number = sorted(victims.items())[0]
        tally, killed = Tally(), []

        def tell(seed: int, answer: object) -> None:
            if not killed:
                os.kill(number, signal.SIGKILL)
                killed.append(seed)

        with Cluster(client, MODULE, SYSTEMS, 4) as cluster:
            go_through(PLAN, range(60), cluster, None, True, tally, tell)
            died = list(cluster.died)
    assert killed and died == [address]
    assert tally.done == 60 and not tally.lost and not tally.failed


def test_what_is_forgotten_is_told(client: distributed.Client) -> None:
    with Cluster(client, MODULE, SYSTEMS, 2) as cluster:
        for number in range(5):
            cluster.ask(number, square, number)
        left = dict(cluster.interrupt())
        assert sorted(left) == [0, 1, 2, 3, 4] and all(isinstance(answer, Ended) for answer in left.values())
        assert not cluster.unanswered


def test_workers_with_other_sources_are_refused(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvspec.cluster import connect

    monkeypatch.setattr(connect, "digest", lambda systems: "another")
    with pytest.raises(NoCluster, match=r"worker tcp://.* has other sources than here"):
        connect._must_answer(client, SYSTEMS)


def test_a_system_that_a_worker_does_not_have_is_named() -> None:
    code, _ = able(("nothing_here:Mine",))
    assert code.startswith("! ") and "nothing_here" in code


@pytest.mark.parametrize("address", ["somewhere", "tcp://127.0.0.1:9", "tcp://127.0.0.1:99999"])
def test_without_a_scheduler_there_is_one_message(address: str) -> None:
    result = fuzz("--seeds", "1", "--scheduler", address)
    assert result.exit_code == 2
    assert result.output.startswith(f"--scheduler {address}: ")
    assert len(result.output.splitlines()) == 1


# -- the file of a long run -------------------------------------------------------------------------------------


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    args = ("--steps", "10", "--jobs", "2", "--json", str(path))
    assert fuzz("--seeds", "4", *args).exit_code == 0
    with path.open("a") as file:
        file.write('{"seed": 4, "res')  # cut off
    result = fuzz("--seeds", "6", *args)
    assert result.exit_code == 0
    assert "4 lifecycles have gone through before" in " ".join(result.output.split())
    assert "6 lifecycles of 10 steps, 0 failed" in result.output
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:] if line.endswith("}")]
    assert sorted(line["seed"] for line in lines) == [0, 1, 2, 3, 4, 5]
    assert {line["result"] for line in lines} <= {"passed", "not finished"}


def test_what_failed_in_an_earlier_run_is_not_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    args = ("--seeds", "1", "--steps", "5", "--jobs", "1", "--system", "tests.audit.hoarders:KeepsSlots", "--json", str(path))
    assert fuzz(*args).exit_code == 1
    again = fuzz(*args)
    assert again.exit_code == 1
    assert "lifecycle 0 failed in an earlier run" in again.output and "1 failed" in again.output


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert fuzz("--seeds", "1", "--steps", "5", "--json", str(path)).exit_code == 0
    result = fuzz("--seeds", "1", "--steps", "6", "--json", str(path))
    assert result.exit_code == 2
    assert "has results of a run with other steps: name another file" in " ".join(result.output.split())
    path.write_text("x\n")
    assert "is not a file of results" in " ".join(fuzz("--seeds", "1", "--json", str(path)).output.split())
