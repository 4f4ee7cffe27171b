"""Shards inside hosts, replicas across, 8-bit all-reduce and bf16 optimizer states: four ranks as two hosts of two."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.checkpoints import stop_after
from tests.builders.models import cpu_plan, train_request, train_task, write_model
from tests.builders.programs import line_request, write_program
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks
from tests.ranks.kills import Case, run_case

from tuneyard.training import TrainRequest, TrainResult, train

HYBRID: dict[str, Any] = {"zero": 3, "shard_within": "host"}
EVERY, STEPS = 1, 3
"""The state of the optimizer shows in the second step after a resume."""
LARGER = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4}
"""Whose saves last long enough to be killed in."""
SAME = 1e-4
"""Relative: losses of two layouts. Compressed gradients move them by less than `COMPRESSED`."""
COMPRESSED = 2e-3

TASKS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"method": {"lora": {"rank": 4}}},
    "bf16 states": {"optimizer": {"states": "bf16", "learningRate": 5e-3}},
    "8-bit states": {"optimizer": {"name": "adamw-8bit", "learningRate": 5e-3}},
}


def request_of(
    folder: Path, material: Material, task: dict[str, Any] | None = None, *, model: Path | None = None, **plan: Any
) -> TrainRequest:
    fields = {"checkpoint": {"everySteps": EVERY, "keep": 9}, "batch": {"global": 16}, "steps": STEPS, **(task or {})}
    layout = {"workers": 4, "micro_batch": 2, **plan}
    layout = {"grad_accum": 8 // layout["workers"], **layout}
    return train_request(folder, train_task(model or material.model, material.text, **fields), cpu_plan(**layout))


@pytest.fixture(scope="module")
def whole(material: Material, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, TrainResult]]:
    """Runs that nothing interrupts, by layout: one process for what they are compared with."""
    folder = tmp_path_factory.mktemp("whole")
    gpt2 = write_model(folder / "gpt2-model", "gpt2")
    requests = {f"hybrid {name}": request_of(folder / f"hybrid {name}", material, task, **HYBRID) for name, task in TASKS.items()}
    requests |= {
        "ZeRO 3": request_of(folder / "ZeRO 3", material, zero=3),
        "hybrid gpt2": request_of(folder / "hybrid gpt2", material, model=gpt2, **HYBRID),
        "hybrid bf16": request_of(folder / "hybrid bf16", material, **HYBRID, precision="bf16"),
        "int8": request_of(folder / "int8", material, zero=0, quantised_all_reduce="int8"),
        "hybrid int8": request_of(folder / "hybrid int8", material, **HYBRID, quantised_all_reduce="int8"),
        "hybrid fp8": request_of(folder / "hybrid fp8", material, **HYBRID, quantised_all_reduce="fp8"),
    }
    program = write_program(folder / "line")
    of_program = {"checkpoint": {"everySteps": EVERY, "keep": 9}, "steps": STEPS}
    requests |= {
        "hybrid program": line_request(folder / "hybrid program", program, {"workers": 4, **HYBRID}, **of_program),
        "program int8": line_request(folder / "program int8", program, {"workers": 4, "quantised_all_reduce": "int8"}, **of_program),
    }
    alone = {
        "program": line_request(folder / "program", program, **of_program),
        "ZeRO 0": request_of(folder / "ZeRO 0", material, workers=1),
        "lora": request_of(folder / "lora", material, TASKS["lora"], workers=1),
        "bf16 states": request_of(folder / "bf16 states", material, TASKS["bf16 states"], workers=1),
        "gpt2": request_of(folder / "gpt2", material, model=gpt2, workers=1),
    }
    results = dict(zip(requests, results_in_ranks(list(requests.values()), 4, per_host=2), strict=True))
    return folder, results | {name: train(request) for name, request in alone.items()}


@pytest.mark.parametrize(
    ("layout", "like", "tolerance"),
    [
        ("hybrid full", "ZeRO 0", SAME),
        ("hybrid full", "ZeRO 3", SAME),
        ("hybrid lora", "lora", SAME),
        ("hybrid gpt2", "gpt2", SAME),
        ("hybrid bf16 states", "bf16 states", COMPRESSED),
        ("hybrid bf16", "ZeRO 0", COMPRESSED),
        ("int8", "ZeRO 0", COMPRESSED),
        ("hybrid int8", "ZeRO 0", COMPRESSED),
        ("hybrid fp8", "ZeRO 0", COMPRESSED),
        ("hybrid program", "program", SAME),
        ("program int8", "program", COMPRESSED),
    ],
)
def test_losses_are_those_of_the_plain_layout(whole: Any, layout: str, like: str, tolerance: float) -> None:
    _, results = whole

    assert results[layout].losses == pytest.approx(results[like].losses, rel=tolerance)
    assert results[layout].tokens == results[like].tokens


def test_final_weights_are_whole(whole: Any) -> None:
    from transformers import AutoModelForCausalLM

    _, results = whole
    expected = AutoModelForCausalLM.from_pretrained(results["ZeRO 0"].model_uri).state_dict()
    found = AutoModelForCausalLM.from_pretrained(results["hybrid full"].model_uri).state_dict()

    assert found.keys() == expected.keys()
    assert all((found[name] - tensor).abs().max() < 1e-4 for name, tensor in expected.items())


def test_compressed_gradients_take_a_quarter_of_the_bytes(whole: Any) -> None:
    _, results = whole

    plain, compressed = (results[name].details["exchange"]["bytes_per_step"] for name in ("hybrid full", "hybrid int8"))

    assert compressed == pytest.approx(plain / 4, rel=0.1)
    assert "exchange" not in results["ZeRO 3"].details


MOVES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "hybrid to hybrid": ("hybrid full", "full", HYBRID),
    "hybrid to ZeRO 3": ("hybrid full", "full", {"zero": 3}),
    "hybrid to ZeRO 0": ("hybrid full", "full", {"zero": 0, "workers": 1}),
    "ZeRO 3 to hybrid": ("ZeRO 3", "full", HYBRID),
    "ZeRO 0 to hybrid, compressed": ("ZeRO 0", "full", {**HYBRID, "quantised_all_reduce": "int8"}),
    "hybrid lora to ZeRO 2": ("hybrid lora", "lora", {"zero": 2, "workers": 1}),
    "bf16 states, hybrid to hybrid": ("hybrid bf16 states", "bf16 states", HYBRID),
    "bf16 states, hybrid to ZeRO 1": ("hybrid bf16 states", "bf16 states", {"zero": 1, "workers": 1}),
    "8-bit states, hybrid to hybrid": ("hybrid 8-bit states", "8-bit states", HYBRID),
}


@pytest.fixture(scope="module")
def moved(material: Material, whole: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainResult]:
    """Runs that died after their first checkpoint, gone on with in another layout."""
    folder, _ = whole
    goal = tmp_path_factory.mktemp("moved")
    requests = {}
    for name, (start, task, layout) in MOVES.items():
        shutil.copytree(folder / start, goal / name)
        stop_after(EVERY, goal / name / "out")
        requests[name] = request_of(goal / name, material, TASKS[task], **layout)
    ranks = {name: request for name, request in requests.items() if request.plan.workers == 4}
    results = dict(zip(ranks, results_in_ranks(list(ranks.values()), 4, per_host=2), strict=True))
    return results | {name: train(request) for name, request in requests.items() if name not in ranks}


@pytest.mark.parametrize("move", MOVES)
def test_a_run_goes_on_in_another_layout(whole: Any, moved: dict[str, TrainResult], move: str) -> None:
    _, results = whole
    start = MOVES[move][0]

    assert moved[move].resumed_from == EVERY
    if move.endswith("hybrid to hybrid"):
        assert moved[move].losses == results[start].losses
    else:
        assert moved[move].losses == pytest.approx(results[start].losses, rel=COMPRESSED)


def test_the_hosts_save_each_shard_once(whole: Any) -> None:
    """Both hosts have all shards; each writes half of every one."""
    folder, _ = whole

    sizes = {
        layout: [
            sum(file.stat().st_size for file in (folder / layout / "out").rglob(f"step-{STEPS}.*/rank-{rank:05d}-*")) for rank in range(4)
        ]
        for layout in ("hybrid full", "ZeRO 3", "hybrid bf16 states")
    }

    assert sum(sizes["hybrid full"]) == pytest.approx(sum(sizes["ZeRO 3"]), rel=0.05)
    assert max(sizes["hybrid full"]) == pytest.approx(min(sizes["hybrid full"]), rel=0.1)
    assert sum(sizes["hybrid bf16 states"]) == pytest.approx(sum(sizes["ZeRO 3"]) * 2 / 3, rel=0.05)


@pytest.mark.parametrize("per_host", [4, 1, 3], ids=["one host", "one rank per host", "uneven hosts"])
def test_hosts_without_shards_or_replicas_train_as_one(whole: Any, material: Material, tmp_path: Path, per_host: int) -> None:
    """A scheduler gives a gang the machines that it has: what it starts must run."""
    request = request_of(tmp_path, material, **HYBRID, quantised_all_reduce="int8")
    result = results_in_ranks([request], 4, per_host=per_host)[0]

    assert result.losses == pytest.approx(whole[1]["ZeRO 3"].losses, rel=SAME)


def test_moments_are_stored_in_bf16(whole: Any) -> None:
    from safetensors.torch import load_file

    folder, _ = whole
    shard = next((folder / "hybrid bf16 states" / "out").rglob(f"step-{STEPS}.*/rank-00000-*"))
    tensors = load_file(shard)

    assert {tensor.dtype for key, tensor in tensors.items() if "|exp_avg" in key} == {torch.bfloat16}
    assert {tensor.dtype for key, tensor in tensors.items() if "|weight" in key} == {torch.float32}


@pytest.mark.timeout(900)
@pytest.mark.long
def test_killed_hosts_end_like_hosts_left_alone(tmp_path: Path) -> None:
    kills = 8
    plan = {**HYBRID, "workers": 4, "micro_batch": 2, "grad_accum": 1}
    task = {"optimizer": {"states": "bf16", "learningRate": 1e-3}}
    case = Case(folder=str(tmp_path), plan=plan, task=task, shape=LARGER, kills=kills, seed=3, steps=12, per_host=2)

    outcome = run_case(case)

    assert outcome.kills == kills
    assert outcome.exact
