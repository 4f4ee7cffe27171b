"""Files that `convert` needs beside a checkpoint's weights, stored once per output: configuration, tokenizer, and untrained tensors.

For an adapter the manifest also has the names under which PEFT saves its weights: only the live model gives them for certain.
"""

from __future__ import annotations

import copy
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers.dynamic_module_utils import custom_object_save

from tuneyard.parallel import Shards
from tuneyard.storage import NotFound, Store, open_store
from tuneyard.training.checkpoint.layout import MODEL
from tuneyard.training.checkpoint.shards import write_shard
from tuneyard.training.distributed import World
from tuneyard.training.first_rank import write_on_first
from tuneyard.training.generation_settings import write_end_tokens, write_settings
from tuneyard.training.request import TrainRequest

UNTRAINED = "untrained.safetensors"
"""Buffers, and parameters that the model never trains. The file exists only if the model has some."""
FORMAT = 1


def save_model_files(
    model: Any, tokenizer: Any, request: TrainRequest, world: World, *, turn_end: int | None = None, shards: Shards | None = None
) -> None:
    """Store the files below the task's output, unless they exist. `turn_end`: see `save_artifacts`; `shards`: of a tensor-parallel model.

    Collective. Raises StorageError on every rank if rank 0 could not write.
    """
    frozen = [] if _is_adapter(request) else [(name, value) for name, value in model.named_parameters() if not value.requires_grad]
    if shards is not None:
        frozen = [(name, shards.gather(name, value)) for name, value in frozen]
    with _gathered([value for _, value in frozen]):
        write_on_first(world, lambda: _save(model, tokenizer, request, dict(frozen), turn_end), what="the model's configuration")


def _is_adapter(request: TrainRequest) -> bool:
    return request.task.method.adapter is not None


def _gathered(parameters: list[Any]) -> Any:
    """Whole parameters on the ranks, if ZeRO-3 has cut them."""
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(parameters)


def _save(model: Any, tokenizer: Any, request: TrainRequest, frozen: dict[str, Any], turn_end: int | None) -> None:
    store = open_store(request.output)
    extra = {
        "model_files": FORMAT,
        "model": request.model_uri,
        "method": request.task.method.model_dump(mode="json", exclude_none=True),
        "adapter": _is_adapter(request),
        "own_code": not _is_adapter(request) and model.is_custom_code(),
        "names": adapter_names(model) if _is_adapter(request) else {},
    }
    extra = json.loads(json.dumps(extra))
    if _stored_extra(store) == extra:
        return
    folder = Path(request.scratch) / "model-files"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if _is_adapter(request):
        config = copy.deepcopy(model.peft_config["default"])
        config.inference_mode = True
        config.save_pretrained(str(folder))
    else:
        _write_model(model, folder, frozen)
    tokenizer.save_pretrained(folder)
    if turn_end is not None:
        write_end_tokens(folder, tokenizer, turn_end)
    store.commit_folder(folder, MODEL, extra=extra)


def _stored_extra(store: Store) -> Any:
    try:
        return store.manifest(MODEL).extra
    except NotFound:
        return None


def _write_model(model: Any, folder: Path, frozen: dict[str, Any]) -> None:
    config = copy.deepcopy(model.config)
    config.use_cache = True
    config.architectures = [type(model).__name__]
    if model.is_remote_code():
        custom_object_save(model, folder, config=config)
    config.save_pretrained(folder)
    if model.can_generate():
        write_settings(model, folder)
    untrained = {name: value.detach().to("cpu", copy=True) for name, value in {**_buffers(model), **frozen}.items()}
    if untrained:
        write_shard(folder / UNTRAINED, untrained)


def _buffers(model: Any) -> dict[str, torch.Tensor]:
    """Buffers that belong to the saved model."""
    return {
        f"{path}.{name}" if path else name: buffer
        for path, module in model.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    }


def adapter_names(model: Any) -> dict[str, str]:
    """For each trained parameter, its name in the saved adapter. PEFT is given the parameters, and returns its names for them.

    Only names and identities are compared: with ZeRO-3 nothing is gathered.
    """
    from peft import get_peft_model_state_dict

    trained = {id(value): name for name, value in model.named_parameters() if value.requires_grad}
    everything = dict(model.named_parameters(remove_duplicate=False))
    saved = get_peft_model_state_dict(model, everything, save_embedding_layers=False)
    return {trained[id(value)]: name for name, value in saved.items() if id(value) in trained}
