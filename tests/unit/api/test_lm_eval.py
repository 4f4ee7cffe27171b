"""Tasks of lm-evaluation-harness in a JobSpec: what stands beside them, and what is said of everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tuneyard.api import BadInput, JobSpec, load_jobspec
from tuneyard.api.local_files import local_files
from tuneyard.cluster import shipment_of
from tuneyard.runtime.inputs import inputs_of
from tuneyard.runtime.references import resolved

HARNESS: dict[str, Any] = {"tasks": ["arc_easy", "gsm8k"]}


def job(score: dict[str, Any], **data: Any) -> dict[str, Any]:
    body = {"model": {"name": "my-org/model"}, "data": {"lmEval": HARNESS, **data}, **score}
    spec = {"tasks": [{"name": "exam", "score": body}]}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "exam"}, "spec": spec}


def read(folder: Path, content: dict[str, Any]) -> JobSpec:
    (folder / "job.yaml").write_text(yaml.safe_dump(content))
    return load_jobspec(folder / "job.yaml")


def test_tasks_of_the_harness_are_data(tmp_path: Path) -> None:
    harness = {**HARNESS, "fewshot": 5, "limit": 100, "chat": True, "folder": "s3://bucket/tasks"}
    task = read(tmp_path, job({"generation": {"seed": 3}, "rowsPerPart": 64}, lmEval=harness)).spec.tasks[0]
    assert task.sources() == {}
    assert task.score is not None
    assert task.score.data.lm_eval is not None
    assert task.score.data.lm_eval.limit == 100


@pytest.mark.parametrize(
    ("score", "data", "place", "said"),
    [
        ({}, {"source": "rows.jsonl"}, "data", "give exactly one of source, from and lmEval"),
        ({}, {"from": "other"}, "data", "give exactly one of source, from and lmEval"),
        ({}, {"lmEval": None}, "data", "give exactly one of source, from and lmEval"),
        ({}, {"prompt": "question"}, "data.prompt", "leave prompt out"),
        ({}, {"reference": "answer"}, "data.reference", "leave reference out"),
        ({}, {"sample": 10}, "data.sample", "leave sample out"),
        ({}, {"roles": {"customer": "user"}}, "data.roles", "leave roles out"),
        ({}, {"limit": 10}, "data.limit", "or put it into lmEval: {limit: …}"),
        ({}, {"chat": False}, "data.chat", "or put it into lmEval: {chat: …}"),
        ({}, {"lmEval": {**HARNESS, "limit": 0}}, "data.lmEval.limit", "at least 1"),
        ({}, {"lmEval": {**HARNESS, "fewshot": -1}}, "data.lmEval.fewshot", "at least 0"),
        ({}, {"lmEval": {"tasks": []}}, "data.lmEval.tasks", "must not be empty"),
        ({}, {"lmEval": {"tasks": ["a", "b", "a"]}}, "data.lmEval.tasks[2]", "a is named twice"),
        ({}, {"lmEval": {"tasks": ["../mmlu"]}}, "data.lmEval.tasks[0]", "../mmlu"),
        ({}, {"lmEval": {**HARNESS, "shots": 5}}, "data.lmEval.shots", "unknown field"),
        ({"metrics": ["exact_match"]}, {}, "metrics", "leave metrics out"),
        ({"ownMetrics": ["mine:rate"]}, {}, "ownMetrics", "leave ownMetrics out"),
        ({"answer": "number"}, {}, "answer", "leave answer out"),
        ({"ignore": ["case"]}, {}, "ignore", "leave ignore out"),
        ({"choices": {"texts": ["a", "b"]}}, {}, "choices", "leave choices out"),
        ({"judge": {"rubric": "good"}}, {}, "judge", "leave judge out"),
        ({"embedding": {"model": "e"}}, {}, "embedding", "leave embedding out"),
        ({"ranking": {"batch": 8}}, {}, "ranking", "leave ranking out"),
        ({"maxErrorFraction": 0.5}, {}, "maxErrorFraction", "leave maxErrorFraction out"),
        ({"generation": {"maxTokens": 8}}, {}, "generation.maxTokens", "generation_kwargs"),
        ({"generation": {"temperature": 0.5}}, {}, "generation.temperature", "generation_kwargs"),
    ],
)
def test_what_has_no_meaning_beside_them_is_refused_by_name(
    score: dict[str, Any], data: dict[str, Any], place: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, job(score, **data))
    lines = [line for line in refused.value.cause.splitlines() if f"spec.tasks[0].score.{place}:" in line]
    assert said in "\n".join(lines), refused.value.cause


def test_an_endpoint_is_refused(tmp_path: Path) -> None:
    content = job({"engine": {"endpoint": {"url": "https://api.example.com/v1", "model": "small"}}})
    del content["spec"]["tasks"][0]["score"]["model"]
    with pytest.raises(BadInput, match="endpoints give no likelihoods of given texts"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("metrics", "instead"),
    [
        ([{"lm_eval": "arc_easy"}], "data: {lmEval: {tasks: [arc_easy]}}"),
        (["exact_match", {"lm_eval": ["arc_easy", "gsm8k"]}], "data: {lmEval: {tasks: [arc_easy, gsm8k]}}"),
    ],
)
def test_a_task_as_a_metric_is_refused_with_the_field_for_it(metrics: list[Any], instead: str, tmp_path: Path) -> None:
    content = job({"metrics": metrics})
    content["spec"]["tasks"][0]["score"]["data"] = {"source": "rows.jsonl", "reference": "answer"}
    with pytest.raises(BadInput) as refused:
        read(tmp_path, content)
    assert instead in refused.value.cause


def test_the_folder_of_own_tasks_is_shipped_resolved_and_part_of_the_inputs(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.yaml").write_text("task: mine\n")
    (folder / "rows.jsonl").write_text("{}\n")
    content = job({}, lmEval={"tasks": ["mine"], "folder": "mine"})
    task = read(tmp_path, content).spec.tasks[0]
    [file] = local_files(read(tmp_path, content).spec)
    assert file.path == ("spec", "tasks", 0, "score", "data", "lmEval", "folder")
    shipment = shipment_of(content, tmp_path, out="s3://models/exam")
    [parcel] = shipment.parcels
    assert sorted(parcel.files) == ["mine.yaml", "rows.jsonl"]
    assert shipment.manifest["spec"]["tasks"][0]["score"]["data"]["lmEval"]["folder"].startswith("s3://models/exam/_shipped/")
    found, _ = resolved(task, tmp_path, {})
    assert found.score is not None
    assert found.score.data.lm_eval is not None
    assert found.score.data.lm_eval.folder == str(folder)
    before = inputs_of(task, tmp_path)
    (folder / "rows.jsonl").write_text("{} \n")
    now = inputs_of(task, tmp_path)
    assert before["score.data.lmEval.folder"]["content"] != now["score.data.lmEval.folder"]["content"]


def test_a_schedule_knows_which_of_its_figures_are_better() -> None:
    from tuneyard.api import Schedule

    def schedule(**limits: Any) -> Schedule:
        content = {"kind": "Schedule", "metadata": {"name": "nightly"}}
        goal = {"cron": "0 2 * * *", "regression": limits, "template": {"spec": {**job({})["spec"], "storage": {"output": "s3://b/x"}}}}
        return Schedule.model_validate({**content, "spec": goal})

    found = schedule(**{"arc_easy/acc_norm": {"worseBy": "2%"}, "wikitext/word_perplexity": {"worseByAbsolute": 1}}).spec.limits
    assert {name: limit.better for name, limit in found.items()} == {"arc_easy/acc_norm": "higher", "wikitext/word_perplexity": "lower"}
    with pytest.raises(ValueError, match="say which values are better"):
        schedule(**{"mine/of_my_own/filter": {"worseBy": "2%"}})
