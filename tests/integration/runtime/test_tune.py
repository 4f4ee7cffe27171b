"""A search of settings by short real runs: from the command to the tuned job; a trial that fails; a search that is ended and goes on."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.builders.programs import write_program
from tests.integration.runtime.conftest import TUNEYARD, Cluster, WriteJob, environment, read_report, train, tuneyard, tuneyard_here

from tuneyard.api import TuneyardError, load_jobspec
from tuneyard.cli.progress.plain import PlainProgress
from tuneyard.cli.tune import with_search
from tuneyard.runtime import run_job
from tuneyard.runtime.attempt import state
from tuneyard.tracking.history import History
from tuneyard.tuning import Trial, history_frame
from tuneyard.tuning.passed_on import trials_in

SEARCH = {"task": "chat", "budget": {"trials": 5, "rounds": 1, "pairs": 1}, "stepsPerTrial": 6, "space": {"batch.micro": [1, 4]}}


def search(write_job: WriteJob, **changes: object) -> Path:
    chat = {"name": "chat", "train": train(batch={"global": 8}), "resources": {"workers": 1}}
    return write_job(chat, {"name": "search", "tune": SEARCH | changes})


@pytest.mark.usefixtures("warm_servers")
@pytest.mark.timeout(1800)
def test_a_search_measures_and_writes_the_winner_down(write_job: WriteJob, tmp_path: Path) -> None:
    """It was killed after its first trial, whose result is in trials.json: that one is not run again. It goes on with two gangs of one rank
    each, which divide what is left."""
    url = f"sqlite:///{tmp_path}/history.db"
    budget = {"trials": 8, "rounds": 1, "pairs": 1, "atOnce": 2}
    file, out = search(write_job, budget=budget, space={"batch.micro": [1, 2, 4]}), tmp_path / "out"
    (out / "search").mkdir(parents=True)
    known = asdict(Trial(number=2, point={"batch.micro": 1}, tokens_per_s=0.001, seconds=1.0, ratio=0.01))
    own = asdict(Trial(number=1, point={}, tokens_per_s=0.1, seconds=60.0))
    (out / "search" / "trials.json").write_text(
        json.dumps({"own": [own], "trials": [known], "pairs": [], "place": "1 x cpu", "numbers": 2})
    )
    (out / "job.json").write_text(json.dumps(load_jobspec(file).to_yaml_dict()))

    done = tuneyard("tune", file, "--out", out, "--resume", TUNEYARD_HISTORY="on", TUNEYARD_HISTORY_URL=url)
    assert done.returncode == 0, done.stderr

    found = read_report(out)["tasks"]["search"]
    assert found["trials"][0] == known
    assert sorted(trial["point"]["batch.micro"] for trial in found["trials"]) == [1, 2, 4]
    assert [found["gangs"], *sorted(run["gang"] for run in found["own"][1:])] == [2, 1, 2], "each gang runs the settings of the file too"
    reference = {run["gang"]: run["tokens_per_s"] for run in found["own"][1:]}
    for trial in found["trials"][1:]:
        assert trial["ratio"] == pytest.approx(trial["tokens_per_s"] / reference[trial["gang"]]), (
            "beside the settings of the file on its gang"
        )
    leads = max(trial["ratio"] for trial in found["trials"]) > 1
    assert len(found["pairs"]) == leads, "what loses to the settings of the file is not confirmed"
    assert all(one["gang"] == other["gang"] for one, other in found["pairs"])
    assert "batch.micro" in done.stdout
    assert "trial 3/8  gang 1  settings of the file" in done.stderr
    assert "trial 4/8  gang 2  settings of the file" in done.stderr
    assert not list((out / "search" / "trials").rglob("*.safetensors")), "trials leave no weights behind"
    assert not (out / "chat").exists(), "the tuned task itself does not run"
    if found["gain"] > 0:
        tuned = load_jobspec(file.with_name(f"{file.stem}.tuned.yaml")).spec
        assert [task.name for task in tuned.tasks] == ["chat"]
        body = tuned.tasks[0].train
        assert body is not None
        assert body.batch.micro == found["best"]["batch.micro"]

    history = History.open(url)
    rows = history_frame(history.training_runs())
    history.close()
    assert len(rows) == 2 + (len(found["own"]) - 1) + 2 * len(found["pairs"])
    assert (rows.tokens_per_sec_per_gpu > 0).all()
    learned = trials_in(state.search(found)["learned"])
    measured = [*found["own"], *found["trials"], *(run for pair in found["pairs"] for run in pair)]
    assert [number for number, _ in learned] == [run["number"] for run in measured]
    assert {run["settings"]["micro_batch"] for _, run in learned} >= {1, 2, 4}, "what a hub keeps of a search is rows like these"


@dataclass(frozen=True)
class Searched:
    """A search as `tuneyard tune` runs it, on the cluster: its progress, and its entry of the report or its error."""

    said: str
    found: dict[str, Any]
    error: TuneyardError | None = None


@pytest.fixture
def searched(
    cluster: Cluster,
    warm_servers: Path,  # noqa: ARG001 - sets the environment
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., Searched]:
    for name, value in {"TUNEYARD_HISTORY": "off", **cluster.access}.items():
        monkeypatch.setenv(name, value)

    def run(file: Path, minutes: float | None = None) -> Searched:
        job, name = with_search(load_jobspec(file), trials=None, minutes=minutes, searcher=None)
        said, out = io.StringIO(), str(tmp_path / "out")
        try:
            report = run_job(job, base_dir=file.parent, out=out, until=name, ray_address=cluster.address, listener=PlainProgress(job, said))
        except TuneyardError as error:
            return Searched(said.getvalue(), {}, error)
        return Searched(said.getvalue(), report.tasks[name])

    return run


def test_data_workers_are_tried_on_streamed_data(write_job: WriteJob, searched: Callable[..., Searched], tmp_path: Path) -> None:
    texts, words = tmp_path / "texts.jsonl", "some words of a text that is long enough to fill a row "
    texts.write_text("".join(json.dumps({"text": f"{number} {words * 4}"}) + "\n" for number in range(20_000)))
    data = {"source": str(texts), "streaming": True, "maxLength": 64, "pack": True}
    chat = {"name": "chat", "train": train(batch={"global": 8}, data=data, objective="clm"), "resources": {"workers": 1}}
    tune = SEARCH | {"budget": {"trials": 2, "rounds": 1}, "space": {"data.workers": [1]}}
    cache = {"name": "TUNEYARD_CACHE", "value": str(tmp_path / "cache")}
    ended = searched(write_job(chat, {"name": "search", "tune": tune}, env=[cache]))
    assert ended.error is None
    (own,), (trial,) = ended.found["own"], ended.found["trials"]
    assert trial["point"] == {"data.workers": 1}
    assert min(own["tokens_per_s"], trial["tokens_per_s"]) > 0


def test_a_program_is_searched_in_rows_and_its_trials_tell_the_next_plan(
    write_job: WriteJob, searched: Callable[..., Searched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its evaluation asks for predictions, which a trial without held-out rows does not make."""
    history = {"TUNEYARD_HISTORY": "on", "TUNEYARD_HISTORY_URL": f"sqlite:///{tmp_path}/history.db"}
    for name, value in history.items():
        monkeypatch.setenv(name, value)
    folder = write_program(tmp_path / "program")
    body = {"program": "line:Line", "programDir": str(folder), "data": {"source": str(folder / "rows.jsonl"), "validationFraction": 0.2}}
    body |= {"steps": 100, "evaluation": {"predictions": True}}

    def fit(micro: int, zero: int) -> dict[str, Any]:
        own = {"batch": {"global": 8, "micro": micro}, "strategy": {"zero": zero}}
        return {"name": "fit", "train": body | own, "resources": {"workers": 1}}

    space = {"batch.micro": [2], "strategy.zero": [0, 1]}
    tune = {"task": "fit", "budget": {"trials": 4, "rounds": 1, "pairs": 1}, "stepsPerTrial": 6, "space": space}
    run = searched(write_job(fit(2, 0), {"name": "search", "tune": tune}))

    assert run.error is None
    assert "no history: nothing is expected of a program" in run.said
    assert (run.found["unit"], [trial["point"] for trial in run.found["trials"]]) == ("rows", [{"batch.micro": 2, "strategy.zero": 1}])
    assert all(each["tokens_per_s"] > 0 for each in (*run.found["own"], *run.found["trials"])), "rows/s"
    told = [tuneyard_here("plan", write_job(fit(*layout)), "--sku", "cpu", **history).stdout for layout in ((2, 1), (4, 1))]
    assert "rows/s, measured, not predicted" in told[0]
    assert "memory, speed and cost are not predicted" in told[1]


def test_what_cannot_be_tuned_is_said_before_anything_starts(write_job: WriteJob, tmp_path: Path) -> None:
    done = tuneyard_here("tune", search(write_job, task="search"), "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "no train, rank or score task" in done.stderr or "wait for each other" in done.stderr


def test_a_space_in_which_nothing_fits_is_refused_with_the_reason(write_job: WriteJob, tmp_path: Path) -> None:
    done = tuneyard_here("tune", search(write_job, space={"batch.micro": [3]}), "--out", tmp_path / "out")
    assert done.returncode != 0
    assert "no combination of batch.micro can work" in done.stderr


@pytest.mark.usefixtures("warm_servers")
def test_sigterm_ends_a_search_with_the_table_of_what_was_measured(write_job: WriteJob, tmp_path: Path) -> None:
    argv = [*TUNEYARD, "tune", str(search(write_job)), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stderr is not None
    for line in process.stderr:
        if "trial 1/" in line:
            process.send_signal(signal.SIGTERM)
            break
    shown, said = process.communicate(timeout=300)
    assert process.returncode == 1, said
    assert "of the file" in shown
    assert "tokens per s" in shown
    assert "--resume" in said
    assert "*** SIGTERM" not in said  # Ray's own handler prints a stack trace, and ends the process three seconds later


def test_minutes_that_end_before_the_first_trial_say_how_to_go_on(write_job: WriteJob, searched: Callable[..., Searched]) -> None:
    """A tenth of a minute is over while the ranks start, or in the first of so many steps."""
    ended = searched(search(write_job, stepsPerTrial=100_000), minutes=0.1)
    assert ended.error is not None
    assert "0.1 minutes of the search were over before the settings of the file had run once" in ended.error.cause
    assert "--minutes" in ended.error.next_step
    assert "its time was over" in ended.said
    assert "UserError" not in ended.said
