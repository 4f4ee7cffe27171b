"""Tiny models under a tensor-parallel plan in real ranks on gloo, through transformers' own engine, beside one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tests.ranks.forks import Call, called
from tests.ranks.groups import group, made_on_first
from tests.zoo.configs import PAD, VOCAB, tiny_config_of

SEED, ROWS, TOKENS = 7, 2, 12


@dataclass(frozen=True)
class Difference:
    """Largest difference between ranks and one process, relative to the largest value: of the logits, and of the worst gradient."""

    model_type: str
    logits: float
    gradient: float
    worst: str
    sharded: int
    error: str = ""


def tiny_model(model_type: str, changes: Mapping[str, Any] | None = None, *, meta: bool = False) -> Any:
    """A model of two small layers; the same weights in every process. None of its weights is constant, norms and biases included."""
    config = tiny_config_of(model_type)
    for name, value in (changes or {}).items():
        setattr(config, name, value)
    made_by = _auto_class(config)
    if meta:
        with torch.device("meta"):
            return made_by.from_config(config)
    torch.manual_seed(SEED)
    model = made_by.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.02)
    return model


def _auto_class(config: Any) -> Any:
    """The class of transformers with a language head for this config, or the one without."""
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForSeq2SeqLM

    known = (AutoModelForSeq2SeqLM, AutoModelForCausalLM, AutoModelForImageTextToText)
    return next((found for found in known if type(config) in found._model_mapping), AutoModel)


def differences_of(models: list[tuple[str, Mapping[str, Any] | None, Mapping[str, str] | None]], degree: int) -> list[Difference]:
    """Each model whole and on `degree` ranks of one group: (type, changes of its config, plan; None: Tuneyard's)."""
    found: list[Difference] = called([Call(_compared, (models, degree), place) for place in group(degree, per_machine=degree)])[0]
    return found


def _compared(models: list[Any], degree: int) -> list[Difference]:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = [difference_here(*model, degree) for model in models]
    dist.destroy_process_group()
    return found


def difference_here(model_type: str, changes: Any, plan: Any, degree: int) -> Difference:
    """As `differences_of` for one model, on a rank of a group that exists."""
    from torch.distributed.device_mesh import init_device_mesh
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    from tuneyard.parallel import tensor_parallel_plan

    try:
        whole = tiny_model(model_type, changes)
        styles = (
            plan if plan is not None else made_on_first(lambda: tensor_parallel_plan(tiny_model(model_type, changes, meta=True), degree))
        )
        expected = _run(whole)
        sharded = tiny_model(model_type, changes)
        apply_tensor_parallelism(sharded, init_device_mesh("cpu", (degree,)), styles)
        sharded.tie_weights()
        found = _run(sharded)
    except Exception as error:  # noqa: BLE001  the caller sees the words of any failure
        return Difference(model_type, float("inf"), float("inf"), "", 0, f"{type(error).__name__}: {str(error)[:300]}")
    logits = relative(found[0], expected[0])
    # A gradient that vanishes by symmetry is rounding alone: its error counts beside a thousandth of the largest gradient.
    floor = 1e-3 * max(float(gradient.abs().max()) for gradient in expected[1].values())
    gradients = {name: relative(found[1].get(name), gradient, floor) for name, gradient in expected[1].items()}
    worst = max(gradients, key=lambda name: gradients[name])
    return Difference(model_type, logits, gradients[worst], worst, len(styles))


def _run(model: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The logits, and the gradient of every parameter of a loss on them."""
    torch.manual_seed(SEED)
    ids = torch.randint(0, VOCAB, (ROWS, TOKENS))
    ids[0, :4] = torch.arange(4) * (VOCAB // 4) + PAD  # the padding row's place in each rank's share of the vocabulary
    both = {"decoder_input_ids": ids.flip(1)} if model.config.is_encoder_decoder else {}
    answer = model(input_ids=ids, **({"use_cache": False} if hasattr(model.config, "use_cache") else {}), **both)
    logits = _full(answer["logits"] if "logits" in answer else answer["last_hidden_state"])
    torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten() % logits.shape[-1]).backward()
    return logits.detach(), {name: _full(weight.grad) for name, weight in model.named_parameters() if weight.grad is not None}


def _full(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def relative(found: torch.Tensor | None, expected: torch.Tensor, floor: float = 1e-12) -> float:
    if found is None or found.shape != expected.shape:
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=floor))
