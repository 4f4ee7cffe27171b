"""Conversion of a checkpoint of any layout to weights, or an adapter, for `from_pretrained`, PEFT and vLLM.

Layer by layer, tensors are read, converted to the names and form on disk, and appended to the current file. Memory holds the tensors of one
file and one layer. transformers keeps some weights in another form than on disk (the experts of a layer as one tensor). Its own reverse
conversion is applied, layer by layer if that gives the same result as for the whole model.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tuneyard.api import BadInput, StorageError
from tuneyard.storage import MANIFEST, Manifest, NotFound, Store, is_local, local_path
from tuneyard.storage.errors import os_errors
from tuneyard.storage.filling import fill, refuse_filled
from tuneyard.storage.folders import Progress, in_parallel
from tuneyard.storage.staging import staging
from tuneyard.storage.store import OnProgress
from tuneyard.training.checkpoint.catalogue import commit_of
from tuneyard.training.checkpoint.layout import FOLDER, MODEL, RankIndex, inside
from tuneyard.training.checkpoint.model_files import UNTRAINED
from tuneyard.training.checkpoint.pieces import WEIGHT
from tuneyard.training.checkpoint.reader import Reader
from tuneyard.training.checkpoint.shards import sha256_of, size_of, write_shard
from tuneyard.training.checkpoint.stored import read_indices, read_manifest

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_DEFAULT_DTYPES = {"bf16": "bf16", "fp16": "bf16", "fp32": "fp32"}
"""Dtype of the converted weights, by the precision of the run."""
_METADATA = {"format": "pt"}

Tensors = dict[str, torch.Tensor]
Revert = Callable[[Tensors], Tensors]
"""Converts weights from their form in memory to their form on disk."""


@dataclass(frozen=True)
class Converted:
    """Result of a conversion. `files`: those with weights."""

    uri: str
    step: int
    dtype: str
    files: tuple[str, ...]
    size_bytes: int


def convert(
    store: Store,
    target: str,
    *,
    step: int | None = None,
    max_shard_bytes: int,
    dtype: str | None = None,
    on_progress: OnProgress | None = None,
) -> Converted:
    """Write the weights of the checkpoint of `step`, or of the newest, to the folder `target`, completely or not at all.

    `dtype`: bf16, fp16 or fp32; else bf16, or fp32 if that was the run's precision. A checkpoint on remote storage is first copied to the
    folder for temporary files. Raises BadInput if `target` is not empty, StorageError if the checkpoint is damaged.
    """
    refuse_filled(target)
    commit = commit_of(store, step)
    manifest = read_manifest(store, commit)
    indices = read_indices(store, commit, manifest)
    precision = manifest.extra.get("plan", {}).get("precision", "fp32")
    dtype = dtype or _DEFAULT_DTYPES[precision]
    with tempfile.TemporaryDirectory(prefix="tuneyard-convert-") as scratch, staging(target, Path(scratch)) as staged:
        model = Path(scratch) / "model"
        about = _model_files(store, model)
        folder = bring(store, commit.name, manifest, indices, Path(scratch) / "checkpoint", on_progress)
        source = _Source(folder, indices)
        with os_errors(str(staged), "write"):
            staged.mkdir(parents=True)
            if about["adapter"]:
                files = _write_adapter(source, about["names"], DTYPES[dtype], staged)
            else:
                files = _write_weights(source, model, about["own_code"], DTYPES[dtype], max_shard_bytes, staged)
            _dress(staged, model, dtype)
            extra = {"checkpoint": store.url(commit.name), "step": commit.step, "sha256": commit.sha256, "dtype": dtype}
            size_bytes = sum((staged / file).stat().st_size for file in files)
        fill(target, staged, extra, move=True)
    return Converted(target, commit.step, dtype, tuple(files), size_bytes)


def _model_files(store: Store, folder: Path) -> Mapping[str, Any]:
    try:
        return store.download_folder(MODEL, folder).extra
    except NotFound:
        raise BadInput(
            f"{store.url(MODEL)} is missing: the run was made by an earlier version of Tuneyard, or stopped before it began to train",
            "run it again with --resume: the next attempt writes it",
        ) from None


def bring(
    store: Store, checkpoint: str, manifest: Manifest, indices: Sequence[RankIndex], scratch: Path, on_progress: OnProgress | None
) -> Path:
    """A local folder with the tensors of a checkpoint, all with checked hashes."""
    local = is_local(store.uri)
    folder = local_path(store.uri) / checkpoint if local else scratch
    wanted = [file for index in indices for file in index.files]
    hashes = {file.path: file.sha256 for file in manifest.files}
    progress = Progress(on_progress, sum(file.size_bytes for file in wanted))

    def check(path: str) -> None:
        uri = store.url(inside(checkpoint, path))
        with os_errors(uri, "read"):
            if not local:
                store.get_file(inside(checkpoint, path), folder / path)
            if sha256_of(folder / path) != hashes[path]:
                raise StorageError(f"{uri} is damaged", "take another step: `tuneyard checkpoints verify` says which are whole")
            progress.add((folder / path).stat().st_size)

    in_parallel(check, [file.path for file in wanted])
    return folder


class _Source:
    """Weights of a checkpoint, by the model's own names. Files are mapped into memory only during reads."""

    def __init__(self, folder: Path, indices: Sequence[RankIndex]) -> None:
        self._folder = folder
        self._indices = indices
        self.shapes = {piece.name: piece.shape for index in indices for piece in index.pieces}

    def parts(self, groups: Sequence[Sequence[str]]) -> Iterator[Reader]:
        """A reader for each group of names, in turn."""
        number_of = {name: number for number, names in enumerate(groups) for name in names}
        for_group: list[list[RankIndex]] = [[] for _ in groups]
        for index in self._indices:
            pieces: dict[int, list[Any]] = {}
            for piece in index.pieces:
                if piece.name in number_of:
                    pieces.setdefault(number_of[piece.name], []).append(piece)
            for number, own in pieces.items():
                for_group[number].append(replace(index, pieces=tuple(own), opaque=(), random={}))
        for own_indices in for_group:
            yield Reader(self._folder, own_indices)


def _write_adapter(source: _Source, names: Mapping[str, str], dtype: torch.dtype, folder: Path) -> list[str]:
    missing = set(source.shapes) ^ set(names)
    if missing:
        raise _other_model(missing)
    (reader,) = source.parts([list(names)])
    tensors = {saved: reader.whole(name, WEIGHT).to(dtype) for name, saved in names.items()}
    return [write_shard(folder / "adapter_model.safetensors", dict(sorted(tensors.items())), _METADATA).path]


def _write_weights(source: _Source, model_folder: Path, own_code: bool, dtype: torch.dtype, max_bytes: int, folder: Path) -> list[str]:
    """All files of a model's weights, with their index if there are several."""
    untrained = _untrained(model_folder)
    shapes = {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in source.shapes.items()}
    shapes |= {name: tensor.to("meta") for name, tensor in untrained.items()}
    skeleton = None if own_code else _skeleton(model_folder)
    revert = _as_it_is
    if skeleton is not None:
        missing = {name for name, _ in skeleton.named_parameters()} - set(shapes)
        if missing:
            raise _other_model(missing)
        revert = partial(_revert, skeleton)
    groups, saved = _groups(shapes, revert)
    files = shard_names(_sizes_of_shards([size_of(tensor) for tensor in saved.values()], max_bytes))
    shard: Tensors = {}
    place = dict(zip(saved, files, strict=True))
    done: list[str] = []
    for name, tensor in _stream(source, groups, untrained, dtype, revert):
        file = place[name]
        if done and done[-1] != file:
            write_shard(folder / done[-1], shard, _METADATA)
            shard = {}
        if not done or done[-1] != file:
            done.append(file)
        shard[name] = tensor
    write_shard(folder / done[-1], shard, _METADATA)
    if len(done) > 1:
        total = {"total_parameters": sum(t.numel() for t in saved.values()), "total_size": sum(size_of(t) for t in saved.values())}
        index = {"metadata": total, "weight_map": place}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return done


def _stream(
    source: _Source, groups: Sequence[Sequence[str]], untrained: Tensors, dtype: torch.dtype, revert: Revert
) -> Iterator[tuple[str, torch.Tensor]]:
    def layer(names: Sequence[str], reader: Reader) -> Tensors:
        """In a function of its own: this generator then holds no reference to a layer while the next one is read."""
        return revert({name: untrained[name] if name in untrained else reader.whole(name, WEIGHT).to(dtype) for name in names})

    for names, reader in zip(groups, source.parts(groups), strict=True):
        yield from layer(names, reader).items()


def _sizes_of_shards(sizes: Sequence[int], max_bytes: int) -> list[int]:
    """Number of tensors in each file, in order. A tensor larger than a file has its own file."""
    counts, room = [0], max_bytes
    for size in sizes:
        if counts[-1] and size > room:
            counts.append(0)
            room = max_bytes
        counts[-1] += 1
        room -= size
    return counts


def shard_names(counts: Sequence[int]) -> list[str]:
    """The file of each tensor, by Hugging Face's convention. `counts`: number of tensors in each file."""
    if len(counts) == 1:
        return ["model.safetensors"] * counts[0]
    return [f"model-{number:05d}-of-{len(counts):05d}.safetensors" for number, count in enumerate(counts, start=1) for _ in range(count)]


def _groups(tensors: Tensors, revert: Revert) -> tuple[list[list[str]], Tensors]:
    """Groups of names to convert together, layer by layer in the model's order, with the result; one group if layers are not
    independent.
    """
    by_layer: dict[str, list[str]] = {}
    for name in sorted(tensors, key=_natural):
        match = re.match(r".*?\.\d+(?=\.)", name)
        by_layer.setdefault(match[0] if match else name, []).append(name)
    groups = list(by_layer.values())
    at_once = revert(dict(tensors))
    layered = {name: tensor for group in groups for name, tensor in revert({name: tensors[name] for name in group}).items()}
    if {name: tensor.shape for name, tensor in layered.items()} == {name: tensor.shape for name, tensor in at_once.items()}:
        return groups, layered
    return [[name for group in groups for name in group]], at_once


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Sort key that puts layers.2 before layers.10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in name.split(".")]


def _as_it_is(tensors: Tensors) -> Tensors:
    return tensors


def _revert(model: Any, tensors: Tensors) -> Tensors:
    from transformers.core_model_loading import revert_weight_conversion

    converted: Tensors = revert_weight_conversion(model, tensors)
    return converted


def _skeleton(folder: Path) -> Any:
    """The model without weights, to look up transformers' conversions."""
    from transformers import AutoConfig, AutoModelForCausalLM

    logging.getLogger("transformers").setLevel(logging.ERROR)
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def _untrained(folder: Path) -> Tensors:
    from safetensors.torch import load_file

    return load_file(folder / UNTRAINED) if (folder / UNTRAINED).exists() else {}


def _dress(folder: Path, model: Path, dtype: str) -> None:
    """Configuration and tokenizer beside the weights."""
    for path in model.iterdir():
        if path.name not in (UNTRAINED, MANIFEST):
            shutil.copy(path, folder)
    config = folder / "config.json"
    if config.exists():
        values = json.loads(config.read_text())
        config.write_text(json.dumps({**values, "dtype": str(DTYPES[dtype]).removeprefix("torch.")}, indent=2, sort_keys=True) + "\n")


def _other_model(names: set[str]) -> StorageError:
    some = ", ".join(sorted(names)[:3])
    return StorageError(
        f"the checkpoint and {FOLDER}/model are not of the same model: {len(names)} weights are in one only ({some})",
        "run the task again with --resume: its next attempt writes them anew",
    )
