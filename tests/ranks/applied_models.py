"""Tiny models sharded by Tuneyard's engine in real ranks on gloo, beside one process: logits, loss and every gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.ranks.forks import Call, called
from tests.ranks.groups import group, made_on_first
from tests.ranks.sharded_models import PAD, ROWS, SEED, TOKENS, VOCAB, Difference, relative, tiny_model


@dataclass(frozen=True)
class Case:
    """A model type with changes of its config; `rank_of_lora`: trained by LoRA of this rank on its linears (0: all weights)."""

    model_type: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    rank_of_lora: int = 0
    micro_batches: int = 1
    recompute: bool = False
    sharded_logits: bool = False
    """Compared are then the model's own losses, as logits are those of a rank."""
    sliced_tokens: bool = False
    """Sequence parallelism."""
    tokens: int = TOKENS

    def model(self, *, meta: bool = False) -> Any:
        return tiny_model(self.model_type, self.changes, meta=meta)

    def trained(self) -> Any:
        """The model in one process, with adapters if the case has them; B is not zero, so that every adapter weight has a gradient."""
        model = self.model()
        if self.recompute:
            model.gradient_checkpointing_enable()
            model.train()
        return with_lora(model, self.rank_of_lora) if self.rank_of_lora else model


def with_lora(model: Any, rank: int, **settings: Any) -> Any:
    """The model with LoRA on every linear but the head; the same weights in every process."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(SEED + 1)
    found = get_peft_model(model, LoraConfig(r=rank, lora_dropout=0.0, **{"target_modules": linears_of(model), **settings}))
    with torch.no_grad():
        for name, weight in found.named_parameters():
            if "lora_" in name:
                weight.add_(torch.randn_like(weight) * 0.02)
    return found


def linears_of(model: Any) -> list[str]:
    """Names of the linear modules inside the model's layers, as far as LoRA can adapt them."""
    from transformers.pytorch_utils import Conv1D

    from tuneyard.training.adapter_reach import out_of_reach

    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    beyond = out_of_reach(model, "all-linear")
    kinds = (torch.nn.Linear, Conv1D)
    linears = [name for name, module in model.named_modules() if type(module) in kinds and module is not head]
    return [name for name in linears if not any(name.endswith(f".{other}") for other in beyond)]


def differences_of(cases: list[Case], degree: int) -> list[Difference]:
    """Each case whole and on `degree` ranks of one group."""
    found: list[Difference] = called([Call(_compared, (cases, degree), place) for place in group(degree, per_machine=degree)])[0]
    return found


def _compared(cases: list[Case], degree: int) -> list[Difference]:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = [difference_here(case, degree) for case in cases]
    dist.destroy_process_group()
    return found


def difference_here(case: Case, degree: int) -> Difference:
    """As `differences_of` for one case, on a rank of a group that exists. Ranks after the first know their own half alone."""
    import torch.distributed as dist

    from tuneyard.parallel import keep_logits_sharded, shard_model

    plan = plan_here(case, degree)
    model = case.trained()
    shards = shard_model(model, plan, dist.group.WORLD)
    if case.sharded_logits:
        keep_logits_sharded(model, plan, shards)
    loss = own_loss_of if case.sharded_logits else loss_of
    logits, local = _run(model, case, loss)
    gradients = {name: shards.gather(name, gradient) for name, gradient in local.items()}
    if dist.get_rank():
        return Difference(case.model_type, 0.0, 0.0, "", len(plan.styles))
    expected = _run(case.trained(), case, loss)
    # A gradient that vanishes by symmetry is rounding alone: its error counts beside a thousandth of the largest gradient.
    floor = 1e-3 * max(float(gradient.abs().max()) for gradient in expected[1].values())
    errors = {name: relative(gradients.get(name), gradient, floor) for name, gradient in expected[1].items()}
    worst = max(errors, key=lambda name: errors[name])
    return Difference(case.model_type, relative(logits, expected[0]), errors[worst], worst, len(plan.styles))


def plan_here(case: Case, degree: int) -> Any:
    """Tuneyard's plan of a case, made by the first rank of a group that exists."""
    return made_on_first(lambda: _plan(case.model_type, tuple(sorted(case.changes.items())), degree, case.sliced_tokens))


@functools.cache
def _plan(model_type: str, changes: tuple[tuple[str, Any], ...], degree: int, sequence: bool) -> Any:
    """Adapters, losses and lengths of rows change no plan: cases of one model share it."""
    from tuneyard.parallel import explain_tensor_parallel

    return explain_tensor_parallel(tiny_model(model_type, dict(changes), meta=True), degree, sequence=sequence)


def batch_of(model: Any, number: int = 0, tokens: int = TOKENS) -> dict[str, torch.Tensor]:
    """Token ids and labels for a model, the same in every process."""
    torch.manual_seed(SEED + number)
    ids = torch.randint(0, VOCAB, (ROWS, tokens))
    shares = torch.arange(4) * (VOCAB // 4)
    ids[0, :4] = (shares + PAD)[:tokens]  # the padding row's place in each rank's share of the vocabulary
    both = {"decoder_input_ids": ids.flip(1)} if model.config.is_encoder_decoder else {}
    plain = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    return {"input_ids": ids, **plain, **both}


def loss_of(model: Any, batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits (or last hidden states) of a batch, and a loss on them."""
    answer = model(**batch)
    logits = answer["logits"] if "logits" in answer else answer["last_hidden_state"]
    labels = batch["input_ids"].flatten() % logits.shape[-1]
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels)


def own_loss_of(model: Any, batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's own loss, twice, with labels that leave out some positions."""
    labels = batch["input_ids"].clone()
    labels[0, 5:8] = -100
    loss = model(**batch, labels=labels)["loss"]
    return loss.reshape(1), loss


def _run(model: Any, case: Case, loss_of: Callable[..., Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    found = []
    for number in range(case.micro_batches):
        logits, loss = loss_of(model, batch_of(model, number, case.tokens))
        (loss / case.micro_batches).backward()
        found.append(logits.detach())
    return torch.cat(found), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
