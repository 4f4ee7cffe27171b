"""Training on preference pairs: the reference, layouts, the router's loss, dropout, packing, and what a report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.builders.checkpoints import stop_after
from tests.builders.models import cpu_plan, sentences, train_request, train_task, write_model
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks
from tests.ranks.kills import Case, run_case
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

from tuneyard.tracking.events import Event, SampleShown, Step
from tuneyard.training import TrainRequest, TrainResult, pairs, train
from tuneyard.training.preference import without_dropout

LN_2 = 0.6931472
WIDE = {"hidden_size": 320, "intermediate_size": 128, "tie_word_embeddings": False}
"""Embedding and head have 122,880 elements: DeepSpeed cuts weights above 100,000, and keeps smaller ones whole."""
LORA = {"lora": {"rank": 4}}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = sentences(96)
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    triples = zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    path.write_text("".join(json.dumps({"prompt": p, "chosen": f" {c}", "rejected": f" {r}"}) + "\n" for p, c, r in triples))
    return path


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("wide"), **WIDE)


def request_of(folder: Path, model: Path, rows: Path, plan: dict[str, Any] | None = None, **task: Any) -> TrainRequest:
    fields: dict[str, Any] = {"objective": "dpo", "steps": 3, "optimizer": {"learningRate": 5e-3, "warmup": 0}, **task}
    fields["data"] = {"source": str(rows), "maxLength": 64, "shuffle": False, **task.get("data", {})}
    return train_request(folder, train_task(model, rows, **fields), cpu_plan(**(plan or {})))


BY_TWO = {"micro_batch": 2, "grad_accum": 4}
"""Micro-batches as two workers have them, so that sums round alike."""
METHODS: dict[str, dict[str, Any]] = {"full": {"full": {}}, "lora": LORA}
TASKS: dict[str, dict[str, Any]] = {name: {"method": method} for name, method in METHODS.items()} | {"packed": {"data": {"pack": True}}}


@pytest.fixture(scope="module")
def alone(wide: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainResult]:
    """One process without DeepSpeed, by task."""
    assert WIDE["hidden_size"] * 384 > 100_000
    folder = tmp_path_factory.mktemp("alone")
    return {name: train(request_of(folder / name, wide, rows, BY_TWO, **task)) for name, task in TASKS.items()}


def test_all_stages_of_zero_and_two_workers_have_the_losses_of_one(
    alone: dict[str, TrainResult], wide: Path, rows: Path, tmp_path: Path
) -> None:
    """The model is larger than what ZeRO-3 keeps whole, so the reference too lies in parts."""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("full", {"zero": 0}),
        ("full", {"zero": 1}),
        ("full", {"zero": 2}),
        ("full", {"zero": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu"}),
        ("lora", {"zero": 0}),
        ("lora", {"zero": 3}),
        ("packed", {"zero": 2}),
    ]
    requests = [
        request_of(tmp_path / f"{number}", wide, rows, {"workers": 2, "grad_accum": 2, **plan}, **TASKS[task])
        for number, (task, plan) in enumerate(cases)
    ]
    for (task, plan), found in zip(cases, results_in_ranks(requests, workers=2), strict=True):
        expected = alone[task]
        assert found.losses == pytest.approx(expected.losses, rel=2e-6), plan
        assert found.details["rewards"]["margin"] == pytest.approx(expected.details["rewards"]["margin"], abs=1e-5), plan
        assert found.tokens == expected.tokens


@pytest.mark.parametrize("method", METHODS)
def test_one_rank_of_zero_3_has_the_losses_of_none(
    method: str, alone: dict[str, TrainResult], wide: Path, rows: Path, tmp_path: Path
) -> None:
    plan = {"zero": 3, "recompute": method == "full", **BY_TWO}
    found = train(request_of(tmp_path, wide, rows, plan, method=METHODS[method]))
    assert found.losses[0] == pytest.approx(LN_2, abs=1e-6)
    assert found.losses == pytest.approx(alone[method].losses, rel=2e-6)


def test_a_report_has_tokens_and_rewards(wide: Path, rows: Path, tmp_path: Path) -> None:
    heard: list[Event] = []
    found = train(request_of(tmp_path, wide, rows, data={"validationFraction": 0.25}), emit=heard.append)

    report, rewards = found.details["data"], found.details["rewards"]
    assert report["tokens"] > report["loss_tokens"] > 0
    assert {name: len(values) for name, values in rewards.items()} == dict.fromkeys(("accuracy", "margin", "chosen", "rejected"), 3)
    assert rewards["margin"][0] == 0, "the model is its own reference"
    assert rewards["margin"][-1] == pytest.approx(rewards["chosen"][-1] - rewards["rejected"][-1], abs=1e-5)
    assert 0 < rewards["accuracy"][-1] <= 1
    steps = [event for event in heard if isinstance(event, Step)]
    assert [step.figures["rewards/margin"] for step in steps] == rewards["margin"]
    (sample,) = [event for event in heard if isinstance(event, SampleShown)]
    assert all(text.endswith("<|end|>") for text, loss in sample.pieces if loss)


def test_held_out_pairs_have_rewards(wide: Path, rows: Path, tmp_path: Path) -> None:
    from tuneyard.tracking.events import Evaluated

    heard: list[Event] = []
    plan = {"micro_batch": 4, "grad_accum": 2}
    evaluation = {"everySteps": 1, "best": {"metric": "rewards/margin", "mode": "min"}}
    found = train(request_of(tmp_path, wide, rows, plan, data={"validationFraction": 0.25}, evaluation=evaluation), emit=heard.append)
    evaluated = [event for event in heard if isinstance(event, Evaluated)]
    assert [event.loss for event in evaluated] == [loss for _, loss in found.eval_losses]
    assert all(0 <= event.figures["rewards/accuracy"] <= 1 for event in evaluated)
    margins = {event.step: event.figures["rewards/margin"] for event in evaluated}
    assert found.details["best"]["step"] == min(margins, key=margins.__getitem__) == 1


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("experts"), "mixtral")


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_of_the_router_is_weighed_as_asked_and_shown_apart(method: str, experts: Path, rows: Path, tmp_path: Path) -> None:
    task: dict[str, Any] = {"method": METHODS[method], "steps": 6, "optimizer": {"learningRate": 1e-3, "warmup": 0}}
    results = {weight: train(request_of(tmp_path / f"{weight}", experts, rows, **task, routerLoss=weight)) for weight in (0, 5)}
    assert all(result.losses[0] == pytest.approx(LN_2, abs=1e-6) for result in results.values())
    assert results[0].losses[1:] != pytest.approx(results[5].losses[1:], rel=1e-5)
    assert "router" not in results[0].details
    assert results[5].details["router"]["weight"] == 5
    assert results[5].details["router"]["losses"][-1] < results[5].details["router"]["losses"][0]
    assert len(results[5].details["experts"]["busiest"]) == 6


def test_an_adapter_drops_inputs_as_asked_and_the_model_does_not(rows: Path, tmp_path: Path) -> None:
    dropping = write_model(tmp_path / "dropping", "gpt2", resid_pdrop=0.3, attn_pdrop=0.3, embd_pdrop=0.3)
    method = {"lora": {"rank": 4, "dropout": 0.5}}
    losses = {
        name: train(request_of(tmp_path / name, dropping, rows, method=each)).losses
        for name, each in {"plain": LORA, "again": LORA, "dropout": method}.items()
    }
    still = write_model(tmp_path / "still", "gpt2")
    assert losses["plain"] == losses["again"]
    assert losses["plain"] == train(request_of(tmp_path / "without", still, rows, method=LORA)).losses
    assert losses["dropout"][0] == pytest.approx(LN_2, abs=1e-6), "a new adapter changes nothing yet, and the reference never drops"
    assert losses["dropout"][1:] != pytest.approx(losses["plain"][1:], rel=1e-4)


DROPPING: dict[str, dict[str, Any]] = {
    "falcon": {"attention_dropout": 0.5, "hidden_dropout": 0.5},
    "gptj": {"attn_pdrop": 0.5, "resid_pdrop": 0.5, "embd_pdrop": 0.5, "rotary_dim": 8},
    "gpt_neo": {"attention_dropout": 0.5, "resid_dropout": 0.5, "num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "opt": {"dropout": 0.5, "attention_dropout": 0.5, "layerdrop": 0.5, "ffn_dim": 64},
    "phi3": {"attention_dropout": 0.5, "resid_pdrop": 0.5, "embd_pdrop": 0.5, "pad_token_id": 1},
}


@pytest.mark.parametrize("kind", DROPPING)
def test_no_architecture_drops_anything(kind: str) -> None:
    """Architectures keep the shares in modules, as numbers of modules, and in their configuration."""
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 64, "max_position_embeddings": 32}
    config = AutoConfig.for_model(kind, **{**shape, **DROPPING[kind]})
    model, ids = AutoModelForCausalLM.from_config(config).train(), torch.arange(12)[None]
    assert not torch.equal(model(ids).logits, model(ids).logits)
    without_dropout(model)
    assert torch.equal(model(ids).logits, model(ids).logits)
    assert 0.5 in vars(model.config).values(), "the saved configuration keeps its shares"


def test_an_adapter_of_the_head_learns(wide: Path, rows: Path, tmp_path: Path) -> None:
    method = {"lora": {"rank": 4, "targets": ["lm_head"], "merge": True}}
    found = train(request_of(tmp_path, wide, rows, method=method))
    assert found.losses[0] == pytest.approx(LN_2, abs=1e-6)
    assert found.losses[1] != pytest.approx(LN_2, abs=1e-4)
    saved = load_file(Path(str(found.adapter_uri)) / "adapter_model.safetensors")
    assert all(weight.abs().max() > 0 for name, weight in saved.items() if "lm_head.lora_B" in name)


@pytest.mark.parametrize("zero", [0, 3])
def test_the_reference_of_an_adapter_that_is_continued_is_that_adapter(zero: int, wide: Path, rows: Path, tmp_path: Path) -> None:
    first = train(request_of(tmp_path / "first", wide, rows, method=LORA))
    request = request_of(tmp_path / "second", wide, rows, {"zero": zero}, method=LORA)
    second = train(train_request(tmp_path / "second", request.task, request.plan, adapter_uri=first.adapter_uri))
    assert second.losses[0] == pytest.approx(LN_2, abs=1e-6)
    assert second.details["rewards"]["margin"][0] == pytest.approx(0, abs=1e-6)
    assert second.losses[1] != pytest.approx(LN_2, abs=1e-4)
    before, after = (load_file(Path(str(result.adapter_uri)) / "adapter_model.safetensors") for result in (first, second))
    assert before.keys() == after.keys()
    assert not any("reference" in path.name for path in Path(str(second.adapter_uri)).rglob("*"))
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_packed_pairs_have_the_losses_of_padded_ones(wide: Path, rows: Path, tmp_path: Path) -> None:
    """All pairs in each step, so that the order of rows does not matter; packed, rows hold several pairs."""
    padded = train(request_of(tmp_path / "padded", wide, rows, {"micro_batch": 8, "grad_accum": 4}, batch={"global": 32}))
    task = {"pack": True}
    probe = train(request_of(tmp_path / "probe", wide, rows, data=task, steps=1))
    packed_rows = probe.details["data"]["rows"]
    assert packed_rows < 32
    for attention in ("sdpa", "eager"):
        plan = {"micro_batch": 1, "grad_accum": packed_rows, "attention": attention}
        packed = train(request_of(tmp_path / attention, wide, rows, plan, data=task, batch={"global": packed_rows}))
        assert packed.tokens == padded.tokens, attention
        assert packed.losses == pytest.approx(padded.losses, rel=1e-5), attention
        assert packed.details["rewards"]["accuracy"] == pytest.approx(padded.details["rewards"]["accuracy"]), attention


@pytest.mark.parametrize("method", [METHODS["full"], {"lora": {"rank": 4, "dropout": 0.2}}], ids=["full", "lora with dropout"])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(method: dict[str, Any], material: Material, rows: Path, tmp_path: Path) -> None:
    import shutil

    task: dict[str, Any] = {"method": method, "steps": 6, "checkpoint": {"everySteps": 2, "keep": 3}, "data": {"shuffle": True}}
    whole = train(request_of(tmp_path / "whole", material.model, rows, **task))
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    stop_after(4, tmp_path / "killed" / "out")
    resumed = train(request_of(tmp_path / "killed", material.model, rows, **task))
    assert resumed.resumed_from == 4
    assert resumed.losses == whole.losses
    assert resumed.details["rewards"] == whole.details["rewards"]


@pytest.mark.timeout(900)
def test_killed_runs_end_like_runs_left_alone(rows: Path, tmp_path: Path) -> None:
    """Two kills under ZeRO-2, with a reference beside the model. Other kills: test_kills.py."""
    data = {"source": str(rows), "maxLength": 64}
    shape = {"hidden_size": 256, "intermediate_size": 704}
    task = {"objective": "dpo", "data": data}
    outcome = run_case(Case(folder=str(tmp_path), plan={"zero": 2}, task=task, shape=shape, kills=2, seed=3, steps=12))
    assert outcome.kills == 2
    assert outcome.exact


def test_qlora_and_bf16_compare_with_their_own_start(wide: Path, rows: Path, tmp_path: Path) -> None:
    for name, method, plan in (
        ("qlora", {"qlora": {"rank": 4}}, {"precision": "fp32"}),
        ("dora", {"dora": {"rank": 4}}, {"precision": "fp32"}),
        ("plain", {"full": {}}, {"precision": "bf16"}),
        ("sharded", {"full": {}}, {"precision": "bf16", "zero": 3}),
        ("adapted", LORA, {"precision": "bf16", "zero": 2, "recompute": True}),
    ):
        found = train(request_of(tmp_path / name, wide, rows, plan, method=method, steps=2))
        assert found.losses[0] == pytest.approx(LN_2, abs=1e-6), name
        assert found.losses[1] != pytest.approx(LN_2, abs=1e-5), name


def test_probabilities_in_chunks_are_those_of_log_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "CHUNK_ELEMENTS", 3 * 11)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 9, 11, generator=generator, requires_grad=True)
    places, targets = torch.tensor([1, 2, 3, 8, 9, 11, 13, 17]), torch.tensor([0, 3, 10, 4, 4, 7, 1, 2])
    batch = {"places": places, "targets": targets, "held": [3, 1, 4], "last": 9}
    sums = pairs.answer_sums(logits, batch)
    each = -cross_entropy(logits.reshape(-1, 11)[places], targets, reduction="none")
    expected = torch.stack([each[:3].sum(), each[3], each[4:].sum()])
    torch.testing.assert_close(sums.float(), expected)
    weights = torch.tensor([0.3, -2.0, 1.0])
    (found,) = torch.autograd.grad((sums * weights).sum(), logits)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), logits)
    torch.testing.assert_close(found, wanted)


def test_rows_that_lie_end_to_end_have_the_targets_of_padded_ones() -> None:
    from tuneyard.training.collate import Collator

    ids = [[5, 6, 7, 5, 8], [1, 2, 3, 4, 1, 2, 9, 4, 6, 7, 6, 3]]
    labels = [[-100, 6, 7, -100, 8], [-100, -100, 3, 4, -100, -100, 9, 4, -100, 7, -100, 3]]
    positions = [[0, 1, 2, 0, 1], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0, 1]]
    rows = [{"input_ids": i, "labels": j, "position_ids": k} for i, j, k in zip(ids, labels, positions, strict=True)]
    flat, wide = (pairs.PairCollator(Collator(0, lay_flat=lay_flat), packed=True)(rows) for lay_flat in (True, False))
    assert flat["counts"] == wide["counts"] == [2, 1, 2, 2, 1, 1]
    assert flat["targets"].tolist() == wide["targets"].tolist() == [6, 7, 8, 3, 4, 9, 4, 7, 3]
    assert flat["tokens"] == wide["tokens"] == [5, 12]
    for batch in (flat, wide):
        before = batch["input_ids"][:, -batch["last"] :].ravel()[batch["places"]].tolist()
        assert before == [5, 6, 5, 2, 3, 2, 9, 6, 6]
    apart = pairs.PairCollator(Collator(0), packed=False)(rows[:1])
    assert apart["input_ids"].tolist() == [[5, 6, 7], [5, 8, 0]]
    assert apart["counts"] == [2, 1]
