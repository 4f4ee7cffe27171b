"""Each class of the zoo is validated, planned and admitted from a JobSpec as a user writes it, on one device and on eight.

The model's folder holds its config.json and one weight. The zoo (tests/zoo) trains the classes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.models import write_weights
from tests.zoo.configs import tiny_config_of
from tests.zoo.findings import read
from tests.zoo.rows import write_rows

from tuneyard.admission import Machine
from tuneyard.api import BadInput, load_jobspec
from tuneyard.cli import main
from tuneyard.runtime.checks import check_job

SKUS = ("cpu", "h100-80gb")
COUNTS = (1, 8)
METHODS: dict[str, dict[str, Any]] = {"full": {}, "packed": {"data": {"pack": True}}, "lora": {"method": {"lora": {"rank": 8}}}}
FOUND = read()
TRAINED = [name for name, found in FOUND.items() if found["full"]["status"] == "works"]
WITHOUT_A_SHAPE = [name for name, found in FOUND.items() if found["sized"].startswith("refused")]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl")


def write_job(folder: Path, rows: Path, model_type: str, *parts: str) -> Path:
    """A file with a task for each of the parts, which leaves the layout to the planner and takes one worker up to eight."""
    tiny_config_of(model_type).save_pretrained(folder / "model")
    write_weights(folder / "model")
    tasks = []
    for name in parts:
        more = METHODS[name]
        data = {"source": str(rows), "maxLength": 128, **more.get("data", {})}
        train = {"model": {"name": "./model"}, "steps": 2, "batch": {"global": 8}, **more, "data": data}
        tasks.append({"name": name, "train": train, "resources": {"sku": list(SKUS), "workers": {"min": COUNTS[0], "max": COUNTS[-1]}}})
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "small"}, "spec": {"tasks": tasks}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder / "job.yaml"


def planned(file: Path, capsys: pytest.CaptureFixture[str], *, code: int = 0) -> list[dict[str, Any]]:
    assert main(["plan", str(file), "-o", "json"]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def machines() -> list[Machine]:
    return [Machine(sku, count) for sku in SKUS for count in COUNTS]


@pytest.mark.parametrize("model_type", TRAINED)
def test_a_class_that_trains_is_validated_planned_and_admitted(
    model_type: str, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    working = [part for part in ("full", "lora") if FOUND[model_type][part]["status"] == "works"]
    file = write_job(tmp_path, rows, model_type, *working)

    assert main(["validate", str(file)]) == 0
    assert "warning: " not in capsys.readouterr().err
    found = planned(file, capsys)
    assert [row for row in found if not row["fits"] or "reason" in row] == []
    assert {(row["task"], row["sku"], row["workers"]) for row in found} == {(t, s, w) for t in working for s in SKUS for w in COUNTS}
    (alone,) = (row for row in found if (row["task"], row["sku"], row["workers"]) == ("full", "cpu", 1))
    assert alone["memory_gb"]["weights"] * 1e9 == pytest.approx(4 * FOUND[model_type]["parameters"]), "as many as the zoo has counted"
    job = load_jobspec(file)
    for machine in machines():
        check_job(job, base_dir=tmp_path, machine=machine)


def test_a_class_whose_samples_would_leak_is_refused_packing_before_anything_starts(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`validate` and `plan` refuse what the run will refuse: all know the model."""
    file = write_job(tmp_path, rows, "mamba2", "packed")

    for command in ("validate", "plan"):
        assert main([command, str(file)]) == 2
        assert "packing with a model that would leak across samples" in capsys.readouterr().err
    with pytest.raises(BadInput, match="packing with a model that would leak across samples"):
        check_job(load_jobspec(file), base_dir=tmp_path, machine=Machine("cpu", 1))


@pytest.mark.parametrize("model_type", WITHOUT_A_SHAPE)
def test_a_class_that_cannot_be_trained_is_refused_by_name(
    model_type: str, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_job(tmp_path, rows, model_type, "full")

    assert main(["plan", str(file)]) == 2
    said = capsys.readouterr().err
    assert model_type in said
    assert "\nnext: use " in said
    for machine in machines():
        with pytest.raises(BadInput, match=model_type) as refused:
            check_job(load_jobspec(file), base_dir=tmp_path, machine=machine)
        assert refused.value.next_step.startswith("use ")


def test_a_class_that_nobody_knows_is_planned_and_said_to_be_assumed(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_job(tmp_path, rows, "llama", "full")
    call_it_brandnew(tmp_path)

    for row in planned(file, capsys):
        assert row["fits"]
        assert "a brandnew model is taken to be built like Llama, since transformers cannot build it here" in row["reason"]
    check_job(load_jobspec(file), base_dir=tmp_path, machine=Machine("cpu", 1))


def write_scoring(folder: Path, rows: Path, model_type: str) -> Path:
    tiny_config_of(model_type).save_pretrained(folder / "model")
    write_weights(folder / "model")
    score = {"model": {"name": "./model"}, "data": {"source": str(rows), "prompt": "messages"}}
    tasks = [{"name": "judge", "score": score}]
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "small"}, "spec": {"tasks": tasks}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder / "job.yaml"


def call_it_brandnew(folder: Path) -> None:
    """Give the model a type that neither the catalog nor transformers knows."""
    config = folder / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "brandnew"}))


@pytest.mark.parametrize("model_type", ["deepseek_v32", "minicpm3", "brandnew"])
def test_an_engine_is_not_refused_for_a_head_size_that_was_guessed(model_type: str, rows: Path, tmp_path: Path) -> None:
    """Latent attention has another width than the fields from which a size would be guessed."""
    file = write_scoring(tmp_path, rows, "llama" if model_type == "brandnew" else model_type)
    if model_type == "brandnew":
        call_it_brandnew(tmp_path)

    check_job(load_jobspec(file), base_dir=tmp_path, machine=Machine("cpu", 1))


def test_an_engine_is_refused_for_the_head_size_of_a_model_that_no_family_knows(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The size is read off the built model."""
    file = write_scoring(tmp_path, rows, "arcee")

    assert main(["run", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "a model whose head size the engine does not support (on cpu, head size 16)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
