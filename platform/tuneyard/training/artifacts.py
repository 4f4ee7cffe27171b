"""Artifacts of a finished task: weights or an adapter for `from_pretrained` and vLLM, with tokenizer, configuration and a model card.

Each folder is assembled on local scratch and committed by storage: in the output it is complete or absent.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from tuneyard.parallel import Shards
from tuneyard.storage import Store, open_store
from tuneyard.tracking.events import Emit, Stage
from tuneyard.training.distributed import World
from tuneyard.training.end_tokens import write_end_tokens
from tuneyard.training.first_rank import write_on_first
from tuneyard.training.models import DTYPES, quantization
from tuneyard.training.request import TrainRequest
from tuneyard.training.trainer import SteppedTrainer

MODEL = "model"
MERGED = "merged"


@dataclass(frozen=True)
class Artifacts:
    model_uri: str | None
    adapter_uri: str | None
    merged_uri: str | None


def save_artifacts(
    trainer: SteppedTrainer, request: TrainRequest, *, start: str, tokenizer: Any, turn_end: int | None, card: str, world: World, emit: Emit
) -> Artifacts:
    """Write the final model below the task's output. Collective: with ZeRO-3, all ranks gather the weights.

    `turn_end`: the token that ends an answer in the chat template of the samples.

    Raises StorageError on every rank if rank 0 could not write.
    """
    emit(Stage(task=request.name, name="saving the model"))
    weights = gathered_weights(trainer, request)
    write_on_first(
        world,
        lambda: _write(trainer, request, weights, start=start, tokenizer=tokenizer, turn_end=turn_end, card=card),
        what="the final model",
    )
    store = open_store(request.output)
    adapter = request.task.method.adapter
    if adapter is None:
        return Artifacts(store.url(MODEL), None, None)
    return Artifacts(None, store.url(MODEL), store.url(MERGED) if adapter.merge else None)


def gathered_weights(trainer: SteppedTrainer, request: TrainRequest) -> dict[str, torch.Tensor] | None:
    """Whole weights on rank 0, if they are cut over ranks; None if the model itself holds whole weights."""
    if trainer.shards is not None:
        return _joined_weights(trainer, trainer.shards, request)
    if not trainer.is_deepspeed_enabled:
        return None
    if request.plan.zero == 3:
        frozen = {"exclude_frozen_parameters": True} if request.task.method.adapter is not None else {}
        return dict(trainer.deepspeed._zero3_consolidated_16bit_state_dict(**frozen) or {})
    return dict(trainer.accelerator.get_state_dict(trainer.deepspeed))


def _joined_weights(trainer: SteppedTrainer, shards: Shards, request: TrainRequest) -> dict[str, torch.Tensor]:
    """Whole weights in host memory of rank 0, joined one tensor at a time over its tensor group; empty on the other ranks."""
    is_full = request.task.method.adapter is None
    dtype = DTYPES[request.plan.precision] if is_full else None
    if is_full:
        trainer.model.to(dtype)  # config.json has the dtype of the model
    found: dict[str, torch.Tensor] = {}
    joined: dict[int, torch.Tensor] = {}
    if trainer.world.gradient_rank > 0:
        return found
    kept = None if is_full else _kept_of_adapted(trainer.model)
    for name, value in trainer.model.state_dict(keep_vars=True).items():
        if kept is not None and name not in kept:
            continue
        if id(value) not in joined:  # tied weights are one tensor in the file too
            joined[id(value)] = (shards.gather(name, value.data) if name in shards.shares else value.detach()).cpu()
        found[name] = joined[id(value)]
        if not trainer.world.is_first:
            joined[id(value)] = torch.empty(0)
    return found if trainer.world.is_first else {}


def _kept_of_adapted(model: Any) -> set[str]:
    """Names of weights that PEFT may save from a model with adapters: the trained ones, and the embeddings beside an adapter that changes
    them.
    """
    ends = {id(module) for module in (model.get_input_embeddings(), model.get_output_embeddings()) if module is not None}
    beside = {f"{name}.{own}" for name, module in model.named_modules() if id(module) in ends for own, _ in module.named_parameters()}
    return beside | {name for name, value in model.named_parameters() if value.requires_grad}


def _write(
    trainer: SteppedTrainer, request: TrainRequest, weights: Any, *, start: str, tokenizer: Any, turn_end: int | None, card: str
) -> None:
    staging = Path(request.scratch) / "final"
    shutil.rmtree(staging, ignore_errors=True)
    store = open_store(request.output)
    folder = staging / MODEL
    model = trainer.model
    model.config.use_cache = True
    if request.task.method.adapter is None:
        # Without DeepSpeed, weights were kept in fp32. save_pretrained writes the dtype of the model into config.json.
        model = model if weights is not None else model.to(DTYPES[request.plan.precision])
        model.save_pretrained(folder, state_dict=weights)
    else:
        model.save_pretrained(folder, selected_adapters=["default"], **({"state_dict": weights} if weights is not None else {}))
    _dress(folder, tokenizer, turn_end, card)
    if request.task.method.adapter is not None and request.task.method.adapter.merge:
        # ZeRO-3 would partition the model that is loaded below.
        unset_hf_deepspeed_config()
        _merge(start, folder, staging / MERGED, request)
        _dress(staging / MERGED, tokenizer, turn_end, card)
        _commit(store, staging / MERGED, MERGED)
    _commit(store, folder, MODEL)


def _merge(source: str, adapter: Path, folder: Path, request: TrainRequest) -> None:
    """Add the adapter to its base weights; for QLoRA, to the dequantised 4-bit weights."""
    from peft import PeftModel

    dtype = DTYPES[request.plan.precision]
    trust = request.task.model.trust_remote_code
    options = {"revision": request.task.model.revision, "dtype": dtype, "trust_remote_code": trust}
    if request.task.method.qlora is not None:
        base = AutoModelForCausalLM.from_pretrained(
            source, quantization_config=quantization(request), device_map="cpu", **options
        ).dequantize()
        base = base.to(dtype)
    else:
        base = AutoModelForCausalLM.from_pretrained(source, **options)
    PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(folder)


def _dress(folder: Path, tokenizer: Any, turn_end: int | None, card: str) -> None:
    """Write the tokenizer (with its chat template), end tokens and model card beside the weights."""
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card)
    if not (folder / "adapter_config.json").exists() or turn_end is not None:
        write_end_tokens(folder, tokenizer, turn_end)


def _commit(store: Store, folder: Path, name: str) -> None:
    store.commit_folder(folder, name)
