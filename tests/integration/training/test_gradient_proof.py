"""What is trained gets a gradient, and a pass that only looks at a model changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.checkpoints import saves_in_turn, stop_after
from tests.builders.models import cpu_plan, train_request, train_task, write_tokenizer
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks
from tests.zoo.configs import tiny_config_of
from tests.zoo.findings import read
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaForCausalLM, LlamaMLP

from tuneyard.api import BadInput, JobFailed
from tuneyard.tracking.events import Warned
from tuneyard.training import TrainRequest, train
from tuneyard.training.adapter_reach import out_of_reach
from tuneyard.training.proofs.gradients import GradientProof
from tuneyard.training.proofs.kept_weights import kept_weights
from tuneyard.training.trainer import SteppedTrainer

FAST = {"learningRate": 1e-2}
READING = ("llama", "gemma3n_text", "longcat_flash")
"""A class of plain modules, and two that read a weight past its module."""


def request_of(folder: Path, material: Material, **task: Any) -> TrainRequest:
    return train_request(folder, train_task(material.model, material.text, **{"optimizer": FAST, "steps": 4, **task}), cpu_plan())


@pytest.mark.parametrize("method", ["full", "qlora", *(pytest.param(name, marks=pytest.mark.long) for name in ("lora", "dora"))])
def test_probes_and_evaluations_change_no_loss(method: str, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a run without them. On processors with AVX512-BF16, a pass in evaluation mode packs 4-bit weights."""
    data = {"source": str(material.text), "maxLength": 64, "validationFraction": 0.1}
    looked = train(request_of(tmp_path / "looked", material, method={method: {}}, data=data, evaluation={"everySteps": 1}))
    monkeypatch.setattr(SteppedTrainer, "_probe", lambda _: None)

    alone = train(request_of(tmp_path / "alone", material, method={method: {}}, data=data, evaluation={"everySteps": 100}))

    assert len(looked.eval_losses) > len(alone.eval_losses)
    assert looked.losses == alone.losses


def test_a_pass_that_packs_weights_for_inference_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with kept_weights(model), torch.no_grad():
        model(torch.ones(1, 4))

    with pytest.raises(JobFailed, match=r"replaced 1 of its weights, 1\.weight among them"), kept_weights(model):
        model[1].weight.data = model[1].weight.data.t().contiguous()


def test_an_adapter_that_the_loss_reads_past_ends_the_run(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Liger's fused loss does with the head. `saveModules` trains the head itself, and works."""
    monkeypatch.setattr(LlamaForCausalLM, "forward", _forward_of_liger)
    lora = {"lora": {"targets": ["q_proj", "lm_head"]}}

    with pytest.raises(BadInput, match=r"no gradient reaches the adapters of lm_head: the loss reads these weights past the adapter"):
        train(request_of(tmp_path / "adapter", material, method=lora))

    result = train(request_of(tmp_path / "copy", material, method={"lora": {"targets": ["q_proj"], "saveModules": ["lm_head"]}}))
    assert result.losses[-1] < result.losses[0]


def test_an_adapter_of_the_head_is_missed_under_zero_3_too(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There no base weight can be asked."""
    monkeypatch.setattr(LlamaForCausalLM, "forward", _forward_of_liger)
    task = train_task(material.model, material.text, method={"lora": {"targets": ["q_proj", "lm_head"]}})

    with pytest.raises(BadInput, match=r"no gradient reaches the adapters of lm_head"):
        train(train_request(tmp_path, task, cpu_plan(zero=3)))


def _forward_of_liger(self: Any, input_ids: torch.Tensor, labels: torch.Tensor | None = None, **given: Any) -> Any:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    items = given.pop("num_items_in_batch", None)
    hidden = self.model(input_ids=input_ids, **given).last_hidden_state
    logits = nn.functional.linear(hidden, self.lm_head.weight)
    loss = None if labels is None else self.loss_function(logits, labels, vocab_size=self.config.vocab_size, num_items_in_batch=items)
    return CausalLMOutputWithPast(loss=loss, logits=logits)


def test_an_operation_without_a_derivative_ends_the_run(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch warns of it, and goes on without the gradient."""
    with torch.library._scoped_library("tests", "DEF") as library:
        library.define("doubled(Tensor values) -> Tensor")
        library.impl("doubled", lambda values: values * 2, "CPU")
        monkeypatch.setattr(LlamaMLP, "forward", lambda self, values: self.down_proj(torch.ops.tests.doubled(self.up_proj(values))))

        with pytest.raises(JobFailed, match="the backward pass ends at tests::doubled, which has no derivative"):
            train(request_of(tmp_path, material))


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory, material: Material) -> Material:
    """A model that chooses keys by an indexer, through which no gradient can flow."""
    folder = tmp_path_factory.mktemp("deepseek-v3.2")
    AutoModelForCausalLM.from_config(tiny_config_of("deepseek_v32")).save_pretrained(folder)
    write_tokenizer(folder)
    return Material(**{**vars(material), "model": folder})


@pytest.mark.parametrize("method", ["full", "lora"])
def test_weights_that_no_text_reaches_are_named_and_stay(method: str, indexed: Material, tmp_path: Path) -> None:
    """Weight decay would shrink them, and workers without ZeRO would wait for their gradients. ZeRO 3 has cut weights before that."""
    task = train_task(indexed.model, indexed.text, steps=2, method={method: {}}, optimizer={"learningRate": 1e-2, "weightDecay": 0.5})
    stages = (0, 2, 3)
    requests = [train_request(tmp_path / str(zero), task, cpu_plan(workers=2, zero=zero)) for zero in stages]

    results = results_in_ranks(requests, workers=2)

    for result in results:
        assert result.losses == pytest.approx(results[0].losses, rel=1e-5)
    told: list[Any] = []
    train(request_of(tmp_path / "told", indexed, steps=1, method={method: {}}), emit=told.append)
    (words,) = [event.message for event in told if isinstance(event, Warned)]
    if method == "full":
        assert "no text reaches 10 of the" in words
        assert "model.layers.0.self_attn.indexer.wq_b.weight" in words
        base = AutoModelForCausalLM.from_pretrained(indexed.model).state_dict()
        for zero in stages:
            after = AutoModelForCausalLM.from_pretrained(tmp_path / str(zero) / "out" / "model").state_dict()
            still = {name for name, weight in base.items() if torch.equal(after[name], weight)}
            assert {name for name in base if ".indexer." in name and "bias" not in name} <= still
            assert not any("q_a_proj" in name for name in still)
    else:
        assert "indexer.wq_b.lora_A" in words


def test_weights_for_some_tokens_alone_are_reached(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that is asked has tokens of the whole vocabulary."""
    forward = LlamaMLP.forward
    told: list[Any] = []

    def for_some(self: Any, values: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = forward(self, values)
        return made if seen[-1] >= 300 else made.detach() + values

    seen = [0]
    embed = nn.Embedding.forward

    def looked_up(self: Any, ids: torch.Tensor) -> torch.Tensor:
        seen.append(int(ids.max()))
        found: torch.Tensor = embed(self, ids)
        return found

    monkeypatch.setattr(nn.Embedding, "forward", looked_up)
    monkeypatch.setattr(LlamaMLP, "forward", for_some)

    train(request_of(tmp_path, material, steps=1), emit=told.append)

    assert not [event for event in told if isinstance(event, Warned) and "no text reaches" in event.message]


def test_targets_that_no_text_reaches_are_refused(indexed: Material, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the loss depends on none of the 4 weights to train .*indexer\.wq_b"):
        train(request_of(tmp_path, indexed, method={"lora": {"targets": ["wq_b"]}}))


def test_what_the_proof_asks_changes_no_step_of_a_resumed_run(indexed: Material, tmp_path: Path) -> None:
    """The loss of a short row draws dropout, in the first step of each attempt."""
    lora = {"lora": {"targets": ["wq_b", "q_b_proj"], "dropout": 0.2}}
    request = request_of(tmp_path, indexed, method=lora, steps=6, checkpoint={"everySteps": 2, "keep": 3})
    with saves_in_turn():
        whole = train(request)
    stop_after(2, tmp_path / "out")

    resumed = train(request)

    assert (resumed.resumed_from, resumed.losses) == (2, whole.losses)


def test_workers_that_would_wait_for_a_gradient_are_refused(indexed: Material, tmp_path: Path) -> None:
    """The first step still asks, where the proof is left out."""
    task = train_task(indexed.model, indexed.text, steps=2, proof="skip")

    with pytest.raises(BadInput, match="workers without ZeRO wait for the gradient of each weight"):
        results_in_ranks([train_request(tmp_path / "plain", task, cpu_plan(workers=2))], workers=2)


def kinds() -> list[Any]:
    adapted = [kind for kind, found in sorted(read().items()) if (found["lora"] or {}).get("status") == "works"]
    return [pytest.param(kind, marks=() if kind in READING else pytest.mark.long) for kind in adapted]


@pytest.mark.parametrize("kind", kinds())
def test_all_linear_adapts_nothing_that_a_class_reads_past_its_module(kind: str) -> None:
    """In `make test`: the classes of `READING`."""
    from peft import LoraConfig, get_peft_model

    model = AutoModelForCausalLM.from_config(tiny_config_of(kind))
    left_out = out_of_reach(model, "all-linear")
    adapted = get_peft_model(model, LoraConfig(target_modules="all-linear", exclude_modules=left_out or None))
    ids = torch.arange(64).view(2, 32) % model.get_input_embeddings().num_embeddings

    def loss_of() -> torch.Tensor:
        loss: torch.Tensor = adapted(input_ids=ids, labels=ids, use_cache=False).loss
        return loss

    proof = GradientProof(adapted)
    loss_of().backward()
    proof.finish(adapted, loss_of)
