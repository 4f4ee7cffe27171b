"""An engine of two ranks, by `tuneyard run`: it answers as an engine of one does, whatever dies, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from tests.builders.models import sentences, write_model
from tests.builders.scores import score_request
from tests.integration.scoring.conftest import Score
from tests.testcluster.waiting import wait_for

from tuneyard.api import JobFailed

LOAD = """
import json, sys
from pathlib import Path
import tuneyard.scoring.engine as engine
from tuneyard.api import Generation, ScoreTask
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.config_reader import config_in
from tuneyard.scoring.rank_deaths import RankLost
from tuneyard.scoring.settings import resolve_engine

def use_folder(folder, use=engine.use_folder):
    print(folder, flush=True)
    use(folder)

if __name__ == "__main__":
    model, task = Path(sys.argv[1]), ScoreTask.model_validate_json(sys.argv[2])
    engine.use_folder = use_folder
    try:
        engine.VllmEngine(resolve_engine(task, model, model_shape_of(config_in(model)), None, sku="cpu"), Generation())
        print("\\nRANK loaded", flush=True)
    except RankLost:
        print("\\nRANK lost", flush=True)
"""
ROWS = 24
PER_PART = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tensor-parallel")
    write_model(made / "model", hidden_size=128, num_attention_heads=4, num_key_value_heads=2)
    texts = sentences(2 * ROWS)
    rows = [{"question": texts[i], "answer": texts[ROWS + i]} for i in range(ROWS)]
    (made / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def score_task(folder: Path, degree: int) -> dict[str, Any]:
    return {
        "model": {"name": str(folder / "model")},
        "data": {"source": str(folder / "rows.jsonl"), "prompt": "question", "reference": "answer"},
        "generation": {"maxTokens": 16, "temperature": 0},
        "engine": {"batch": 8, "tensorParallel": degree},
        "metrics": ["rouge_l", "perplexity"],
        "rowsPerPart": PER_PART,
    }


def rows_of(out: Path, task: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / task / "parts").to_pylist()
    return rows


def abandoned() -> set[str]:
    """What engines have left in /dev/shm and /tmp: no living process uses it. Other programs of the machine have engines there too."""
    names = {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "vllm_dist_", "sem.tuneyard-"))}
    maps = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            maps.append(Path("/proc", pid, "maps").read_text())
    unused = {name for name in names if not any(f"/dev/shm/{name}" in mapped for mapped in maps)}
    return unused | {owner.parent.name for owner in Path("/tmp").glob("ty-engine-*/.tuneyard-owner") if not held(owner)}


def held(owner: Path) -> bool:
    """Whether a living process holds the lock of an engine's folder."""
    try:
        with owner.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for_ranks(run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The two ranks of an engine that has begun to load."""
    found: list[psutil.Process] = []
    while len(found) < 2:
        assert run.poll() is None, "the run ended before a rank could be killed"
        time.sleep(0.02)
        found = announced()
    return found


def announced() -> list[psutil.Process]:
    """Ranks of engines that this process has started, directly or by a job or the fork server."""
    found = []
    for file in Path("/tmp").glob("ty-engine-*/rank-*"):
        with suppress(psutil.NoSuchProcess):
            rank = psutil.Process(int(file.name.removeprefix("rank-")))
            if psutil.Process() in rank.parents():
                found.append(rank)
    return found


def test_a_killed_rank_costs_no_row_and_two_ranks_answer_like_one(folder: Path, engine_server: Path) -> None:  # noqa: ARG001  # of the job
    tasks = [{"name": f"ranks-{degree}", "score": score_task(folder, degree)} for degree in (2, 1)]
    spec = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "judges"}, "spec": {"tasks": tasks}}
    (folder / "job.yaml").write_text(json.dumps(spec))
    out, before = folder / "out", abandoned()
    run = subprocess.Popen([Path(sys.executable).with_name("tuneyard"), "run", str(folder / "job.yaml"), "--out", str(out)])
    ranks = wait_for_ranks(run)
    while not list((out / "ranks-2" / "parts").glob("*.parquet")):
        assert run.poll() is None, "the run ended before a rank could be killed"
        time.sleep(0.02)
    started = [*ranks, *ranks[0].parents()[:1], *psutil.Process(run.pid).children(recursive=True)]

    ranks[1].kill()

    assert run.wait() == 0
    report = json.loads((out / "report.json").read_text())["tasks"]
    two, one = report["ranks-2"], report["ranks-1"]
    assert two["details"]["engine_deaths"] == 1
    assert (two["rows"], two["errors"]) == (ROWS, 0)
    assert [row["output"] for row in rows_of(out, "ranks-2")] == [row["output"] for row in rows_of(out, "ranks-1")]
    assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-4)
    assert two["mfu"] > 0
    wait_for("all processes of the run have ended", lambda: not any(runs(process) for process in started))
    wait_for("nothing is left behind", lambda: abandoned() <= before)


def test_why_a_rank_could_not_load_is_told(folder: Path, score: Score) -> None:
    """The engine's process knows only that a rank ended; the cause is in the rank's."""
    shutil.copytree(folder / "model", folder / "cut")
    request = score_request(folder, "never", score_task(folder, 2) | {"model": {"name": str(folder / "cut")}})
    weights = folder / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])  # after the checks before a run, which would refuse it

    with pytest.raises(JobFailed, match=r"(?i)the engine cannot load .*(incomplete|header|safetensor)"):
        score(request)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0, 0.3, 0.6, 1, 1.5, 2, 3, 4, 5])
def test_a_rank_that_is_killed_at_any_moment_of_the_load_is_lost(folder: Path, seconds: float) -> None:
    """Load an engine in a process of its own, as in a run, and kill a rank `seconds` after it has begun to load. The engine's process may
    be replaced, and the task does not fail. `test_a_killed_rank_costs_no_row_and_two_ranks_answer_like_one` kills one amid the rows."""
    load = subprocess.Popen([sys.executable, "-c", LOAD, str(folder / "model"), json.dumps(score_task(folder, 2))], stdout=subprocess.PIPE)
    assert load.stdout is not None
    engine = Path(load.stdout.readline().decode().strip())
    while len(started := list(engine.glob("rank-*"))) < 2:
        assert load.poll() is None
        time.sleep(0.02)
    time.sleep(seconds)

    os.kill(int(started[1].name.removeprefix("rank-")), signal.SIGKILL)

    said, code = load.stdout.read().decode(), load.wait()  # vLLM's log, with our line
    end = said.rpartition("\nRANK ")[2].split()[0] if "\nRANK " in said else "ended"
    assert (code, end) in ((1, "ended"), (0, "lost"), (0, "loaded")), said
    assert seconds > 0 or end != "loaded"
