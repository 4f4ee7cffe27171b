"""`tuneyard attempt` as a hub starts it: on the head of a Ray cluster of several machines, with its output in S3.

What its API server sees is tested in tests/cluster/test_attempt_report.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import sentences, write_model
from tests.builders.programs import write_program
from tests.builders.rankers import rank_task, write_clicks
from tests.clusters.machines import IS_ROOT, Machines, started
from tests.integration.runtime.conftest import STEPS, TUNEYARD, train
from tests.servers.installed import S3, s3, s3_server
from tests.servers.openai_server import MODEL, OpenAIServer

from tuneyard.cluster import shipment_of
from tuneyard.cluster.uploads import send
from tuneyard.storage import CommitLog, Store, open_store
from tuneyard.tracking import LogReader

__all__ = ["s3", "s3_server"]

SECRET = "hf_never-write-me-down-4711"
VARIABLE = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "some-key"}}}
OUTPUT = "s3://tests/out"
WORKERS = 2
SUCCEEDED, FAILED, STOPPED = 0, 1, 3
ROWS = 120
"""To score: enough that the engine that has loaded first is still at work when the other has."""


@pytest.fixture(scope="module")
def machines(s3_server: S3) -> Iterator[Machines]:
    """Two workers, `pod-0` and `pod-1`, with the job's variables in their environment."""
    with started(WORKERS, {**s3_server.environment, "HF_TOKEN": SECRET}) as cluster:
        yield cluster


@pytest.fixture
def output(s3: S3) -> Iterator[Store]:  # noqa: ARG001 - sets the environment
    """The output of the job, empty."""
    store = open_store(OUTPUT)
    store.delete_prefix("")
    yield store
    store.delete_prefix("")


def make_job(inputs: Path, **body: Any) -> dict[str, Any]:
    """prepare (a command), then tune on what it made; `other` stands beside them."""
    prepare = {
        "name": "prepare",
        "process": {"command": ["sh", "-c", f"cp {inputs}/chats.jsonl $TUNEYARD_OUTPUT; echo my token is $HF_TOKEN"]},
    }
    data = {"from": "prepare", "path": "chats.jsonl", "maxLength": 64}
    tune = {"name": "tune", "train": train(**{"model": {"name": str(inputs / "model")}, "data": data, **body}), "resources": {"workers": 1}}
    other = {"name": "other", "process": {"command": ["sh", "-c", "date > $TUNEYARD_OUTPUT/when"]}}
    spec = {"tasks": [prepare, tune, other], "env": [VARIABLE], "setup": ["exit 1 # a container's business, not ours"]}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "bot"}, "spec": spec}


@dataclass
class Attempt:
    """A driver on the head."""

    process: subprocess.Popen[str]

    def ends(self) -> tuple[int, str]:
        """Its exit code and what it said."""
        _, said = self.process.communicate(timeout=800)
        return self.process.returncode, said


Start = Callable[..., Attempt]


def begun(machines: Machines, folder: Path, job: dict[str, Any], task: str, number: int = 1, **changes: str) -> Attempt:
    variables = {
        "TUNEYARD_JOB": json.dumps(job),
        "TUNEYARD_TASK": task,
        "TUNEYARD_ATTEMPT": str(number),
        "TUNEYARD_RUN": "0d9f8a1e",
        "TUNEYARD_OUTPUT": OUTPUT,
        "TUNEYARD_SKU": "cpu",
        "TUNEYARD_WORKERS": "2",
        "TUNEYARD_REPAIR_LIMIT_S": "3",
    }
    environment = {**machines.environment, **variables, **changes}
    return Attempt(subprocess.Popen([*TUNEYARD, "attempt"], env=environment, cwd=folder, stderr=subprocess.PIPE, text=True))


@pytest.fixture
def start(machines: Machines, tmp_path: Path) -> Iterator[Start]:
    running: list[Attempt] = []

    def begin(job: dict[str, Any], task: str, number: int = 1, **changes: str) -> Attempt:
        running.append(begun(machines, tmp_path, job, task, number, **changes))
        return running[-1]

    yield begin
    for attempt in running:
        if attempt.process.poll() is None:
            attempt.process.kill()
            attempt.process.wait()
    while len(machines.workers) < WORKERS:  # of a test that failed between a loss and the machine that comes instead
        machines.add(f"spare-{machines.added}")


@pytest.fixture(scope="module")
def outcome_of_prepare(machines: Machines, s3_server: S3, inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the first task's attempt leaves in the output, by name."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        store = open_store(OUTPUT)
        store.delete_prefix("")
        code, said = begun(machines, tmp_path_factory.mktemp("prepare"), make_job(inputs), "prepare", TUNEYARD_WORKERS="1").ends()
        assert code == SUCCEEDED, said
        return {file.path: store.get(file.path) for file in store.list()}


@pytest.fixture
def prepared(output: Store, outcome_of_prepare: dict[str, bytes]) -> Store:
    """The output of a job with its first task done."""
    for path, content in outcome_of_prepare.items():
        output.put(path, content)
    return output


def copied_logs() -> str:
    """The ends of the logs in the output, of an attempt that hangs."""
    store = open_store(OUTPUT)
    last = {
        file.path.rpartition("/")[0]: file.path
        for file in sorted(store.list(), key=lambda file: file.path)
        if file.path.startswith("logs/")
    }
    return "\n".join(f"--- {path}\n{store.get(path)[-3_000:].decode(errors='replace')}" for path in last.values())


def wait_until(there: Callable[[], Any], attempt: Attempt, limit_s: float = 600) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := there()):
        assert attempt.process.poll() is None, attempt.ends()
        assert time.monotonic() < deadline, copied_logs()
        time.sleep(0.1)
    return found


def committed() -> list[int]:
    """Steps of checkpoints that count."""
    return [commit.step for commit in CommitLog(open_store(f"{OUTPUT}/tune"), "checkpoints/log").read().commits]


def report_of(output: Store) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(output.get("report.json"))
    return report


def test_a_job_task_by_task_with_logs_and_report(start: Start, machines: Machines, output: Store, inputs: Path) -> None:
    job = make_job(inputs)
    code, said = start(job, "prepare", TUNEYARD_WORKERS="1").ends()
    assert code == SUCCEEDED, said
    assert LogReader(output, "prepare", 1).read("process").text == "my token is ***\n"
    assert report_of(output)["status"] == "running"

    tune, other = start(job, "tune", 2), start(job, "other", 3, TUNEYARD_WORKERS="1")
    reader = LogReader(output, "tune", 2)
    wait_until(lambda: "rank-1" in reader.sources(), tune)
    assert other.ends()[0] == SUCCEEDED
    code, said = tune.ends()
    assert code == SUCCEEDED, said
    assert "pod-0 (node-pod-0)" in said
    assert f"step {STEPS}/{STEPS}" in said
    assert "start cold" not in said or not IS_ROOT, "without root, machines have no fork servers"

    report = report_of(output)
    assert report["status"] == "succeeded"
    assert [task["status"] for task in report["tasks"].values()] == ["succeeded"] * 3
    task = report["tasks"]["tune"]
    assert task["world_size"] == 2
    assert task["preflight"]["all_reduce_gb_per_s"] > 0
    assert task["losses"][-1] < task["losses"][0]
    assert {"driver", "rank-0", "rank-1"} <= set(reader.sources())
    assert f"step {STEPS}/{STEPS}" in reader.read("driver").text
    assert "--- attempt 5, process" in reader.read("rank-1").text
    assert list(machines.scratch.iterdir()) == [], "nothing stays on the head"

    before = output.get("other/result.json")
    code, said = start(job, "other", 4, TUNEYARD_WORKERS="1").ends()
    assert code == SUCCEEDED, "what has succeeded is not run again"
    assert "done before, skipped" in said
    assert output.get("other/result.json") == before


def test_a_command_runs_among_the_files_that_were_shipped_with_it(start: Start, output: Store, inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "words.py").write_text("WORDS = 'shipped words'")
    (tmp_path / "tools" / "prepare.py").write_text(
        "import sys, pathlib; from words import WORDS; pathlib.Path(sys.argv[1], 'out').write_text(WORDS)"
    )
    (tmp_path / "run.sh").write_text("#!/bin/sh\nexec python tools/prepare.py $TUNEYARD_OUTPUT\n")
    (tmp_path / "run.sh").chmod(0o755)
    job = make_job(inputs)
    job["spec"]["tasks"] = [{"name": "prepare", "process": {"command": ["./run.sh", "tools/"]}}]
    shipment = shipment_of(job, tmp_path, out=OUTPUT)
    send(shipment)
    code, said = start(dict(shipment.manifest), "prepare", TUNEYARD_WORKERS="1").ends()
    assert code == SUCCEEDED, said
    assert output.get("prepare/files/out") == b"shipped words"


def test_an_endpoint_answers_an_attempt_that_has_a_head_alone(start: Start, output: Store, tmp_path: Path) -> None:
    """The hub places no worker pods for it. The key is a secret of the job, and the server repeats it."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"row {row}"}) + "\n" for row in range(20)))
    with OpenAIServer(key=SECRET, answer=lambda prompt: f"{prompt}, {SECRET}") as server:
        endpoint = {"url": server.url, "model": MODEL, "apiKeyVariable": "HF_TOKEN"}
        task = {"data": {"source": str(tmp_path / "rows.jsonl")}, "engine": {"endpoint": endpoint}}
        spec = {"tasks": [{"name": "judge", "score": task}], "env": [VARIABLE]}
        job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "asked"}, "spec": spec}
        code, said = start(job, "judge", TUNEYARD_WORKERS="0", TUNEYARD_SECRETS="HF_TOKEN").ends()
    assert code == SUCCEEDED, said
    assert report_of(output)["tasks"]["judge"]["rows"] == 20
    assert "engine-0" in LogReader(output, "judge", 1).sources()
    assert SECRET not in said
    assert [file.path for file in output.list("") if SECRET.encode() in output.get(file.path)] == []


@pytest.mark.long
def test_a_ranker_is_trained_over_machines_and_scores_there(start: Start, output: Store, tmp_path: Path) -> None:
    """In `make test`: `test_a_job_trains_on_raw_columns_and_scores_the_next_day` on one machine; for ranks and engines on machines,
    `test_a_job_task_by_task_with_logs_and_report` and `test_engines_run_on_the_machines_and_leave_logs`."""
    clicks = write_clicks(tmp_path / "clicks.parquet")
    body = rank_task(clicks, batch={"global": 200}, validationFraction=0.2).model_dump(mode="json", by_alias=True, exclude_unset=True)
    rank = {"name": "rank", "rank": body, "resources": {"workers": 2}}
    score = {"name": "score", "score": {"model": {"from": "rank"}, "data": {"source": str(clicks)}}, "resources": {"instances": 2}}
    metadata = {"name": "clicks", "namespace": "default"}
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": metadata, "spec": {"tasks": [rank, score]}}
    code, said = start(job, "rank", 1).ends()
    assert code == SUCCEEDED, said
    code, said = start(job, "score", 2).ends()
    assert code == SUCCEEDED, said
    tasks = report_of(output)["tasks"]
    assert tasks["rank"]["world_size"] == 2
    assert tasks["rank"]["metrics"]["normalised_entropy"] < 1.05
    assert (tasks["score"]["rows"], tasks["score"]["errors"]) == (4000, 0)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("step_s", "grace_s", "enough"),
    [(3, 20, True), pytest.param(200, 300, True, marks=pytest.mark.long), pytest.param(30, 5, False, marks=pytest.mark.long)],
)
def test_a_step_under_way_has_the_grace_that_the_hub_gives(
    step_s: int, grace_s: int, enough: bool, start: Start, prepared: Store, tmp_path: Path
) -> None:
    """`prepared` has the chats that no program reads: rows are those of `write_program`. Before the first step a program's loss is tried on
    a few rows, several times: only what comes after that takes long."""
    slow = f"self.calls > 8 and (print('a step is under way', flush=True), time.sleep({step_s}))"
    body = "return (model(batch['x'])[:, 0] - batch['y']).square().mean()"
    folder = write_program(tmp_path / "program", loss=f"import time; self.calls = getattr(self, 'calls', 0) + 1; {slow}; {body}")
    task = {"program": "line:Line", "programDir": str(folder), "data": {"source": str(folder / "rows.jsonl")}}
    job = make_job(tmp_path)
    job["spec"]["tasks"][1]["train"] = {
        **task,
        "optimizer": {"learningRate": 0.1},
        "batch": {"global": 2, "micro": 2},
        "steps": 50,
        "checkpoint": {"everySteps": 50},
    }
    attempt = start(job, "tune", 2, TUNEYARD_WORKERS="1", TUNEYARD_STOP_GRACE_S=str(grace_s))
    reader = LogReader(prepared, "tune", 2)
    wait_until(lambda: "rank-0" in reader.sources() and "a step is under way" in reader.read("rank-0").text, attempt)
    os.kill(attempt.process.pid, signal.SIGTERM)
    code, said = attempt.ends()
    assert code == (STOPPED if enough else FAILED), said
    assert bool(committed()) is enough
    assert enough or f"did not stop within {grace_s:g} s" in said


def process_of(log: str) -> int:
    """The last process of a rank, by its log."""
    return int(re.findall(r"process (\d+)", log)[-1])


def test_ranks_start_again_in_place_when_one_is_killed_and_when_its_pod_is_replaced(
    start: Start, machines: Machines, prepared: Store, inputs: Path
) -> None:
    """The first attempt loses a machine that is not replaced in time, and names it. The second attempt resumes."""
    job = make_job(inputs, steps=20000)
    first, reader = start(job, "tune", 2), LogReader(prepared, "tune", 2)
    wait_until(lambda: committed() and {"rank-0", "rank-1"} <= set(reader.sources()), first)
    lost = machines.workers[-1]
    # Its rank goes a moment before the rest, as in a pod that is torn down: what is known then looks like a killed process.
    (rank,) = [rank for rank in (0, 1) if f"pod {lost.name} on" in reader.read(f"rank-{rank}").text]
    os.kill(process_of(reader.read(f"rank-{rank}").text), signal.SIGKILL)
    machines.lose(lost)
    code, said = first.ends()
    assert code == FAILED
    assert f"pod {lost.name} on node {lost.node}" in said
    # On a slow machine the rank counts as killed at first; the loss of its machine is what ends the attempt.
    assert "is lost with its machine" in said or f"pod {lost.name} on node {lost.node} is lost" in said, said
    assert report_of(prepared)["tasks"]["tune"]["failure"] == "NodeLost"
    before = max(committed())

    # KubeRay starts the pod again elsewhere. Someone has changed the data meanwhile, and puts them back.
    machines.add("pod-9")
    rows = prepared.get("prepare/files/chats.jsonl")
    prepared.put("prepare/files/chats.jsonl", b"".join(reversed(rows.splitlines(keepends=True))))
    code, said = start(job, "tune", 3).ends()
    assert code == FAILED
    assert "has the same 64 samples as when the checkpoint was written, in another order" in said
    prepared.put("prepare/files/chats.jsonl", rows)

    # The hub starts another attempt.
    attempt = start(job, "tune", 4, TUNEYARD_REPAIR_LIMIT_S="300")
    reader = LogReader(prepared, "tune", 4)

    def log(rank: int) -> str:
        return reader.read(f"rank-{rank}").text if f"rank-{rank}" in reader.sources() else ""

    def trains(number: int) -> bool:
        return "step " in log(0).partition(f"attempt {number}\n")[2] and f"attempt {number}, process" in log(1)

    wait_until(lambda: max(committed()) > before and trains(13), attempt)
    os.kill(process_of(log(1)), signal.SIGKILL)
    wait_until(lambda: trains(14), attempt)
    wait_until(lambda: "starting attempt 2 of 4" in reader.read("driver").text, attempt)

    # Of the other rank: the same machine twice would be given up.
    (other,) = [worker for worker in machines.workers if f"pod {worker.name} on" not in log(1)]
    machines.lose(other)
    machines.add("pod-8")
    wait_until(lambda: trains(15), attempt)
    wait_until(lambda: "pod-8 (node-pod-8)" in reader.read("driver").text, attempt)
    os.kill(attempt.process.pid, signal.SIGTERM)
    code, said = attempt.ends()
    assert code == STOPPED, said
    task = report_of(prepared)["tasks"]["tune"]
    assert task["status"] == "stopped"
    assert task["resumed_from"] >= before
    assert task["steps"] >= task["resumed_from"]
    assert [made.get("failure") for made in task["attempts"]] == ["NodeLost", "NodeLost", None]


@pytest.mark.long
def test_a_setting_that_cannot_work_ends_with_its_reason(start: Start, prepared: Store, inputs: Path) -> None:
    """In `make test`: `test_a_model_path_that_is_not_there` of `tuneyard run`, and `test_an_attempt_tells_how_it_failed`."""
    job = make_job(inputs, model={"name": "/nowhere/model"})
    code, said = start(job, "tune", 2).ends()
    assert code == FAILED
    assert "error: " in said
    assert "/nowhere/model" in said
    assert "Traceback" not in said
    assert "/nowhere/model" in report_of(prepared)["message"]


@pytest.mark.parametrize(("task", "workers", "pod"), [("other", "1", "head-0"), pytest.param("tune", "2", "pod-", marks=pytest.mark.long)])
def test_a_scratch_disk_that_is_too_small_is_found_before_the_task_starts(
    task: str, workers: str, pod: str, start: Start, prepared: Store, inputs: Path
) -> None:
    """On the head, which runs commands; the long test: on the machines of ranks, by the same check."""
    job = make_job(inputs)
    job["spec"]["storage"] = {"scratch": "900Ti"}
    code, said = start(job, task, 2, TUNEYARD_WORKERS=workers).ends()
    assert code == FAILED
    assert f"preflight: pod {pod}" in said
    assert "storage.scratch asks for" in said
    assert not {"process", "rank-0"} & set(LogReader(prepared, task, 2).sources())


def test_a_network_that_is_too_slow(start: Start, prepared: Store, inputs: Path) -> None:
    job = make_job(inputs)
    code, said = start(job, "tune", 2, TUNEYARD_PREFLIGHT_GB_PER_S="100000").ends()
    assert code == FAILED
    assert "preflight: an all-reduce over 2 ranks runs at" in said
    assert report_of(prepared)["tasks"]["tune"]["failure"] == "Network"


def test_no_secret_is_written_anywhere(start: Start, s3: S3, output: Store, inputs: Path) -> None:
    body = ["sh", "-c", "echo $HF_TOKEN; exit 7"]
    job = make_job(inputs)
    job["spec"]["tasks"][0]["process"]["command"] = body
    code, said = start(job, "prepare", TUNEYARD_WORKERS="1").ends()
    assert code == FAILED
    assert "exited 7" in said
    files = [path for path in s3.root.rglob("*") if path.is_file()]
    assert files
    assert output.list("logs")
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in said


def test_engines_run_on_the_machines_and_leave_logs(start: Start, machines: Machines, output: Store, tmp_path: Path) -> None:
    write_model(tmp_path / "model", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"q": text, "a": text}) + "\n" for text in sentences(ROWS)))
    score = {
        "model": {"name": str(tmp_path / "model")},
        "data": {"source": str(tmp_path / "rows.jsonl"), "prompt": "q", "reference": "a"},
        "generation": {"maxTokens": 32},
        "engine": {"batch": 8, "kvCache": "64Mi"},
        "metrics": ["exact_match"],
        "rowsPerPart": 4,
    }
    job = {
        "apiVersion": "tuneyard.dev/v1alpha1",
        "kind": "JobSpec",
        "metadata": {"name": "bot"},
        "spec": {"tasks": [{"name": "judge", "score": score}]},
    }
    machines.until_idle()
    code, said = start(job, "judge", 1).ends()
    assert code == SUCCEEDED, said
    assert "2 running, on pod-" in said
    assert report_of(output)["tasks"]["judge"]["rows"] == ROWS
    reader = LogReader(output, "judge", 1)
    assert reader.sources() == ["driver", "engine-0", "engine-1"]
    assert "Loading safetensors checkpoint shards" in reader.read("engine-1").text


@pytest.mark.long
def test_a_search_that_lost_its_place_goes_on_and_the_tuned_task_takes_what_it_found(start: Start, prepared: Store, inputs: Path) -> None:
    """Trials are ranks on the attempt's machines; what was measured before the stop is not measured again.

    In `make test`: `test_a_search_measures_and_writes_the_winner_down` and `test_sigterm_ends_a_search_with_the_table_of_what_was_measured`
    of `tuneyard tune`, and `test_a_rank_task_trains_with_what_a_search_has_found`."""
    job = make_job(inputs)
    budget = {"trials": 6, "rounds": 1, "pairs": 1}
    tune = {"task": "tune", "budget": budget, "stepsPerTrial": 5, "space": {"batch.micro": [1, 4]}}
    job["spec"]["tasks"].append({"name": "search", "tune": tune})

    first = start(job, "search", 2)
    wait_until(lambda: prepared.exists("search/trials.json") and json.loads(prepared.get("search/trials.json"))["trials"], first)
    first.process.send_signal(signal.SIGTERM)
    code, said = first.ends()
    assert code == STOPPED, said
    (known,) = json.loads(prepared.get("search/trials.json"))["trials"]

    code, said = start(job, "search", 3).ends()
    assert code == SUCCEEDED, said
    found = report_of(prepared)["tasks"]["search"]
    assert found["trials"][0] == known
    assert sorted(trial["point"]["batch.micro"] for trial in found["trials"]) == [1, 4]
    assert len(found["pairs"]) == any((trial["ratio"] or 0) > 1 for trial in found["trials"]), "what loses is not confirmed"
    assert "trial-2-rank-0" in LogReader(prepared, "search", 2).sources()
    assert not prepared.list("search/trials/"), "trials leave nothing behind"

    code, said = start(job, "tune", 4).ends()
    assert code == SUCCEEDED, said
    assert report_of(prepared)["tasks"]["tune"]["plan"]["micro_batch"] == found["best"].get("batch.micro", 2)


@pytest.mark.long
def test_a_search_on_two_gangs_that_lost_its_place_goes_on_with_one(start: Start, prepared: Store, inputs: Path) -> None:
    """A gang for each machine. The next attempt gets one machine: what both gangs have measured counts there.

    In `make test`: `test_a_search_measures_and_writes_the_winner_down`, and `test_a_search_starts_with_the_gangs_that_have_room` of the
    hub."""
    job = make_job(inputs)
    budget = {"trials": 8, "rounds": 1, "pairs": 1, "atOnce": 2}
    tune = {"task": "tune", "budget": budget, "stepsPerTrial": 5, "space": {"batch.micro": [1, 2, 4, 8]}}
    job["spec"]["tasks"].append({"name": "search", "tune": tune})

    def both_have_measured() -> bool:
        record = json.loads(prepared.get("search/trials.json")) if prepared.exists("search/trials.json") else {"own": [], "trials": []}
        return {own["gang"] for own in record["own"]} == {1, 2} and len(record["trials"]) > 0

    first = start(job, "search", 2, TUNEYARD_WORKERS="2")
    wait_until(both_have_measured, first)
    first.process.send_signal(signal.SIGTERM)
    code, said = first.ends()
    assert code == STOPPED, said
    known = json.loads(prepared.get("search/trials.json"))

    code, said = start(job, "search", 3, TUNEYARD_WORKERS="1").ends()
    assert code == SUCCEEDED, said
    assert "1 of 2 gangs" in said
    found = report_of(prepared)["tasks"]["search"]
    assert found["trials"][: len(known["trials"])] == known["trials"]
    points = [trial["point"]["batch.micro"] for trial in found["trials"]]
    assert len(points) == len(set(points))
    assert not prepared.list("search/trials/"), "trials leave nothing behind"
    assert {"trial-1-rank-0", "trial-2-rank-0"} <= set(LogReader(prepared, "search", 2).sources())
