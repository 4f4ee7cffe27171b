"""Loads weights of a Hugging Face folder into a sharded model, without a full copy of the model in any process.

transformers' own loader renames and converts. Here it gets less to read, and cuts as its last step:

- A weight with the same form in file and model is a slice: only this rank's boxes of it are read.
- A weight that is assembled from others (the experts of a layer in one tensor) is made whole, one at a time, and cut before it is set.
- Buffers that are in no file are made as by `from_pretrained`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel.applied import Shards

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ONE_AT_A_TIME = "HF_DEACTIVATE_ASYNC_LOAD"


def load_sharded(model: nn.Module, shards: Shards, folder: str | Path) -> None:
    """Fill a sharded transformers model on the meta device from the safetensors of `folder`, in the model's dtype.

    Peak memory is this rank's shards and one whole converted weight. Ties are restored.

    Raises:
        BadInput: no safetensors in the folder; a weight that the folder lacks, or has in another shape.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter
    from transformers.modeling_utils import LoadStateDictConfig

    # Typed Any: these are transformers' internals.
    loaded: Any = model
    mapping = get_model_conversion_mapping(loaded, None, None)
    dtype = next(weight.dtype for weight in model.parameters() if weight.is_floating_point())
    settings = LoadStateDictConfig(
        pretrained_model_name_or_path=str(folder), dtype=dtype, dtype_plan=loaded._get_dtype_plan(dtype), weight_mapping=mapping
    )
    with _opened(folder) as found, _one_at_a_time():
        own = _own_slices(loaded, shards, found, mapping)
        with _cut_afterwards([entry for entry in mapping if isinstance(entry, WeightConverter)], shards):
            info, _ = _load(loaded, own, settings)
        _check(info, loaded, folder)
        loaded._finalize_model_loading(loaded, settings, info)


@contextlib.contextmanager
def _cut_afterwards(converters: Sequence[Any], shards: Shards) -> Iterator[None]:
    """Conversions with a cut at the end. The model keeps them for the reverse conversion of whole weights, so they are restored
    afterwards.
    """
    was = [converter.operations for converter in converters]
    for converter in converters:
        converter.operations = [*converter.operations, _cut_last(shards)]
    try:
        yield
    finally:
        for converter, operations in zip(converters, was, strict=True):
            converter.operations = operations


def _load(model: Any, own: Mapping[str, Any], settings: Any) -> Any:
    from transformers.core_model_loading import convert_and_load_state_dict_in_model

    return convert_and_load_state_dict_in_model(model=model, state_dict=dict(own), load_config=settings)


@contextlib.contextmanager
def _opened(folder: str | Path) -> Iterator[dict[str, Any]]:
    """Name in the files -> a slice that is read when it is indexed. Files are read, not mapped: mapped pages count as memory."""
    from safetensors import SafetensorError, safe_open

    with contextlib.ExitStack() as stack:
        found = {}
        for path in _files(Path(folder)):
            try:
                file = stack.enter_context(safe_open(path, framework="pt", device="cpu", backend="pread"))
            except SafetensorError as error:
                raise BadInput(f"{path} is no whole safetensors file: {error}", "copy it again, or save the model again") from error
            found.update({name: file.get_slice(name) for name in file.keys()})  # noqa: SIM118  no mapping
        yield found


def _files(folder: Path) -> list[Path]:
    if (folder / _INDEX).is_file():
        names = json.loads((folder / _INDEX).read_text())["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    raise BadInput(f"{folder} has no {_WEIGHTS}", "save the model with save_pretrained, which writes safetensors")


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Disable transformers' threads, which read ahead of conversions."""
    was = os.environ.get(_ONE_AT_A_TIME)
    os.environ[_ONE_AT_A_TIME] = "1"
    try:
        yield
    finally:
        if was is None:
            del os.environ[_ONE_AT_A_TIME]
        else:
            os.environ[_ONE_AT_A_TIME] = was


@dataclass(frozen=True)
class _OwnSlice:
    """A tensor of a file; `[...]` reads this rank's share of it."""

    source: Any
    name: str
    shards: Shards

    def get_shape(self) -> list[int]:
        shape: list[int] = self.source.get_shape()
        return shape

    def get_dtype(self) -> str:
        dtype: str = self.source.get_dtype()
        return dtype

    def __getitem__(self, _: Any) -> torch.Tensor:
        share = self.shards[self.name]
        if share.dimension is None:
            whole: torch.Tensor = self.source[...]
            return whole
        boxes = [tuple(slice(first, first + length) for first, length in box) for box in self.shards.boxes(self.name)]
        parts = [self.source[box] for box in boxes]
        return torch.cat(parts, share.dimension) if len(parts) > 1 else parts[0].contiguous()


def _own_slices(model: Any, shards: Shards, found: Mapping[str, Any], mapping: list[Any]) -> dict[str, Any]:
    """`found`, with slices of this rank's share for weights that are only renamed."""
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    names = model.state_dict()
    own = dict(found)
    for key in found:
        renamed, converted = rename_source_key(key, renamings, converters, model.base_model_prefix, names)
        if renamed not in names and key in names:  # as the loader does
            renamed, converted = rename_source_key(key, [], [], model.base_model_prefix, names)
        if converted is None and renamed in shards.shares:
            _check_shape(renamed, found[key].get_shape(), shards)
            own[key] = _OwnSlice(found[key], renamed, shards)
    return own


def _cut_last(shards: Shards) -> Any:
    """The last operation of a conversion: cuts the result to this rank's share."""
    from transformers.core_model_loading import ConversionOps

    class Cut(ConversionOps):
        def __deepcopy__(self, memo: dict[int, Any]) -> Cut:
            return self

        def convert(self, input_dict: dict[str, Any], *_: Any, **settings: Any) -> Any:
            layer: str = settings["full_layer_name"].replace("*.", "0.")
            return {target: self._cut(_full_name(layer, target, input_dict), made) for target, made in input_dict.items()}

        def _cut(self, name: str, made: Any) -> Any:
            whole = made[0] if isinstance(made, list) else made
            if name not in shards.shares:
                return made
            _check_shape(name, whole.shape, shards)
            return shards.cut(name, whole)

    return Cut()


def _full_name(layer: str, target: str, made: Mapping[str, Any]) -> str:
    """The parameter of a conversion's target pattern: the pattern's place in the name of the first one, as in the loader."""
    prefix, found, suffix = next((layer.partition(each) for each in made if each in layer), ("", "", ""))
    return prefix + target + suffix if found else target


def _check_shape(name: str, shape: Sequence[int], shards: Shards) -> None:
    """Raises for a weight of another shape: its share may have the expected size, and would be set silently."""
    if tuple(shape) != shards[name].shape:
        raise BadInput(
            f"{name} has the shape {tuple(shape)} in the files, where the model has {shards[name].shape}",
            "load a model by the config.json that was saved with it",
        )


def _check(info: Any, model: Any, folder: str | Path) -> None:
    if info.conversion_errors:
        name, words = next(iter(info.conversion_errors.items()))
        raise BadInput(
            f"{name} of {folder} cannot be converted: {words.strip().splitlines()[-1]}", "save the model again with save_pretrained"
        )
    if info.mismatched_keys:
        name, there, here = sorted(info.mismatched_keys)[0]
        raise BadInput(
            f"{name} of {folder} has the shape {tuple(there)}, where {tuple(here)} is expected", "check that config.json is its own"
        )
    ignored = set(getattr(model, "all_tied_weights_keys", {}))
    if lacking := sorted(info.missing_keys - ignored):
        raise BadInput(
            f"{folder} lacks {len(lacking)} weights, which would start at random: {', '.join(lacking[:3])}",
            "name a model that was saved with its language head (AutoModelForCausalLM), or set model.init to scratch",
        )


__all__ = ["load_sharded"]
