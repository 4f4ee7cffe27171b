"""Artifacts of a finished task: weights or an adapter for `from_pretrained` and vLLM, with tokenizer, configuration and a model card.

Each folder is assembled on local scratch and committed by storage: in the output it is complete or absent.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from tuneyard.parallel import Shards
from tuneyard.storage import open_store
from tuneyard.tracking.events import Emit, Stage
from tuneyard.training.distributed import World
from tuneyard.training.first_rank import write_on_first
from tuneyard.training.generation_settings import save_with_settings, write_end_tokens
from tuneyard.training.merging import load_base, merge
from tuneyard.training.model_card import card_of_merged
from tuneyard.training.models import DTYPES, quantization
from tuneyard.training.origin import ORIGIN, Origin
from tuneyard.training.proofs.limit import late_after, limit_of, within
from tuneyard.training.proofs.saved import SavedProof, refuse_other_tokenizer, size_of
from tuneyard.training.provenance.certificate import Origins, base_hashes, base_marks, write_certificate
from tuneyard.training.provenance.signing import given_key, sign_folder
from tuneyard.training.request import TrainRequest
from tuneyard.training.trainer import SteppedTrainer

MODEL = "model"
MERGED = "merged"


@dataclass(frozen=True)
class Artifacts:
    model_uri: str | None
    adapter_uri: str | None
    merged_uri: str | None


@dataclass(frozen=True)
class Beside:
    """Files beside the weights. `turn_end`: the token that ends an answer in the chat template of the samples."""

    tokenizer: Any
    turn_end: int | None
    card: str
    origins: Origins


def save_artifacts(
    trainer: SteppedTrainer, request: TrainRequest, *, start: str, beside: Beside, proof: SavedProof | None, world: World, emit: Emit
) -> Artifacts:
    """Write the final model below the task's output. Collective: with ZeRO-3, all ranks gather the weights.

    `proof` compares each folder with the trained model before it is committed; None: no folder is compared.

    Raises, on every rank, StorageError if rank 0 could not write, and JobFailed if a folder holds another model.
    """
    emit(Stage(task=request.name, name="saving the model"))
    weights = gathered_weights(trainer, request)
    write_on_first(
        world,
        lambda: _write(trainer, request, weights, start, beside, proof),
        what="the final model",
    )
    store = open_store(request.output)
    adapter = request.task.method.adapter
    if adapter is None:
        return Artifacts(store.url(MODEL), None, None)
    return Artifacts(None, store.url(MODEL), store.url(MERGED) if adapter.merge else None)


def gathered_weights(trainer: SteppedTrainer, request: TrainRequest, *, frozen: bool = False) -> dict[str, torch.Tensor] | None:
    """Whole weights on rank 0, if they are cut over ranks; None if the model itself holds whole weights. `frozen`: with those beneath an
    adapter.
    """
    if trainer.shards is not None:
        return _joined_weights(trainer, trainer.shards, request)
    if not trainer.is_deepspeed_enabled:
        return None
    if request.plan.zero == 3:
        kept = {"exclude_frozen_parameters": True} if request.task.method.adapter is not None and not frozen else {}
        return dict(trainer.deepspeed._zero3_consolidated_16bit_state_dict(**kept) or {})
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


def _write(trainer: SteppedTrainer, request: TrainRequest, weights: Any, start: str, beside: Beside, proof: SavedProof | None) -> None:
    staging = Path(request.scratch) / "final"
    shutil.rmtree(staging, ignore_errors=True)
    store = open_store(request.output)
    folder = staging / MODEL
    model = trainer.model
    model.config.use_cache = True
    unset_hf_deepspeed_config()  # ZeRO-3 would partition models that are loaded from here on
    if request.task.method.adapter is None:
        # Without DeepSpeed, weights were kept in fp32. save_pretrained writes the dtype of the model into config.json.
        model = model if weights is not None else model.to(DTYPES[request.plan.precision])
        save_with_settings(model, folder, state_dict=weights)
        if proof is not None:
            proof.prove_weights(folder, weights if weights is not None else model.state_dict())
    else:
        model.save_pretrained(folder, selected_adapters=["default"], **({"state_dict": weights} if weights is not None else {}))
        if proof is not None and (request.task.method.adapter.merge or proof.can_load(model)):
            limit = limit_of(3 * size_of(model, proof.dtype))  # base, adapted and merged
            within(limit, lambda: _prove_adapter(proof, trainer, request, weights, start, staging), late_after("adapter", limit))
        elif request.task.method.adapter.merge:
            merge(PeftModel.from_pretrained(_base(request, start), str(folder)), staging / MERGED)
    origin = Origin.of(request.task, request.model_uri, request.plan.precision).to_dict() | {"marks": base_marks(request, start)}
    base = base_hashes(request, start)
    for name in (MERGED, MODEL):
        if (staging / name).is_dir():
            merged = replace(beside, card=card_of_merged(beside.card))
            _dress(staging / name, merged if name == MERGED else beside)
            if proof is not None:
                refuse_other_tokenizer(staging / name, beside.tokenizer, trust_remote_code=request.task.model.trust_remote_code)
            write_certificate(staging / name, request, beside.origins, base=base, proof=proof.told() if proof is not None else {})
            with given_key() as key:
                if key is not None:
                    sign_folder(staging / name, key)
            is_adapter = name == MODEL and request.task.method.adapter is not None
            store.commit_folder(staging / name, name, extra={ORIGIN: origin} if is_adapter else None)


def _base(request: TrainRequest, start: str, **attention: str) -> Any:
    task, precision = request.task, request.plan.precision
    return load_base(
        start,
        dtype=DTYPES[precision],
        revision=task.model.revision,
        trust=task.model.trust_remote_code,
        quantization=quantization(task.method.qlora, precision),
        **attention,
    )


def _prove_adapter(proof: SavedProof, trainer: SteppedTrainer, request: TrainRequest, weights: Any, start: str, staging: Path) -> None:
    """Prove the saved adapter on its base, then merge both, and prove the merged model. The base is loaded once."""
    parameters = dict(trainer.model.named_parameters())
    trained = {name: (weights or parameters)[name] for name, weight in parameters.items() if weight.requires_grad}
    adapted = proof.prove_adapter(staging / MODEL, _base(request, start, **proof.attention), trainer.model, trained)
    if request.task.method.adapter is not None and request.task.method.adapter.merge:
        logits = proof.logits_of(adapted)
        merged = merge(adapted, staging / MERGED)
        proof.prove_merged(staging / MERGED, merged, logits)


def _dress(folder: Path, beside: Beside) -> None:
    """Write the tokenizer (with its chat template), end tokens and model card beside the weights."""
    beside.tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(beside.card)
    if not (folder / "adapter_config.json").exists() or beside.turn_end is not None:
        write_end_tokens(folder, beside.tokenizer, beside.turn_end)
