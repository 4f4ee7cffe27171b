"""What a folder, a file, a link or a name is, and that every field and command that takes a model gives the same answer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tuneyard.api import BadInput, JobSpec, ModelRef
from tuneyard.catalog.weight_files import check_weight_files
from tuneyard.cli import main
from tuneyard.cluster import CannotShip, shipment_of
from tuneyard.runtime.models import read_config
from tuneyard.runtime.references import Start, resolved, start_of, with_model
from tuneyard.storage import Store, open_store
from tuneyard.training import model_finder
from tuneyard.training.model_finder import FoundModel, find_model, find_place, name_of

BASE = "org/base"
LORA = {"peft_type": "LORA", "r": 1, "target_modules": ["q_proj"]}
Make = Callable[[Path], str | Path]


def whole(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    save_file({"lm_head.weight": np.zeros((1, 1), np.float32)}, folder / "model.safetensors")
    return folder


def adapter(folder: Path, base: str | None = BASE, **more: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base, **LORA, **more}))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora"
    save_file({f"{name}_{part}.weight": np.zeros((1, 1), np.float32) for part in "AB"}, folder / "adapter_model.safetensors")
    return folder


def output(folder: Path, **results: dict[str, Any] | str | None) -> Path:
    """A job's output whose train tasks have these results; instead of one, the status of a task that has none."""
    tasks = {name: {"kind": "train", "status": made if isinstance(made, str) else "succeeded"} for name, made in results.items()}
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps({"job": "j", "status": "succeeded", "tasks": tasks}))
    for name, made in results.items():
        if isinstance(made, dict):
            (folder / name).mkdir()
            (folder / name / "result.json").write_text(json.dumps(made))
    return folder


def result(**values: Any) -> dict[str, Any]:
    return {"model_uri": None, "adapter_uri": None, "merged_uri": None, "base_model_uri": BASE, **values}


def full_run(folder: Path) -> Path:
    output(folder, early=result(model_uri="x"), train=result(model_uri="/elsewhere/train/model", base_revision="v2"), later="failed")
    whole(folder / "early" / "model")
    whole(folder / "train" / "model")
    return folder


def lora_run(folder: Path, *, merged: bool = False) -> Path:
    output(folder, train=result(adapter_uri="/elsewhere/train/model", merged_uri="/elsewhere/merged" if merged else None))
    adapter(folder / "train" / "model")
    if merged:
        whole(folder / "train" / "merged")
    return folder


def section(folder: Path) -> Path:
    """The output of a task of a hub's job: a section of the report, and the result."""
    full_run(folder)
    (folder / "train" / "report.json").write_text('{"attempt": 1, "status": "succeeded", "task": {"kind": "train"}}')
    return folder / "train"


def beside(folder: Path) -> Path:
    """As axolotl saves adapters."""
    adapter(folder)
    (folder / "config.json").write_text("{}")
    return folder


def linked(folder: Path) -> Path:
    whole(folder.parent / "real")
    folder.symlink_to(folder.parent / "real")
    return folder


def without_records(folder: Path) -> Path:
    whole(folder / "train" / "model")
    return folder


FOUND: dict[str, tuple[Make, str | None, str | None]] = {
    "a whole model": (whole, "", None),
    "a trailing slash": (lambda folder: f"{whole(folder)}/", "", None),
    "a file:// URI": (lambda folder: f"file://{whole(folder)}", "", None),
    "below the home": (lambda folder: f"~/{whole(folder).name}", "", None),
    "a link": (linked, "", None),
    "an adapter": (adapter, None, ""),
    "an adapter beside the configuration of its base": (beside, None, ""),
    "a job of whole weights": (full_run, "train/model", None),
    "its report, the last line of tuneyard run": (lambda folder: full_run(folder) / "report.json", "train/model", None),
    "a task's output": (lambda folder: full_run(folder) / "train", "train/model", None),
    "a task's output on a hub": (section, "train/model", None),
    "a job of an adapter": (lora_run, None, "train/model"),
    "a job of merged weights": (lambda folder: lora_run(folder, merged=True), "train/merged", None),
    "a run that was copied without its records": (without_records, "train/model", None),
    "a checkpoint of the Hugging Face Trainer": (lambda folder: touched(whole(folder), "optimizer.pt", "trainer_state.json"), "", None),
}
"""What is named; below the folder, where weights and adapter are; None: there is no adapter, and the weights are the base's."""


def touched(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def half_deleted(folder: Path) -> Path:
    open_store(str(folder.parent)).commit_folder(touched(whole(folder.parent / "staged"), "tokenizer.json"), folder.name)
    (folder / "tokenizer.json").unlink()
    return folder


def both(folder: Path) -> Path:
    whole(folder)
    return adapter(folder)


def on_itself(folder: Path) -> Path:
    return adapter(folder, str(folder))


def two_runs(folder: Path) -> Path:
    whole(folder / "a" / "model")
    whole(folder / "b" / "model")
    return folder


def dangling(folder: Path) -> Path:
    folder.symlink_to(folder.parent / "gone")
    return folder


REFUSED: dict[str, tuple[Make, str]] = {
    "nothing": (lambda folder: folder, "there is no folder"),
    "a link to nothing": (dangling, "is a link to"),
    "an empty folder": (lambda folder: touched(folder, "notes.txt"), "it has no config.json, and no adapter_config.json"),
    "a file of weights": (lambda folder: whole(folder) / "model.safetensors", "is a file, and a model is a folder"),
    "a GGUF file": (lambda folder: touched(folder, "a.gguf") / "a.gguf", "is a GGUF file, which llama.cpp reads"),
    "a folder of a GGUF file": (lambda folder: touched(folder, "a.gguf", "Modelfile"), "holds a GGUF file"),
    "weights alone": (lambda folder: touched(folder, "model-00001-of-00002.safetensors"), "holds weights, and no config.json"),
    "an optimizer alone": (lambda folder: touched(folder, "optimizer.pt", "scheduler.pt"), "holds the state of an optimizer"),
    "DeepSpeed's": (lambda folder: touched(folder, "latest", "global_step9/mp_rank_00_model_states.pt"), "a checkpoint of DeepSpeed"),
    "our checkpoint": (lambda folder: touched(folder, "rank-00000.json", "state.json"), "holds checkpoints, and no finished model"),
    "all checkpoints": (lambda folder: touched(folder, "log/00000001.json", "model/config.json"), "holds checkpoints, and no finished"),
    "an unfinished task": (lambda folder: touched(folder, "checkpoints/log/1.json", "task.json"), "holds checkpoints, and no finished"),
    "a run that failed": (lambda folder: output(folder, train="failed"), "by its report, train is failed"),
    "a run that goes on": (lambda folder: output(folder, train="running"), "by its report, train is running"),
    "a run without a report": (lambda folder: touched(folder, "job.json", "train/task.json"), "a job that has no report yet"),
    "a damaged report": (lambda folder: written(folder, "report.json", "{}"), "report.json is damaged"),
    "a damaged result": (lambda folder: written(folder, "result.json", "[1"), "result.json is damaged"),
    "a run without its model": (
        lambda folder: output(folder, train=result(model_uri="x")),
        "does not exist, though the records of its task name it",
    ),
    "several tasks without records": (two_runs, "holds several models: a, b"),
    "a folder of runs": (lambda folder: full_run(folder / "first").parent, "below it there are first"),
    "a folder around a folder": (lambda folder: whole(folder / "model-7b").parent, "below it there are model-7b"),
    "the cache of the hub": (lambda folder: whole(folder / "snapshots" / "abc").parents[1], "below it there are snapshots/abc"),
    "model and adapter at once": (both, "holds both a model (model.safetensors) and an adapter"),
    "half a model": (half_deleted, "has lost files since it was written, or they were changed: tokenizer.json"),
    "a program's": (lambda folder: output(folder, train=result(model_uri="x", details={"program": "mine:P"})), "training program"),
    "a score task's": (lambda folder: written(folder, "result.json", '{"rows": 3}'), "a task that trained no language model"),
    "an adapter without a base": (lambda folder: adapter(folder, None), "does not name its base model"),
    "an adapter whose base is gone": (lambda folder: adapter(folder, "/no/such/base"), "there is no such folder"),
    "an adapter on itself": (on_itself, "is an adapter itself"),
    "an adapter without weights": (lambda folder: cut(adapter(folder)), "has no weights"),
    "an adapter that is not JSON": (lambda folder: written(folder, "adapter_config.json", "["), "cannot be read"),
}


def written(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def cut(folder: Path) -> Path:
    (folder / "adapter_model.safetensors").unlink()
    return folder


def job(kind: str, model: dict[str, Any], **more: Any) -> JobSpec:
    data = {"train": {"source": "s3://b/t.jsonl"}, "score": {"source": "s3://b/t.jsonl", "prompt": "q"}}[kind]
    task = {"name": "t", kind: {"model": model, "data": data, **more}}
    before = {"name": "p", "process": {"command": ["true"]}}
    return JobSpec.model_validate({"kind": "JobSpec", "metadata": {"name": "j"}, "spec": {"tasks": [before, task]}})


def of_jobspec(kind: str, given: str, base_dir: Path) -> tuple[str, str | None]:
    start = resolved(job(kind, {"name": given}).spec.task("t"), base_dir, {})[1]
    return start.model_uri, start.adapter_uri


def of_option(given: str, cwd: Path, base_dir: Path) -> tuple[str, str | None]:
    spec = with_model(job("train", {"name": "any/model"}), given, cwd)
    start = resolved(spec.spec.task("t"), base_dir, {})[1]
    return start.model_uri, start.adapter_uri


def of_process(given: str, base_dir: Path) -> tuple[str, str | None]:
    """As what an earlier task has made."""
    folder, _, name = given.rstrip("/").rpartition("/")
    start = start_of(ModelRef.model_validate({"from": "p", "path": name}), base_dir, {"p": {"output": folder}})
    return start.model_uri, start.adapter_uri


def shipped_from(given: str, base_dir: Path) -> set[str]:
    """The folders whose files a submission ships."""
    shipment = shipment_of(job("train", {"name": given}).to_yaml_dict(), base_dir, out="s3://b/o")
    return {str(path.parent) for parcel in shipment.parcels if parcel.field[-1] == "name" for path in parcel.files.values()}


@pytest.mark.parametrize("kind", FOUND)
def test_every_door_finds_the_same_model(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, weights, tuned = FOUND[kind]
    monkeypatch.setenv("HOME", str(tmp_path))
    given, root = str(make(tmp_path / "it")), tmp_path / "it"
    expected = (
        str(root / weights if weights else root) if weights is not None else BASE,
        (str(root / tuned) if tuned else str(root)) if tuned is not None else None,
    )

    found = find_model(given)

    assert (found.model_uri, found.adapter_uri) == expected
    assert find_place(given) == find_model(given, checked=False).uri == found.uri
    assert of_jobspec("train", given, tmp_path) == of_jobspec("score", given, tmp_path) == of_option(given, tmp_path, tmp_path) == expected
    if given.startswith(str(tmp_path)):
        beside = f"./{os.path.relpath(given, tmp_path)}"
        assert of_jobspec("train", beside, tmp_path) == of_process(given, tmp_path) == expected
        if not Path(given).is_symlink():
            assert shipped_from(beside, tmp_path) == shipped_from(beside.removeprefix("./"), tmp_path) == {found.uri}
    if weights is not None:
        assert read_config(given) == {"model_type": "llama"}


@pytest.mark.parametrize("kind", REFUSED)
def test_every_door_refuses_with_the_same_cause(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, words = REFUSED[kind]
    given = str(make(tmp_path / "it"))

    with pytest.raises(BadInput, match=r".") as refused:
        find_model(given)

    cause = refused.value.cause
    assert words in cause
    assert refused.value.next_step
    with pytest.raises(BadInput, match=r".") as unplanned:
        read_config(given)
    assert unplanned.value.cause == cause
    out = str(tmp_path / "out")
    commands = [["generate", given, "hello"], ["chat", given], ["serve", given, "--port", "0"], ["merge", given, "--out", out]]
    commands += [["export", given, "--format", form, "--out", out] for form in ("merged", "gguf")]
    for command in commands:
        assert main(command) == 2
        assert f"error: {cause}\n" in capsys.readouterr().err, command
    if "adapter" not in kind:  # a push needs no base, and reads weights later
        assert main(["push", given, "hf://acme/bot"]) == 2
        assert f"error: {cause}\n" in capsys.readouterr().err
        with pytest.raises(CannotShip):
            shipped_from(f"./{os.path.relpath(given, tmp_path)}", tmp_path)


@pytest.mark.parametrize("base", [None, "/no/such/base", "./itself"])
def test_an_adapter_without_its_base_is_told_the_whole_line_that_merges_it(
    base: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = adapter(tmp_path / "it is", str(tmp_path / "it is") if base == "./itself" else base)

    assert main(["generate", str(given), "hello"]) == 2

    assert f"tuneyard merge '{given}' --out MERGED --base " in capsys.readouterr().err.splitlines()[-1]


def test_a_name_of_the_hub_is_a_model_at_every_door(tmp_path: Path) -> None:
    for given in (BASE, f"hf://{BASE}"):
        assert find_model(given) == FoundModel(BASE, BASE)
        assert of_jobspec("train", given, tmp_path) == of_jobspec("score", given, tmp_path) == (BASE, None)


def test_an_adapter_of_the_hub_is_named_by_its_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is an adapter, and no whole model") as refused:
        check_weight_files(adapter(tmp_path / "snapshot"))
    assert refused.value.next_step.endswith(f": {tmp_path / 'snapshot'}")


def test_a_folder_does_not_stand_for_a_model_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole(tmp_path / BASE)
    monkeypatch.chdir(tmp_path)
    assert find_model(f"./{BASE}").uri == str(tmp_path / BASE)
    with pytest.raises(BadInput, match=f"there is a folder {BASE} here"):
        find_model(f"hf://{BASE}")
    for given in ("hf://", "hf://datasets/org/rows", "hf:///models/base"):
        with pytest.raises(BadInput, match=f"{given} is no name of a model"):
            find_model(given)


def test_hf_in_a_jobspec_is_the_hub_beside_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, given = tmp_path / "beside", f"hf://{BASE}"
    whole(beside / BASE)
    assert of_jobspec("train", BASE, beside) == (str(beside / BASE), None)
    assert of_jobspec("train", given, beside) == of_jobspec("score", given, beside) == (BASE, None)
    assert of_option(given, tmp_path, beside) == (BASE, None)
    assert shipped_from(given, beside) == set()
    monkeypatch.chdir(beside)
    for kind in ("train", "score"):
        with pytest.raises(BadInput, match=f"there is a folder {BASE} here"):
            of_jobspec(kind, given, beside)
    assert shipped_from(given, beside) == set(), "a cluster has no such folder"


def test_a_model_of_embeddings_is_found_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, layout = full_run(tmp_path / "run"), touched(tmp_path / "encoder", "modules.json", "0_Transformer/config.json")
    places = {"./run": f"{run}/train/model", "./run/report.json": f"{run}/train/model", "./encoder": str(layout), f"hf://{BASE}": BASE}
    for given, place in places.items():
        assert embedded_by(given, tmp_path) == place
    with pytest.raises(BadInput, match="there is no folder"):
        embedded_by("./nothing", tmp_path)
    spec = {"apiVersion": "tuneyard.dev/v1alpha1", **embedding_job("./encoder").to_yaml_dict()}
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    assert main(["validate", str(tmp_path / "job.yaml")]) == 0
    assert "encoder" not in capsys.readouterr().err
    assert {parcel.field[-1] for parcel in shipment_of(spec, tmp_path, out="s3://b/o").parcels} == {"model"}


def embedding_job(given: str) -> JobSpec:
    data = {"source": "s3://b/t.jsonl", "prompt": "q", "reference": "a"}
    return job("score", {"name": BASE}, data=data, metrics=["embedding_similarity"], embedding={"model": given})


def embedded_by(given: str, base_dir: Path) -> str | None:
    found = resolved(embedding_job(given).spec.task("t"), base_dir, {})[0].score
    assert found is not None
    assert found.embedding is not None
    return found.embedding.model


def test_a_model_may_lie_at_the_root_of_a_machine_or_of_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = {"/model": adapter(tmp_path / "mounted"), "s3://model": adapter(tmp_path / "bucket")}
    monkeypatch.setattr(model_finder, "open_store", lambda uri: _renamed(uri, volumes))
    monkeypatch.chdir(tmp_path)
    for uri in volumes:
        origin = model_finder._origin_of(model_finder.open_store(uri), uri)
        assert origin is not None
        assert origin.base == BASE


def _renamed(uri: str, volumes: dict[str, Path]) -> Store:
    return open_store(str(volumes.get(uri, uri)))


def test_the_last_train_task_that_has_succeeded_counts_or_the_one_that_is_named(tmp_path: Path) -> None:
    run = full_run(tmp_path / "run")
    found = find_model(str(run))
    assert (found.name, found.base_uri, found.base_revision) == ("train", BASE, "v2"), "what whole weights were trained from"
    assert find_model(str(run / "train" / "model")) == find_model(str(run / "train")) == found
    assert find_model(str(run), "early").name == "early"
    for task, words in (("later", "later is failed"), ("tune", "has no train task tune: it has early, train, later")):
        with pytest.raises(BadInput, match=words):
            find_model(str(run), task)
    for given in (str(run / "train"), BASE):
        with pytest.raises(BadInput, match="is not the output of a job, so that it has no train task train"):
            find_model(given, "train")
    (run / "train" / "task.json").write_text(json.dumps({"task": {"train": {"model": {"init": "scratch"}}}}))
    assert find_model(str(run)).base_uri is None, "random weights have no base"


def test_a_merge_takes_the_adapter_where_merged_weights_lie_beside_it(tmp_path: Path) -> None:
    run = lora_run(tmp_path / "run", merged=True)
    for given in (run, run / "train"):
        assert find_model(str(given), merged=False).adapter_uri == str(run / "train" / "model")
    for records in ("report.json", "train/result.json"):
        (run / records).unlink()
    assert find_model(str(run), merged=False).adapter_uri == str(run / "train" / "model")
    assert find_model(str(run)).uri == str(run / "train" / "merged")


def test_another_base_is_for_adapters_and_is_none_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, base, out = lora_run(tmp_path / "run", merged=True), whole(tmp_path / "base"), str(tmp_path / "out")
    refused = {
        ("merge", str(run), "--base", str(run / "train" / "model")): "model is an adapter itself",
        ("export", str(run), "--format", "merged", "--base", str(run / "train" / "model")): "model is an adapter itself",
        ("merge", str(run), "--base", str(tmp_path)): "is not a model; below it there are",
        ("export", str(base), "--format", "merged", "--base", BASE): f"--base is for adapters, and {base} is a whole model",
    }
    for command, words in refused.items():
        assert main([*command, "--out", out]) == 2
        assert words in capsys.readouterr().err


def test_what_is_named_by_its_own_folder_needs_no_records(tmp_path: Path) -> None:
    run = lora_run(tmp_path / "run")
    shutil.copytree(run / "train" / "model", tmp_path / "copy")
    assert find_model(str(tmp_path / "copy")).origin == find_model(str(run)).origin


def test_the_code_of_a_program_gets_the_folder_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("class P:\n    pass\n")
    own = touched(tmp_path / "own", "program.json", "model.safetensors")
    run = output(tmp_path / "run", train=result(model_uri="x", details={"program": "mine:P"}))
    whole(tmp_path / "parts" / "model")
    for folder in (own, run / "train", tmp_path / "parts", adapter(tmp_path / "adapter")):
        spec = job("train", {"name": f"./{folder.relative_to(tmp_path)}"}, program="mine:P")
        assert resolved(spec.spec.task("t"), tmp_path, {})[1] == Start(str(folder))
        (tmp_path / "job.yaml").write_text(json.dumps({"apiVersion": "tuneyard.dev/v1alpha1", **spec.to_yaml_dict()}))
        assert main(["validate", str(tmp_path / "job.yaml")]) == 0
        assert "model.name" not in capsys.readouterr().err
        shipment = shipment_of(spec.to_yaml_dict(), tmp_path, out="s3://b/o")
        assert any(parcel.field[-1] == "name" for parcel in shipment.parcels)


def test_a_ranker_answers_no_prompts(tmp_path: Path) -> None:
    folder = written(tmp_path / "ranker", "ranker.json", "{}")
    with pytest.raises(BadInput, match="holds a ranker, which answers no prompts"):
        find_model(str(folder))
    assert of_jobspec("score", str(folder), tmp_path) == (str(folder), None), "a score task scores tables with it"


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("/r/first", "first"),
        ("/r/first/train/model", "train"),
        ("/r/first/train/merged/", "train"),
        ("s3://b/r/first", "first"),
        ("o/name", "o/name"),
        ("hf://o/name", "o/name"),
    ],
)
def test_a_model_is_called_after_the_folder_that_people_have_named(uri: str, name: str) -> None:
    assert name_of(uri) == name
