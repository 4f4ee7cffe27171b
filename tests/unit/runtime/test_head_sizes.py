"""A score task whose model the engine on `cpu` cannot run is refused before the tasks that train the model start."""

from __future__ import annotations

import ast
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayTaskError
from tests.builders.models import write_weights

from tuneyard.admission import Machine
from tuneyard.api import BadInput, FailureKind, JobSpec
from tuneyard.api.rules_score import CPU_HEAD_SIZES
from tuneyard.cli import main
from tuneyard.runtime.checks import check_job
from tuneyard.runtime.score.worker import error_of_worker

ON_CPU = Machine("cpu", 2)
DIMENSIONS = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 512}


def job(folder: Path, heads: int, **more: Any) -> JobSpec:
    """A job that trains a local model in two tasks, and scores the result."""
    (folder / "model").mkdir()
    config = {"model_type": "llama", **DIMENSIONS, "num_attention_heads": heads, **more}
    (write_weights(folder / "model") / "config.json").write_text(json.dumps(config))
    (folder / "d.jsonl").write_text('{"text": "a", "q": "b"}\n')
    train = {"data": {"source": "d.jsonl", "format": "text"}, "steps": 2, "batch": {"global": 4}}
    tasks = [
        {"name": "first", "train": {"model": {"name": "model"}, **train}},
        {"name": "second", "train": {"model": {"from": "first"}, **train}},
        {"name": "judge", "score": {"model": {"from": "second"}, "data": {"source": "d.jsonl", "prompt": "q"}}},
    ]
    return JobSpec.model_validate(
        {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "job"}, "spec": {"tasks": tasks}}
    )


def test_the_size_is_that_of_the_model_that_an_earlier_task_trains(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        check_job(job(tmp_path, heads=4), base_dir=tmp_path, machine=ON_CPU)
    assert "task judge: score.model: a model whose head size the engine does not support (on cpu, head size 16)" in error.value.cause
    assert "supports head sizes 32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512" in error.value.cause
    assert "another model, or a GPU" in error.value.cause
    assert "first" not in error.value.cause  # training works with any size


def test_a_supported_size_passes(tmp_path: Path) -> None:
    check_job(job(tmp_path, heads=2), base_dir=tmp_path, machine=ON_CPU)


def test_a_model_whose_dimensions_are_not_known_is_left_to_the_engine_and_is_not_trained(tmp_path: Path) -> None:
    made = job(tmp_path, heads=4, hidden_size=None)
    with pytest.raises(BadInput) as error:
        check_job(made, base_dir=tmp_path, machine=ON_CPU)
    assert "task first: the model's config.json has no hidden_size" in error.value.cause
    assert "judge" not in error.value.cause

    alone = made.spec.tasks[2].to_yaml_dict()
    alone["score"]["model"] = {"name": "model"}
    check_job(JobSpec.model_validate({**made.to_yaml_dict(), "spec": {"tasks": [alone]}}), base_dir=tmp_path, machine=ON_CPU)


def test_the_sizes_are_those_of_the_installed_vllm() -> None:
    vllm = find_spec("vllm")
    if vllm is None or vllm.origin is None:
        pytest.skip("vLLM is not installed")
    source = ast.parse((Path(vllm.origin).parent / "v1/attention/backends/cpu_attn.py").read_text())
    functions = [each for each in ast.walk(source) if isinstance(each, ast.FunctionDef) and each.name == "get_supported_head_sizes"]
    returned = next(each for each in ast.walk(functions[0]) if isinstance(each, ast.Return))
    assert returned.value is not None
    assert tuple(ast.literal_eval(returned.value)) == CPU_HEAD_SIZES


def test_plan_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = job(tmp_path, heads=4)
    (tmp_path / "job.yaml").write_text(json.dumps(made.to_yaml_dict()))
    main(["plan", str(tmp_path / "job.yaml"), "--sku", "cpu", "-o", "json"])
    rows = json.loads(capsys.readouterr().out)
    assert "head size 16" in next(row for row in rows if row["task"] == "judge")["reason"]


def test_an_engine_that_fails_so_all_the_same_asks_for_another_model() -> None:
    raised = RuntimeError("Unsupported CPU attention configuration: head_dim=16 isa=2 kv_cache_idx=0")
    error = error_of_worker(RayTaskError("load", "traceback", raised))
    assert (error.kind, error.next_step) == (FailureKind.INTERNAL, "take another model, or a GPU")
    assert "head_dim=16" in error.cause
    assert "try again" in error_of_worker(RayTaskError("load", "traceback", OSError("no such file"))).next_step
