"""Variable-length attention against eager attention: logits and gradients of packed and padded rows, and whole runs. All on cpu, where the
samples are attended one by one; of the kernel inside torch, the arguments are tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from tests.builders.models import cpu_plan, tiny_config, train_request, train_task, write_model, write_text
from tests.zoo.configs import tiny_config_of
from tests.zoo.proofs import proven_once
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tuneyard.catalog import attention_kinds, has_varlen
from tuneyard.training import train, varlen
from tuneyard.training.models import attention_name
from tuneyard.training.varlen import VARLEN, Samples, samples_mask, varlen_attention

TRAITS = {
    "llama": "grouped heads",
    "gpt2": "learned positions",
    "gemma3_text": "full and sliding layers",
    "mistral": "a sliding window",
    "deepseek_v3": "values narrower than keys",
    "diffllama": "attention twice in a layer",
    "qwen3_next": "layers of another kind between",
    "opt": "a decoder of the older kind",
}
OTHERS = (
    *("afmoe", "apertus", "arcee", "bamba", "bitnet", "cohere", "cohere2", "cwm", "deepseek_v2", "ernie4_5", "exaone4", "gemma", "glm"),
    *("glm4", "gpt_neox", "granite", "granitemoe", "jamba", "lfm2", "minimax", "mixtral", "nemotron", "olmo2", "olmo3", "olmoe", "phi"),
    *("phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "stablelm", "starcoder2", "zamba2"),
)
ENCODERS = {
    *("bert", "bert-generation", "camembert", "data2vec-text", "electra", "ernie", "roberta", "roberta-prelayernorm", "roc_bert"),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
}
"""Their tokens see later ones, so a mask remains."""


def rows(kind: str) -> dict[str, torch.Tensor]:
    """Two padded rows, or a packed row of three samples. A window of 32 is shorter than the longest sample."""
    ids = torch.randint(2, 384, (2, 40), generator=torch.Generator().manual_seed(0))
    if kind == "padded":
        mask = torch.ones_like(ids)
        mask[1, 17:] = 0
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
    positions = torch.tensor([[*range(40), *range(5), *range(35)]])
    packed = ids.reshape(1, -1)
    return {"input_ids": packed, "position_ids": positions, "labels": packed.masked_fill(positions == 0, -100)}


def outcome(model: Any, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    found = model(**batch, use_cache=False)
    found.loss.backward()
    counted = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
    return found.logits.detach()[counted], {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def difference(model: Any, batch: Mapping[str, torch.Tensor]) -> float:
    """The largest difference from eager attention, of a logit or of a weight's gradient, relative to the largest logit or gradient."""
    found = []
    for name in ("eager", VARLEN):
        model.set_attn_implementation(name)
        assert model.config._attn_implementation == name
        found.append(outcome(model, batch))
    (logits, gradients), (own_logits, own_gradients) = found
    assert set(own_gradients) == set(gradients)
    largest = max(float(each.norm()) for each in gradients.values())
    apart = max(float((own_gradients[name] - each).norm()) for name, each in gradients.items())
    return max(float((own_logits - logits).abs().max() / logits.abs().max()), apart / largest)


def compare(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(tiny_config_of(kind)).eval()
    calls = count_calls(monkeypatch)
    for form in ("packed", "padded"):
        assert difference(model, rows(form)) < 5e-6, form
    assert calls["one by one"] > 0
    assert calls["masked"] == 0


def count_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    calls = {"one by one": 0, "masked": 0}

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(varlen, "_one_by_one", counted("one by one", varlen._one_by_one))
    monkeypatch.setattr(varlen, "sdpa_attention_forward", counted("masked", varlen.sdpa_attention_forward))
    return calls


@pytest.mark.parametrize("kind", TRAITS)
@proven_once
def test_packed_and_padded_rows_are_those_of_eager_attention(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(kind, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("kind", OTHERS)
def test_so_are_those_of_other_architectures(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(kind, monkeypatch)


@pytest.mark.long
def test_the_catalog_knows_every_architecture_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {}
    for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        if "flash" not in attention_kinds(kind) or kind in ENCODERS:
            continue
        try:
            model = AutoModelForCausalLM.from_config(tiny_config_of(kind)).eval()
        except (ImportError, AttributeError, RuntimeError, ValueError, TypeError, StrictDataclassFieldValidationError):
            continue  # no tiny model of it
        with monkeypatch.context() as patch:
            calls = count_calls(patch)
            try:
                works = all(difference(model, rows(form)) < 1e-4 for form in ("packed", "padded"))
            except (AssertionError, ValueError, KeyError):
                works = False
        if (works and calls["one by one"] > 0 and calls["masked"] == 0) != has_varlen(kind):
            wrong[kind] = works
    assert wrong == {}


@pytest.mark.parametrize("kind", ["gemma2", "gpt_oss"])
def test_scores_that_are_capped_or_have_sinks_are_refused(kind: str) -> None:
    assert not has_varlen(kind)
    model = AutoModelForCausalLM.from_config(tiny_config_of(kind), attn_implementation=VARLEN)
    with pytest.raises(ValueError, match=r"variable-length attention has no (softcap|s_aux): set model.attention to sdpa or eager"):
        model(**rows("padded"))


def test_a_class_outside_of_the_interface_is_not_listed() -> None:
    assert not has_varlen("falcon")
    model = AutoModelForCausalLM.from_config(tiny_config_of("falcon"), attn_implementation="eager")
    model.set_attn_implementation(VARLEN)
    assert model.config._attn_implementation == "eager"


RUNS: dict[str, dict[str, Any]] = {
    "packed": {"data": {"pack": True}},
    "padded": {},
    "recomputed": {"data": {"pack": True}, "plan": {"recompute": True}},
    "an adapter": {"data": {"pack": True}, "method": {"lora": {"rank": 4}}, "plan": {"recompute": True}},
    "sharded": {"data": {"pack": True}, "plan": {"zero": 3}},
    "evaluated": {"data": {"pack": True, "validationFraction": 0.2}, "evaluation": {"everySteps": 2}},
}


@pytest.mark.parametrize("run", RUNS)
def test_a_run_has_the_losses_of_eager_attention(run: str, tmp_path: Path) -> None:
    given = dict(RUNS[run])
    plan, data = given.pop("plan", {}), given.pop("data", {})
    model = write_model(tmp_path / "model")
    text = write_text(tmp_path / "text.jsonl")
    results = []
    for attention in ("eager", "flash"):
        task = train_task(model, text, data={"source": str(text), "maxLength": 64, **data}, **given)
        request = train_request(tmp_path / attention, task, cpu_plan(attention=attention, **plan), refused=attention == "flash")
        results.append(train(request))
    eager, flash = results
    assert flash.losses == pytest.approx(eager.losses, rel=1e-5)
    assert flash.losses[-1] < flash.losses[0]
    assert flash.eval_losses == [(step, pytest.approx(loss, rel=1e-5)) for step, loss in eager.eval_losses]


def test_without_the_package_flash_is_the_kernel_inside_torch() -> None:
    assert attention_name("flash") == VARLEN
    assert attention_name("sdpa") == "sdpa"


def test_a_cache_and_tokens_that_see_later_ones_keep_their_mask() -> None:
    assert isinstance(samples_mask(2, 1, 9), torch.Tensor | None)

    def whole(row: Any, head: Any, query: Any, key: Any) -> torch.Tensor:  # noqa: ARG001 - transformers' signature
        return torch.ones(torch.broadcast_shapes(query.shape, key.shape), dtype=torch.bool)

    assert not isinstance(samples_mask(2, 9, 9, whole), Samples)


def test_generation_with_a_cache_gives_the_tokens_of_eager_attention() -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config()).eval()
    batch = {name: tensor for name, tensor in rows("padded").items() if name != "labels"}
    batch = {name: tensor.flip(1) for name, tensor in batch.items()}  # padding on the left
    found = []
    for name in ("eager", VARLEN):
        model.set_attn_implementation(name)
        found.append(model.generate(**batch, max_new_tokens=8, do_sample=False))
    assert found[0].tolist() == found[1].tolist()


SAMPLES = Samples(torch.tensor([0, 3, 4, 12], dtype=torch.int32), 8, None, None)


@pytest.mark.parametrize("window", [None, 3, 8, 50])
@pytest.mark.parametrize("grouped", [True, False], ids=["torch 2.13", "torch 2.11"])
@pytest.mark.parametrize(("width", "value_width"), [(16, 16), (20, 20), (24, 16)])
def test_the_kernel_gets_arguments_that_mean_the_same(window: int | None, grouped: bool, width: int, value_width: int) -> None:
    """A stand-in with the kernel's limits, by its documentation: heads of one width in multiples of 8, windows of (tokens before, 0)."""
    torch.manual_seed(0)
    q, k, v = torch.randn(12, 4, width), torch.randn(12, 2, width), torch.randn(12, 2, value_width)
    samples = Samples(SAMPLES.starts, SAMPLES.longest, None, window)

    def kernel(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, max_q: int, max_k: int, *, scale: float, window_size: Any, **more: Any) -> Any:
        assert q.shape[-1] == k.shape[-1] == v.shape[-1] == -(-width // 8) * 8
        assert cu_q is cu_k
        assert max_q == max_k == 8
        assert more == ({"enable_gqa": True} if grouped else {})
        assert grouped or q.shape[1] == k.shape[1]
        repeated = [each.repeat_interleave(q.shape[1] // each.shape[1], dim=1) for each in (k, v)]
        at = torch.arange(12)
        sample = torch.bucketize(at, cu_q[1:], right=True)
        sees = (sample[:, None] == sample) & (at[:, None] >= at)
        if window_size[0] >= 0:
            sees &= at[:, None] - at <= window_size[0]
        scores = torch.einsum("qhd,khd->hqk", q, repeated[0]) * scale
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(~sees, -torch.inf).softmax(-1), repeated[1])

    attend = varlen._over_samples(kernel, grouped=grouped)
    expected = varlen._one_by_one(q, k, v, samples, width**-0.5, 0.0)
    torch.testing.assert_close(attend(q, k, v, samples, width**-0.5), expected)


def test_the_kernel_of_the_installed_torch_takes_these_arguments() -> None:
    """On the meta device, which knows shapes alone."""
    attend = varlen._kernel()
    assert attend is not None
    heads = ((8, 40), (2, 40), (2, 32))
    q, k, v = (torch.empty(12, count, width, device="meta", dtype=torch.bfloat16, requires_grad=True) for count, width in heads)
    found = attend(q, k, v, Samples(SAMPLES.starts.to("meta"), 8, None, 3), 0.1)
    assert found.shape == (12, 8, 32)
    found.sum().backward()
    assert k.grad is not None
    assert k.grad.shape == k.shape


def test_dropout_of_scores_is_that_of_torch() -> None:
    torch.manual_seed(0)
    q = torch.randn(1, 2, 12, 16)
    plain, _ = varlen_attention(torch.nn.Identity(), q, q, q, SAMPLES)
    dropped = torch.stack([varlen_attention(torch.nn.Identity(), q, q, q, SAMPLES, dropout=0.2)[0] for _ in range(400)])
    assert not torch.equal(dropped[0], plain)
    torch.testing.assert_close(dropped.mean(0), plain, atol=0.2, rtol=0.1)
