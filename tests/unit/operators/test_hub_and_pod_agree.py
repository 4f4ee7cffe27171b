"""What the hub places, the pod does not refuse; what `validate` lets pass, the hub does; and what the hub refuses, some pod would have.

Two models stand in the catalog, so that a hub knows their heads, and asks for memory where it has a choice; of the third it knows
nothing. Specs are drawn by a seed, and go through the real entry points: `check_file`, `goal_of` with `ask_of`, and what an attempt checks
and plans before it trains, on one machine and on several.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.models import write_weights
from tests.builders.rankers import features, write_clicks

from tuneyard.admission import Machine, ask_of, choose_workers
from tuneyard.api import BadInput, JobSpec, JobStatus, Task
from tuneyard.catalog import canonical_sku, gpu, known_config
from tuneyard.cli.checks import check_file
from tuneyard.federation import skus_of, worlds_of
from tuneyard.planning import plan_of_ranker, resolve
from tuneyard.runtime.attempt.assignment import Assignment
from tuneyard.runtime.checks import check_job
from tuneyard.runtime.models import model_shape
from tuneyard_operators.hub.goals import goal_of
from tuneyard_operators.rendering import Defaults

OFFERED = ("a100-80gb", "cpu", "h100-80gb", "t4-16gb", "v100-32gb")
DEFAULTS = Defaults(output="s3://tuneyard/jobs", image="registry/tuneyard:1")
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
}
KNOWN = ("Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.1-8B")
"""14 and 32 heads."""
_ROWS = {
    "sft": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    "clm": {"text": "a"},
    "dpo": {"prompt": "a", "chosen": "b", "rejected": "c"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of small shape, and data of each kind."""
    made = tmp_path_factory.mktemp("agree")
    (made / "model").mkdir()
    (write_weights(made / "model") / "config.json").write_text(json.dumps(_CONFIG))
    for name in KNOWN:
        (made / name).mkdir(parents=True)
        (write_weights(made / name) / "config.json").write_text(json.dumps(known_config(name)))
    for kind, row in _ROWS.items():
        (made / f"{kind}.jsonl").write_text(f"{json.dumps(row)}\n" * 20)
    write_clicks(made / "clicks.parquet", 1_000)
    return made


class Draw:
    """JobSpecs of one or two tasks, with settings that do and do not go together."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = random.Random(seed)
        self._folder = folder

    def job(self) -> dict[str, Any]:
        kind = self._random.choice(["train", "train", "train", "score", "tune", "rank", "rank"])
        tasks: list[dict[str, Any]] = []
        if kind in ("train", "tune"):
            tasks.append({"name": "a", "train": self._train(), "resources": self._resources()})
        if kind == "rank":
            tasks.append({"name": "a", "rank": self._rank(), "resources": self._resources()})
        if kind == "score":
            tasks.append({"name": "s", "score": self._score(), "resources": self._resources(engines=True)})
        if kind == "tune" or (kind == "rank" and self._random.random() < 0.3):
            tasks.append({"name": "z", "tune": {"task": "a", "budget": {"trials": 8, **self._some(0.5, atOnce=[1, 2])}}})
        skus = self._some(0.2, placement={"skus": [["h100-80gb"], ["cpu"], ["t4-16gb", "cpu"]]})
        metadata = {"name": "j", "namespace": "default"}
        spec = {"tasks": tasks, "storage": {"output": "s3://b/x"}, **skus}
        return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": metadata, "spec": spec}

    def _some(self, share: float, **choices: Any) -> dict[str, Any]:
        """Some of these fields; a mapping in place of a list has one field that is drawn."""
        made = {}
        for name, values in choices.items():
            if self._random.random() < share:
                name = name.rstrip("_")
                made[name] = (
                    {key: self._random.choice(inner) for key, inner in values.items()}
                    if isinstance(values, dict)
                    else self._random.choice(values)
                )
        return made

    def _resources(self, *, engines: bool = False) -> dict[str, Any]:
        skus = [["h100-80gb"], ["a100-80gb", "h100-80gb"], ["t4-16gb"], ["cpu"], ["cpu", "t4-16gb"], ["v100-32gb"], ["T4"]]
        if engines:
            return self._some(0.6, sku=skus, instances=[1, 2, 3, 8])
        ranges = [{"min": 1, "max": 4}, {"min": 3, "max": 9}, {"min": 8, "max": 64}, {"min": 5, "max": 7}]
        return self._some(0.65, sku=skus, workers=["auto", 1, 2, 3, 4, 6, 8, 16, *ranges])

    def _strategy(self) -> Any:
        if self._random.random() < 0.4:
            return "auto"
        offload = [{"optimizer": "cpu"}, {"optimizer": "nvme"}, {"parameters": "cpu"}]
        return {
            **self._some(0.4, zero=["auto", 0, 1, 2, 3], precision=["auto", "bf16", "fp16", "fp32"]),
            **self._some(0.25, tensorParallel=[1, 2, 4, 8], contextParallel=[1, 2, 4, 7], offload=offload, liger=[True, False, "auto"]),
            **self._some(0.2, recompute=[True, False], shardWithin=["none", "auto", "host", "host"], quantisedAllReduce=["int8", "none"]),
            **self._some(0.1, sequenceParallel=[True]),
        }

    def _batch(self) -> dict[str, Any]:
        return self._some(0.6, global_=[1, 4, 8, 32, 48, 64, 100, 256], micro=["auto", 1, 2, 3, 8])

    def _train(self) -> dict[str, Any]:
        objective = self._random.choice(["sft", "clm", "dpo"])
        return {
            "model": {"name": self._model(), **self._some(0.2, attention=["flash", "sdpa", "eager"], init=["scratch"])},
            "data": {
                "source": str(self._folder / f"{objective}.jsonl"),
                **self._some(0.2, pack=[True], streaming=[True, False], workers=[2]),
            },
            "objective": objective,
            "strategy": self._strategy(),
            "batch": self._batch(),
            **self._some(0.5, method=[{"full": {}}, {"lora": {}}, {"qlora": {}}, {"dora": {}}], steps=[5]),
            **self._some(0.3, optimizer={"name": ["adamw", "adamw-8bit", "adafactor", "sgd"], "states": ["fp32", "bf16"]}),
        }

    def _model(self) -> str:
        return self._random.choice([str(self._folder / "model"), *KNOWN])

    def _rank(self) -> dict[str, Any]:
        return {
            "table": {"source": str(self._folder / "clicks.parquet")},
            "features": features(),
            "label": "clicked",
            "model": {"layers": [["dlrm"]], "width": 8},
            "strategy": self._strategy(),
            "batch": self._batch(),
            **self._some(0.3, optimizer={"name": ["adamw", "adamw-8bit", "adafactor", "sgd"], "states": ["fp32", "bf16"]}),
        }

    def _score(self) -> dict[str, Any]:
        return {
            "model": {"name": self._model()},
            "data": {"source": str(self._folder / "dpo.jsonl"), "prompt": "prompt"},
            **self._some(0.6, engine={"tensorParallel": [1, 2, 4, 8], "precision": ["auto", "bf16", "fp16", "fp32"]}),
        }


def placements(job: JobSpec, task: Task) -> Iterator[tuple[str, int]]:
    """SKUs and numbers of GPUs on which the scheduler may place a task."""
    ask = ask_of(job, 0.0, task.name, JobStatus(), OFFERED)
    for sku in ask.skus or OFFERED:
        yield from ((sku, world) for world in ask.worlds if ask.fewest(sku) <= world)


def refused_in_pod(job: JobSpec, task: Task, sku: str, world: int, folder: Path, per_host: int = 8) -> str:
    """What an attempt says before it trains: its checks, and its plan. A number of workers and SKUs that an author names, a hub takes
    without asking for memory."""
    unit = task.score.engine.tensor_parallel if task.score is not None else 1
    assignment = Assignment(task=task.name, attempt=1, run="r", sku=sku, scratch=folder, workers=world // unit)
    chosen = assignment.applied(job)
    own = chosen.spec.task(task.name)
    gang = chosen.spec.gang_of(own)
    machine = Machine(sku, world, 2_000.0, None if sku == "cpu" else min(world, per_host))
    try:
        check_job(chosen, base_dir=folder, machine=machine, names={own.name, gang.name})
        if gang.rank is not None:
            plan_of_ranker(gang.rank, gpu(sku), choose_workers(gang, machine), gpus_per_node=min(world, per_host))
        elif gang.train is not None:
            shape = model_shape(str(folder / gang.train.model.name), None)
            workers, per_node = choose_workers(gang, machine), machine.per_host or world
            resolve(gang.train, shape, gpu(sku), workers, flash_available=True, liger_available=True, gpus_per_node=per_node)
    except BadInput as error:
        own = job.spec.gang_of(task)
        is_known = own.train is not None and own.train.model.name in KNOWN
        chosen_by_hub = sku != "cpu" and not (skus_of(job, own) and isinstance(own.resources.workers, int))
        if error.cause.startswith("does not fit"):
            return str(error) if is_known and chosen_by_hub else ""
        return str(error) if is_known or "attention heads" not in error.cause else ""
    return ""


def drawn(seed: int, folder: Path, wanted: Callable[[str], bool], count: int) -> Iterator[tuple[JobSpec, str, dict[str, Any]]]:
    draw = Draw(seed, folder)
    while count:
        body = draw.job()
        meta = {**body["metadata"], "uid": "0123456789", "generation": 1, "creationTimestamp": "2026-11-21T12:00:00Z"}
        goal = goal_of({**body, "metadata": meta}, DEFAULTS)
        if wanted(goal.problem):
            count -= 1
            yield goal.job, goal.problem, body


def unit_of(gang: Task) -> int:
    """GPUs that the scheduler keeps on one machine."""
    return gang.training.layout.tensor_parallel if gang.training is not None else 8


@pytest.mark.parametrize(("seed", "jobs"), [(1, 50), pytest.param(10, 1500, marks=pytest.mark.long)])
def test_what_the_hub_places_no_pod_refuses(seed: int, jobs: int, folder: Path) -> None:
    placed = 0
    for job, _, body in drawn(seed, folder, lambda problem: not problem, jobs):
        for task in job.spec.tasks:
            for sku, world in placements(job, task):
                placed += 1
                for per_host in {8, max(1, unit_of(job.spec.gang_of(task)))}:
                    assert refused_in_pod(job, task, sku, world, folder, per_host) == "", (sku, world, per_host, json.dumps(body["spec"]))
    assert placed > 5 / 3 * jobs


def test_validate_and_the_hub_refuse_the_same_jobs(folder: Path) -> None:
    refused = 0
    for _, problem, body in drawn(2, folder, lambda _: True, 200):
        file = folder / "job.yaml"
        file.write_text(yaml.safe_dump(body))
        said = ""
        try:
            check_file(file)
        except BadInput as error:
            said = error.cause
        refused += bool(said)
        assert bool(said) == bool(problem), (said, problem, json.dumps(body["spec"]))
    assert 40 < refused < 160


def test_what_a_hub_refuses_some_pod_would_have_refused(folder: Path) -> None:
    """On one of the SKUs and numbers that the job allows at the least: naming a SKU on which it cannot work is refused as a whole."""
    for job, problem, body in drawn(3, folder, bool, 60):
        if "names" in problem and "alone: name one of these" in problem:
            continue  # it would run nowhere
        try:
            job = JobSpec.model_validate(body)
        except ValueError:
            continue  # no pod could read it
        pods = [
            refused_in_pod(job, task, canonical_sku(sku), world, folder)
            for task in job.spec.tasks
            for sku in job.spec.gang_of(task).resources.sku or OFFERED
            for world in worlds_of(job.spec.gang_of(task))
        ]
        assert any(pods), (problem, json.dumps(body["spec"]))


def test_what_one_machine_runs_a_hub_takes(folder: Path) -> None:
    ran = 0
    for job, problem, body in drawn(4, folder, lambda _: True, 150):
        if problem:
            try:
                job = JobSpec.model_validate(body)
            except ValueError:
                continue
        here = body["spec"].get("placement") is None and not {*job.spec.tasks[0].resources.sku} - {"cpu"}
        if not here or job.spec.tasks[0].score is not None:
            continue
        try:
            check_job(job, base_dir=folder, machine=Machine("cpu", 2))
        except BadInput:
            continue
        ran += 1
        assert problem == "", json.dumps(body["spec"])
    assert ran > 15
