"""`from`, relative paths and `--model`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tuneyard.admission import model_origin
from tuneyard.api import BadInput, JobSpec, ModelRef
from tuneyard.api.local_files import looks_like_path
from tuneyard.runtime.models import read_config
from tuneyard.runtime.references import Start, named_model, resolved, with_model
from tuneyard.storage import open_store
from tuneyard.storage.marks import model_marks
from tuneyard.training.origin import ORIGIN, Origin

TRAIN = {"data": {"source": "train.jsonl"}, "steps": 1}
BASE = {"name": "base", "train": {"model": {"name": "shape", "init": "scratch"}, **TRAIN}}
TUNE = {"name": "tune", "train": {"model": {"from": "base"}, **TRAIN}}
SCORE = {"name": "score", "score": {"model": {"from": "tune"}, "data": {"source": "heldout.parquet"}}}
SCORE_BASE = {"name": "score-base", "score": {"model": {"from": "base"}, "data": {"source": "heldout.parquet"}}}


def job(*tasks: dict) -> JobSpec:
    return JobSpec.model_validate({"kind": "JobSpec", "metadata": {"name": "j"}, "spec": {"tasks": list(tasks)}})


def test_the_origin_of_a_model_is_the_task_that_names_it_or_the_first_that_an_attempt_knows() -> None:
    whole = job(BASE, TUNE, SCORE)
    alone = whole.model_copy(update={"spec": whole.spec.model_copy(update={"tasks": whole.spec.tasks[1:2]})})  # as an attempt makes it
    assert [model_origin(whole, task).name for task in whole.spec.tasks] == ["base", "base", "base"]
    assert model_origin(alone, alone.spec.tasks[0]).name == "tune"


def test_relative_paths_start_at_the_jobspec(tmp_path: Path) -> None:
    (tmp_path / "shape").mkdir()
    task, start = resolved(job(BASE).spec.tasks[0], tmp_path, {})
    assert task.train is not None
    assert task.train.data.source == str(tmp_path / "train.jsonl")
    assert start.model_uri == str(tmp_path / "shape")


@pytest.mark.parametrize(
    ("given", "found"),
    [("chat.jinja", "{folder}/chat.jinja"), ("s3://b/chat.jinja", "s3://b/chat.jinja"), ("{{ messages }}", "{{ messages }}")],
)
def test_a_chat_template_lies_beside_the_jobspec_too(given: str, found: str, tmp_path: Path) -> None:
    task = {"name": "t", "train": {"model": {"name": "m"}, "data": {"source": "x.jsonl", "chatTemplate": given}}}
    body = resolved(job(task).spec.tasks[0], tmp_path, {})[0].train
    assert body is not None
    assert body.data.chat_template == found.replace("{folder}", str(tmp_path))


def test_uris_and_hub_names_stay(tmp_path: Path) -> None:
    task = {"name": "t", "train": {"model": {"name": "Qwen/Qwen2.5-0.5B"}, "data": {"source": "s3://bucket/x.jsonl"}}}
    resolved_task, start = resolved(job(task).spec.tasks[0], tmp_path, {})
    assert resolved_task.train is not None
    assert resolved_task.train.data.source == "s3://bucket/x.jsonl"
    assert start.model_uri == "Qwen/Qwen2.5-0.5B"


def test_data_and_shape_from_a_process_task(tmp_path: Path) -> None:
    corpus = {"name": "corpus", "process": {"command": ["true"]}}
    base = {
        "name": "base",
        "train": {"model": {"from": "corpus", "path": "model", "init": "scratch"}, "data": {"from": "corpus", "path": "text.jsonl"}},
    }
    task, start = resolved(job(corpus, base).spec.task("base"), tmp_path, {"corpus": {"output": f"{tmp_path}/corpus/files"}})
    assert task.train is not None
    assert task.train.data.source == f"{tmp_path}/corpus/files/text.jsonl"
    assert task.train.data.from_task is None
    assert start.model_uri == f"{tmp_path}/corpus/files/model"


def test_full_weights_from_a_train_task(tmp_path: Path) -> None:
    results = {"tune": {"output": "/o/tune", "model_uri": "/o/tune/model", "adapter_uri": None, "base_model_uri": "/o/base/model"}}
    _, start = resolved(job(BASE, TUNE, SCORE).spec.task("score"), tmp_path, results)
    assert (start.model_uri, start.adapter_uri) == ("/o/tune/model", None)


def test_an_adapter_from_a_train_task_comes_with_its_base(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    adapter, base = str(adapter_in(tmp_path / "tune" / "model", str(tmp_path / "base"))), str(tmp_path / "base")
    results = {"tune": {"output": f"{tmp_path}/tune", "model_uri": None, "adapter_uri": adapter, "base_model_uri": base}}
    _, start = resolved(job(BASE, TUNE, SCORE).spec.task("score"), tmp_path, results)
    assert (start.model_uri, start.adapter_uri) == (base, adapter)


def test_model_option_leaves_out_what_is_trained_from_scratch(tmp_path: Path) -> None:
    changed = with_model(job(BASE, TUNE, SCORE, SCORE_BASE), "Qwen/Qwen2.5-0.5B", tmp_path)
    assert [task.name for task in changed.spec.task_order()] == ["tune", "score-base", "score"]
    tune, score_base = changed.spec.task("tune").train, changed.spec.task("score-base").score
    assert tune is not None
    assert score_base is not None
    assert tune.model.name == score_base.model.name == "Qwen/Qwen2.5-0.5B"
    assert tune.model.from_task is None
    assert changed.spec.task("score").score.model.from_task == "tune"  # type: ignore[union-attr]


def test_model_option_replaces_names_where_nothing_is_from_scratch(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    tune = {"name": "tune", "train": {"model": {"name": "org/other", "attention": "eager"}, **TRAIN}}
    changed = with_model(job(tune, SCORE), "mine", tmp_path).spec.task("tune").train
    assert changed is not None
    assert changed.model.name == str(tmp_path / "mine")
    assert changed.model.attention == "eager"


def test_model_option_with_nothing_left_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing is left to do"):
        with_model(job(BASE), "any/model", tmp_path)


@pytest.mark.parametrize(
    ("name", "is_path"), [("gpt2", False), ("org/model", False), ("./m", True), ("/m", True), ("s3://b/m", True), ("a/b/c", True)]
)
def test_paths_are_told_from_hub_names(name: str, is_path: bool, tmp_path: Path) -> None:
    assert looks_like_path(name) is is_path
    assert (named_model(name, tmp_path) == name) is (not is_path or "://" in name or name.startswith("/"))


def adapter_in(folder: Path, base: str | None, **more: object) -> Path:
    folder.mkdir(parents=True)
    about = {"base_model_name_or_path": base, "peft_type": "LORA", "r": 1, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(about | more))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora"
    save_file({f"{name}_{part}.weight": np.zeros((1, 1), np.float32) for part in "AB"}, folder / "adapter_model.safetensors")
    return folder


def start_at(name: str, folder: Path) -> tuple[ModelRef, Start]:
    task = {"name": "t", "train": {"model": {"name": name}, **TRAIN}}
    body, start = resolved(job(task).spec.tasks[0], folder, {})
    assert body.train is not None
    return body.train.model, start


def test_the_folder_of_an_adapter_stands_for_its_base_with_the_adapter(tmp_path: Path) -> None:
    adapter = adapter_in(tmp_path / "adapter", "owner/base", revision="v2")
    model, start = start_at("./adapter", tmp_path)
    assert start == Start("owner/base", str(adapter), "v2")
    assert (model.name, model.revision) == ("owner/base", "v2")


def test_the_model_of_a_task_keeps_the_revision_of_its_base(tmp_path: Path) -> None:
    adapter = str(adapter_in(tmp_path / "tune" / "model", "owner/base", revision="v2"))
    task, start = resolved(job(BASE, TUNE, SCORE).spec.tasks[2], tmp_path, {"tune": {"adapter_uri": adapter}})
    assert start == Start("owner/base", adapter, "v2")
    assert task.score is not None
    assert task.score.model.revision == "v2"


@pytest.mark.parametrize(
    ("base", "said"),
    [(None, "does not name its base model"), ("/no/such/base", "was trained on /no/such/base, and there is no such folder")],
)
def test_an_adapter_without_its_base_is_refused(base: str | None, said: str, tmp_path: Path) -> None:
    adapter_in(tmp_path / "adapter", base)
    with pytest.raises(BadInput, match=said):
        start_at("./adapter", tmp_path)
    with pytest.raises(BadInput, match=said):
        read_config(str(tmp_path / "adapter"))


def test_the_configuration_of_an_adapter_is_that_of_its_base(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    adapter_in(tmp_path / "adapter", str(tmp_path / "base"))
    assert read_config(str(tmp_path / "adapter")) == {"model_type": "llama"}


def test_a_base_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    config = tmp_path / "base" / "config.json"
    config.write_text("{}")
    adapter = adapter_in(tmp_path / "staged", str(tmp_path / "base"))
    origin = Origin(str(tmp_path / "base"), marks=model_marks(tmp_path / "base")).to_dict()
    open_store(str(tmp_path)).commit_folder(adapter, "adapter", extra={ORIGIN: origin})
    uri = str(tmp_path / "adapter")
    assert start_at(uri, tmp_path)[1] == Start(str(tmp_path / "base"), uri)
    config.write_text("{ }")
    with pytest.raises(BadInput, match=r"has changed since the adapter .* was trained on it: config\.json"):
        start_at(uri, tmp_path)


def test_an_adapter_on_an_adapter_is_refused(tmp_path: Path) -> None:
    first = adapter_in(tmp_path / "first", "owner/base")
    adapter_in(tmp_path / "second", str(first))
    itself = adapter_in(tmp_path / "third", str(tmp_path / "third"))
    for name in ("second", itself.name):
        with pytest.raises(BadInput, match="is an adapter itself"):
            start_at(f"./{name}", tmp_path)
