"""A model that is cut over tensor-parallel ranks trains, saves and resumes like one that is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from tests.builders.checkpoints import committed, stop_after
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material
from tests.ranks.forks import Call, called
from tests.ranks.groups import group, results_in_ranks
from tests.ranks.tensor_training import LEGS, METHODS, ONE, mesh_request, write_any_model

from tuneyard.api import BadInput
from tuneyard.tracking.events import Event, Step
from tuneyard.training import TrainRequest, TrainResult, tensor_plan, train
from tuneyard.training.checkpoint.catalogue import open_task, verify
from tuneyard.training.checkpoint.convert import convert

pytestmark = pytest.mark.timeout(1800)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def furthest(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    assert some.keys() == others.keys()
    return max(float((some[name].float() - others[name].float()).abs().max()) for name in some)


FEW_LEGS: list[dict[str, Any]] = [
    ONE,
    {"workers": 2, "tensor_parallel": 2, "zero": 0, "micro_batch": 4},
    {"workers": 1, "zero": 3, "micro_batch": 4},
    {"workers": 2, "tensor_parallel": 2, "zero": 0, "micro_batch": 4, "sequence_parallel": True},
    {"workers": 4, "tensor_parallel": 2, "zero": 2},
]
"""Four ranks once, for a mesh with a second dimension."""


@pytest.mark.parametrize("legs", [FEW_LEGS, pytest.param(LEGS, marks=pytest.mark.long)], ids=["five legs", "six legs, four ranks"])
def test_one_run_is_handed_over_meshes_and_stages(legs: list[dict[str, Any]], material: Material, tmp_path: Path) -> None:
    """The long one has a degree of four, and sequence parallelism on four ranks."""
    steps = 2 * len(legs)

    def request(folder: str, method: str, leg: dict[str, Any]) -> TrainRequest:
        return mesh_request(tmp_path / folder, material.model, material.text, steps=steps, task=METHODS[method], **leg)

    whole = {method: train(request(f"{method}-whole", method, ONE)) for method in METHODS}
    for method in METHODS:
        shutil.copytree(tmp_path / f"{method}-whole", tmp_path / method)
        stop_after(2, tmp_path / method / "out")
    for number, leg in enumerate(legs[1:], start=1):
        last = 2 * number + 2
        results = results_in_ranks([request(method, method, leg) for method in METHODS], workers=leg["workers"], stop_after=last)
        for method, result in zip(METHODS, results, strict=True):
            assert result.status == ("succeeded" if last == steps else "stopped")
            assert result.resumed_from == 2 * number, (method, leg)
            assert result.losses == pytest.approx(whole[method].losses[:last], rel=1e-4), (method, leg)
            assert committed(tmp_path / method / "out") == list(range(2, last + 1, 2))
    assert [result.tokens for result in results] == [each.tokens for each in whole.values()]

    for method in METHODS:
        store = open_task(str(tmp_path / method / "out"))
        assert verify(store).damages == ()
        convert(store, str(tmp_path / f"{method}-converted"), max_shard_bytes=1 << 30)
        saved = weights_of(tmp_path / method / "out" / "model")
        assert furthest(saved, weights_of(tmp_path / f"{method}-whole" / "out" / "model")) < 1e-4, method
        assert furthest(saved, weights_of(tmp_path / f"{method}-converted")) == 0.0, method
    assert "2 data x 2 tensor parallel" in (tmp_path / "full" / "out" / "model" / "README.md").read_text()


DIVIDED = "numbers that the module keeps, three blocks in one weight, recomputed"
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "partial rotary positions and biases": ("gpt_neox", {"vocab_size": 387}, {"workers": 2}),
    DIVIDED: ("gpt2", dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0), {"workers": 2, "recompute": True}),
    "packed weights, recomputed": ("phi3", {}, {"workers": 2, "recompute": True, "zero": 1, "sequence_parallel": True}),
    "tied embeddings, several micro-batches": ("gemma", {"head_dim": 16}, {"workers": 2, "micro_batch": 1}),
    "experts": (
        "qwen3_moe",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 16},
        {"workers": 4, "zero": 2, "sequence_parallel": True},
    ),
}


def test_other_architectures_and_packed_rows_with_held_out_loss(material: Material, tmp_path: Path) -> None:
    data = {"source": str(material.text), "maxLength": 64, "pack": True, "validationFraction": 0.2}
    models = {name: write_any_model(tmp_path / kind, kind, **changes) for name, (kind, changes, _) in ARCHITECTURES.items()}

    def request(name: str, folder: str, leg: dict[str, Any]) -> TrainRequest:
        task = {**METHODS["clipped"], "data": data}
        return mesh_request(tmp_path / folder / models[name].name, models[name], material.text, steps=4, task=task, **leg)

    alone = {name: train(request(name, "alone", ONE)) for name in models}
    found = {}
    for workers in (2, 4):
        meshes = {name: {"tensor_parallel": 2, **layout} for name, (_, _, layout) in ARCHITECTURES.items() if layout["workers"] == workers}
        results = results_in_ranks([request(name, "mesh", mesh) for name, mesh in meshes.items()], workers=workers)
        found |= dict(zip(meshes, results, strict=True))

    for name, result in found.items():
        assert result.losses == pytest.approx(alone[name].losses, rel=1e-4), name
        assert dict(result.eval_losses) == pytest.approx(dict(alone[name].eval_losses), rel=1e-4), name
        assert (result.tokens, result.flops_per_step) == (alone[name].tokens, pytest.approx(alone[name].flops_per_step)), name
        assert result.details.get("experts") == alone[name].details.get("experts"), name
        folders = [tmp_path / where / models[name].name / "out" / "model" for where in ("mesh", "alone")]
        assert furthest(*map(weights_of, folders)) < 1e-3, name
        assert json.loads((folders[0] / "config.json").read_text()) == json.loads((folders[1] / "config.json").read_text()), name
        _logits_of(folders[0])

    stop_after(2, tmp_path / "mesh" / "gpt2" / "out")
    resumed = train(request(DIVIDED, "mesh", ONE))
    assert (resumed.resumed_from, resumed.losses) == (2, pytest.approx(alone[DIVIDED].losses, rel=1e-4)), (
        "whole numbers go with whole weights"
    )


def _logits_of(folder: Path) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    logits: torch.Tensor = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([[5, 6, 7]])).logits
    assert torch.isfinite(logits).all()
    return logits


def test_bf16_keeps_the_precision_of_its_files(material: Material, tmp_path: Path) -> None:
    for zero in (0, 2):
        layout = {"workers": 2, "tensor_parallel": 2, "zero": zero, "precision": "bf16"}
        alone = train(mesh_request(tmp_path / f"alone-{zero}", material.model, material.text, steps=2, **ONE, zero=zero, precision="bf16"))
        request = mesh_request(tmp_path / f"{zero}", material.model, material.text, steps=2, **layout)
        (result, first), (_, second) = called([Call(_with_proofs, (request,), place) for place in group(2, per_machine=2)])
        assert (first, second) == (1, 0), "rank 0 proves the plan for all ranks"
        assert result.losses == pytest.approx(alone.losses, rel=5e-3)
        assert {tensor.dtype for tensor in weights_of(tmp_path / f"{zero}" / "out" / "model").values()} == {torch.bfloat16}


def _with_proofs(request: TrainRequest) -> tuple[TrainResult, int]:
    """What a rank returns, and the number of plans that it has proven."""
    with patch.object(tensor_plan, "explain_tensor_parallel", wraps=tensor_plan.explain_tensor_parallel) as proofs:
        return train(request), proofs.call_count


ADAPTED_ENDS: dict[str, tuple[str, list[str]]] = {
    "tied head": ("llama", ["q_proj", "lm_head"]),
    "embedding": ("cohere2", ["embed_tokens", "o_proj"]),
}


def test_adapters_of_embeddings_are_saved_as_by_one_worker(material: Material, tmp_path: Path) -> None:
    models = {name: write_any_model(tmp_path / kind, kind, tie_word_embeddings=True) for name, (kind, _) in ADAPTED_ENDS.items()}

    def request(folder: str, name: str, leg: dict[str, Any]) -> TrainRequest:
        lora = {"rank": 4, "dropout": 0.0, "targets": ADAPTED_ENDS[name][1]}
        task = {**METHODS["clipped"], "method": {"lora": lora}}
        return mesh_request(tmp_path / folder / name, models[name], material.text, steps=2, task=task, **leg)

    alone = {name: train(request("alone", name, ONE)) for name in ADAPTED_ENDS}
    results = results_in_ranks([request("mesh", name, {"workers": 2, "tensor_parallel": 2}) for name in ADAPTED_ENDS], workers=2)

    for name, result in zip(ADAPTED_ENDS, results, strict=True):
        assert result.losses == pytest.approx(alone[name].losses, rel=1e-4), name
        assert furthest(*(weights_of(tmp_path / where / name / "out" / "model") for where in ("mesh", "alone"))) < 1e-4, name


def test_targets_that_a_family_lacks_are_refused_before_the_first_step(material: Material, tmp_path: Path) -> None:
    heard: list[Event] = []
    task = {"method": {"lora": {"targets": ["embed_tokens", "o_proj"]}}}

    with pytest.raises(BadInput, match="a llama model has no module 'embed_tokens' that LoRA can adapt"):
        train(mesh_request(tmp_path, material.model, material.text, steps=2, task=task, refused=True, **ONE), emit=heard.append)

    assert not [event for event in heard if isinstance(event, Step)]


def refused(request: TrainRequest, places: list[dict[str, str]]) -> list[str]:
    """What each rank says of a request that cannot be trained."""
    said: list[str] = called([Call(_answer, (request,), place) for place in places])
    return said


def _answer(request: TrainRequest) -> str:
    try:
        return str(train(request))
    except BadInput as error:
        return error.cause


def test_what_cannot_be_cut_is_refused_on_every_rank(material: Material, tmp_path: Path) -> None:
    task = train_task(material.model, material.text)
    over_hosts = train_request(tmp_path, task, cpu_plan(workers=2, tensor_parallel=2, grad_accum=4))
    too_few = train_request(tmp_path, task, cpu_plan(workers=4, tensor_parallel=2, grad_accum=2))
    stage_3 = train_request(tmp_path, task, cpu_plan(workers=2, tensor_parallel=2, zero=3, grad_accum=4), refused=True)

    assert all("are on several machines" in said for said in refused(over_hosts, group(2, per_machine=1)))
    assert refused(too_few, group(2, per_machine=2)) == ["the plan is for 4 workers, and 2 were started"] * 2
    assert all("ZeRO 3 with tensorParallel" in said for said in refused(stage_3, group(2, per_machine=2)))


def test_a_degree_that_cuts_nothing_is_refused_before_data_are_prepared(tmp_path: Path) -> None:
    odd = {"hidden_size": 63, "num_attention_heads": 3, "n_inner": 127, "vocab_size": 387}
    model = write_any_model(tmp_path / "model", "gpt2", **odd)
    asked = mesh_request(tmp_path / "run", model, tmp_path / "absent.jsonl", steps=2, refused=True, workers=2, tensor_parallel=2)

    assert all("2 ranks shard nothing of GPT2LMHeadModel" in said for said in refused(asked, group(2, per_machine=2)))
