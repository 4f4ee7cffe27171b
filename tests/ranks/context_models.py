"""A model on whole rows in one process, and on slices of them over a context group: loss and every gradient, for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from tests.ranks.forks import Call, called
from tests.ranks.groups import group
from tests.zoo.configs import VOCAB, tiny_config_of

from tuneyard.api import BadInput
from tuneyard.parallel.context import ContextParallel, row_slice
from tuneyard.training.collate import Collator
from tuneyard.training.context import refuse_unsplit, slice_loss
from tuneyard.training.proofs.sight import refuse_leaks

SEED, ROWS, LONGEST = 7, 2, 200
Batch = dict[str, Any]
Run = tuple[float, dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Difference:
    """Of slices from whole rows; relative to the largest element of each gradient. `refused`: why there are no numbers."""

    model_type: str
    ranks: int
    loss: float = 0.0
    gradient: float = 0.0
    worst: str = ""
    refused: str = ""

    @property
    def equal(self) -> bool:
        return not self.refused and self.loss < 1e-5 and self.gradient < 1e-5


def differences(model_types: list[str], ranks: int, *, packed: bool, **changes: Any) -> list[Difference]:
    """Of each model, as rank 0 sees it. `changes`: of its tiny configuration."""
    places = group(ranks, per_machine=ranks)
    found: list[Difference] = called([Call(_rank, (model_types, packed, changes), place) for place in places])[0]
    return found


def batch_of(tokens: int = 29, *, packed: bool) -> Batch:
    """Two rows of 29 tokens, which no number of ranks divides: three packed samples each; or whole samples, of which one is shorter."""
    torch.manual_seed(SEED)
    ids = torch.randint(2, VOCAB, (ROWS, tokens))
    labels = ids.clone()
    labels[0, 3:7] = -100
    if packed:
        position_ids = torch.stack([_restarting(tokens, (0, 13, 17)), _restarting(tokens, (0, 2, 26))])
        labels[position_ids == 0] = -100
        return {"input_ids": ids, "labels": labels, "position_ids": position_ids}
    mask = torch.ones_like(ids)
    mask[1, 20:] = 0
    labels[1, 20:] = -100
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def _restarting(tokens: int, starts: tuple[int, ...]) -> torch.Tensor:
    ends = (*starts[1:], tokens)
    return torch.cat([torch.arange(end - start) for start, end in zip(starts, ends, strict=True)])


def _rank(model_types: list[str], packed: bool, changes: dict[str, Any]) -> list[Difference]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    context = ContextParallel(dist.group.WORLD)
    found = [_difference(model_type, context, packed, dict(changes)) for model_type in model_types]
    dist.destroy_process_group()
    return found


def _difference(model_type: str, context: ContextParallel, packed: bool, changes: dict[str, Any]) -> Difference:
    from transformers import AutoModelForCausalLM

    batch = batch_of(packed=packed)
    dtype = changes.pop("dtype", torch.float32)
    config = tiny_config_of(model_type)
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(SEED)
    try:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    except (ValueError, ImportError) as error:
        return Difference(model_type, context.ranks, refused=f"cannot be built with sdpa: {str(error).splitlines()[0][:80]}")
    model.config.use_cache = False
    try:
        context.prepare(model)
        with context.whole_rows():
            if packed:
                refuse_leaks(partial(_logits, model), Collator(0), VOCAB)
        refuse_unsplit(partial(_logits, model), context, VOCAB, LONGEST, packed=packed)
    except BadInput as error:
        return Difference(model_type, context.ranks, refused=error.cause)
    with context.whole_rows():
        expected = _run(model, batch, None)
    found = _run(model, batch, context)
    return compared(model_type, context.ranks, expected, found)


def compared(model_type: str, ranks: int, expected: Run, found: Run) -> Difference:
    """Each run is a loss with the gradients of all weights."""
    # A gradient that vanishes by symmetry is rounding alone: its error counts beside a thousandth of the largest gradient.
    floor = 1e-3 * max(float(gradient.abs().max()) for gradient in expected[1].values())
    gradients = {name: _relative(found[1].get(name), gradient, floor) for name, gradient in expected[1].items()}
    worst = max(gradients, key=lambda name: gradients[name])
    return Difference(model_type, ranks, abs(found[0] / expected[0] - 1), gradients[worst], worst)


def _logits(model: Any, inputs: Batch) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        logits: torch.Tensor = model(**inputs).logits
    model.train()
    return logits


def _run(model: Any, batch: Batch, context: ContextParallel | None) -> Run:
    """The loss over all counting tokens, and its gradients: those of the ranks are added up, as data parallelism adds them."""
    import torch.distributed as dist

    model.zero_grad()
    counted = (batch["labels"][:, 1:] != -100).sum()
    if context is None:
        inputs, labels = batch, torch.nn.functional.pad(batch["labels"], (0, 1), value=-100)
    else:
        inputs = row_slice(batch, context.index, context.ranks)
        labels = inputs["labels"]
    outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
    loss = slice_loss(outputs, labels, counted)
    loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    total = loss.detach().clone()
    if context is not None:
        for tensor in (total, *gradients.values()):
            dist.all_reduce(tensor)
    return float(total), gradients


def _relative(found: torch.Tensor | None, expected: torch.Tensor, floor: float) -> float:
    if found is None or found.shape != expected.shape:
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=floor))
