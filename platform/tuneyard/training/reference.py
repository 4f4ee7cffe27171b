"""The reference of full training on preference pairs: a second copy of the start, cut over ranks as the model is."""

from __future__ import annotations

from typing import Any

from tuneyard.training.distributed import World
from tuneyard.training.models import load_model
from tuneyard.training.request import TrainRequest
from tuneyard.training.sharded_start import load_parts
from tuneyard.training.tensor_parallel import keep_logits, shard
from tuneyard.training.tensor_plan import ProvenPlan, tensor_plan
from tuneyard.training.vocabulary import fit_embedding


def load_reference(request: TrainRequest, start: str, tokenizer: Any, world: World, proven: ProvenPlan | None) -> Any:
    """The copy. Collective in the tensor group, and over all ranks with ZeRO 3. `proven`: the tensor-parallel plan of the model."""
    parts = load_parts(request, start, tokenizer, world, proven)
    if parts is not None:
        keep_logits(parts.model, parts.plan, parts.shards)
        return parts.model
    reference = load_model(request, start, world)
    fit_embedding(reference, tokenizer, request)
    cuts = tensor_plan(reference, request.plan, proven)
    shards = shard(reference, cuts, world)
    if cuts is not None and shards is not None:
        keep_logits(reference, cuts, shards)
    return reference
