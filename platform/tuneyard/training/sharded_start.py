"""The starting weights of a tensor-parallel task if no rank needs all of them: each rank reads its own parts of the files.

This works for full training from a folder of safetensors. In other cases the weights are loaded whole, and cut afterwards: an adapter is
drawn over whole weights, a larger vocabulary gets rows near the mean of all, and the language part of a model for images has other names in
its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from tuneyard.catalog import refuse_encoders
from tuneyard.parallel import Shards, TensorParallelPlan, load_sharded, shard_model
from tuneyard.training.distributed import World
from tuneyard.training.models import attention_name, load_dtype
from tuneyard.training.request import TrainRequest
from tuneyard.training.tensor_parallel import mark
from tuneyard.training.tensor_plan import ProvenPlan, tensor_plan
from tuneyard.training.vocabulary import tokens_of


@dataclass(frozen=True)
class CutModel:
    """This rank's parts of a model."""

    model: Any
    plan: TensorParallelPlan
    shards: Shards


def load_parts(request: TrainRequest, start: str, tokenizer: Any, world: World, proven: ProvenPlan | None) -> CutModel | None:
    """This rank's parts of the model in `start`; None if the whole model has to be loaded. Collective in the tensor group. `proven`: the
    plan of that model.

    Raises BadInput for a model that cannot be cut, and for files that do not hold it.
    """
    if not _can_be_read_in_parts(request, start):
        return None
    config = AutoConfig.from_pretrained(start)
    refuse_encoders(config.to_dict())
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=load_dtype(request), attn_implementation=attention_name(request.plan.attention)
        )
    needs_rows = tokens_of(tokenizer) > model.get_input_embeddings().num_embeddings
    if needs_rows or (config.architectures or [None])[0] != type(model).__name__:
        return None
    plan = tensor_plan(model, request.plan, proven)
    if plan is None:
        return None
    shards = shard_model(model, plan, world.tensor_group)
    load_sharded(model, shards, start)
    mark(model, shards)
    if (Path(start) / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(start)
    model.config.use_cache = False
    return CutModel(model, plan, shards)


def _can_be_read_in_parts(request: TrainRequest, start: str) -> bool:
    own_code = request.task.model.trust_remote_code
    is_full = request.task.method.adapter is None
    return request.plan.tensor_parallel > 1 and is_full and not own_code and any(Path(start).glob("model*.safetensors"))
