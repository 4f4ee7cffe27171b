"""What autograd keeps for backward in the layers of a model that is cut over tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tests.ranks.forks import Call, called
from tests.ranks.groups import group, made_on_first


def saved_bytes(shape: Mapping[str, Any], tokens: int, degree: int, *, sequence: bool) -> int:
    """Bytes on the fullest of `degree` ranks, for one row of `tokens` in fp32; each storage once, weights left out."""
    most: int = max(called([Call(_saved, (dict(shape), tokens, degree, sequence), place) for place in group(degree, per_machine=degree)]))
    return most


def _saved(shape: dict[str, Any], tokens: int, degree: int, sequence: bool) -> int:
    import torch.distributed as dist
    from transformers import AutoConfig, AutoModelForCausalLM

    from tuneyard.parallel import explain_tensor_parallel, shard_model

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", use_cache=False, **shape))
    if degree > 1:
        shard_model(model, made_on_first(lambda: explain_tensor_parallel(model, degree, sequence=sequence)), dist.group.WORLD)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model(torch.randint(0, shape["vocab_size"], (1, tokens)))
    dist.destroy_process_group()
    return sum(size for size, _ in kept.values())
