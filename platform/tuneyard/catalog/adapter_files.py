"""Whether the weights of a LoRA adapter are those that its configuration names, and all of them. Reads headers, and the small weights.

Libraries take what fits and leave out the rest: PEFT starts missing weights anew with a warning in a log, and vLLM ignores modules that the
configuration does not name.
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
_PREFIX = "base_model.model."
_LOW_RANK = re.compile(r"(?P<module>.+)\.lora_(?:embedding_)?(?P<part>[AB])(?:\.weight)?$")
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")
_PART = ("layers_to_transform", "layers_pattern", "exclude_modules", "target_parameters")
"""Settings with which an adapter need not have weights for each module of a target."""
_EXPONENT = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}
"""Type of the words, and the bits that are all set in NaN and infinity."""
_ADVICE = "save the adapter again, or copy its folder whole"
Header = Mapping[str, Mapping[str, Any]]


def check_adapter_files(folder: Path, base: Path | None = None, *, finite: bool = True) -> None:
    """Raises BadInput where the weights of a LoRA adapter are missing, damaged or not finite, or differ from its configuration. `base`: the
    folder of the base model; with it, layers without their weights are found. `finite`: read the weights too, and not their header alone.

    Other kinds of adapters, and pickled weights, are left to their readers.
    """
    config = adapter_config(folder)
    if str(config.get("peft_type")).upper() != "LORA" or not (folder / WEIGHTS).is_file():
        if not (folder / WEIGHTS).is_file() and not (folder / PICKLED).is_file():
            raise BadInput(f"the adapter {folder} has no weights: no {WEIGHTS}", _ADVICE)
        return
    header = safetensors_header(folder / WEIGHTS)
    parts: dict[str, dict[str, Sequence[int]]] = defaultdict(dict)
    for name, about in header.items():
        if match := _LOW_RANK.match(name):
            parts[match["module"].removeprefix(_PREFIX)][match["part"]] = about["shape"]
    _check_ranks(folder, config, parts)
    _check_targets(folder, config, parts)
    if base is not None and not any(config.get(name) for name in _PART):
        _check_layers(folder, list(parts), base)
    if finite:
        _check_finite(folder / WEIGHTS, header)


def adapter_config(folder: Path) -> dict[str, Any]:
    """adapter_config.json of a LoRA adapter, or of another kind. Raises BadInput if it cannot be read, or has no rank."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder} holds no adapter: {CONFIG} cannot be read ({error})", "give a folder that PEFT saved") from error
    if not isinstance(config, dict):
        raise BadInput(f"{folder} holds no adapter: {CONFIG} is not an object", "give a folder that PEFT saved")
    rank, patterns = config.get("r"), config.get("rank_pattern") or {}
    if str(config.get("peft_type")).upper() == "LORA":
        wrong = [] if _is_rank(rank) else [f"r is {rank!r}"]
        if not isinstance(patterns, dict) or not all(map(_is_rank, patterns.values())):
            wrong.append(f"rank_pattern is {patterns!r}"[:100])
        if wrong:
            raise BadInput(f"{folder / CONFIG}: {', '.join(wrong)}, not a rank", _ADVICE)
    return config


def _is_rank(value: Any) -> bool:
    return type(value) is int and value > 0


def safetensors_header(file: Path, advice: str = _ADVICE) -> Header:
    """Names, dtypes, shapes and places of the tensors of a safetensors file. Raises BadInput for a damaged or cut file."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > file.stat().st_size:
                raise ValueError("its header is longer than the file")
            header = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            end = 8 + length + max((about["data_offsets"][1] for about in header.values()), default=0)
            if end > file.stat().st_size:
                raise ValueError(f"it should have {end:,} bytes, and has {file.stat().st_size:,}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise BadInput(f"{file} is damaged: {error}", advice) from error
    return dict(header)


def _check_ranks(folder: Path, config: Mapping[str, Any], parts: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
    patterns, of_parameters = config.get("rank_pattern") or {}, bool(config.get("target_parameters"))
    for module, shapes in parts.items():
        if lone := {"A", "B"} - shapes.keys():
            raise BadInput(f"the adapter {folder} lacks lora_{min(lone)} of {module}", _ADVICE)
        rank = next((each for key, each in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), config["r"])
        found = shapes["A"][0]
        if found != rank and not of_parameters:
            raise BadInput(f"the adapter {folder} says rank {rank} for {module}, and its weights have rank {found}", _ADVICE)


def _check_targets(folder: Path, config: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    targets = config.get("target_modules")
    if not isinstance(targets, list) or config.get("target_parameters"):
        return  # a pattern
    unnamed = [module for module in parts if not any(module == each or module.endswith(f".{each}") for each in targets)]
    empty = [each for each in targets if not any(module == each or module.endswith(f".{each}") for module in parts)]
    if unnamed or empty:
        words = [f"weights of {unnamed[0]}, which target_modules does not name"] if unnamed else []
        words += [f"no weights of {', '.join(empty[:3])}, which target_modules names"] if empty else []
        raise BadInput(f"the adapter {folder} has {'; '.join(words)}", _ADVICE)


def _check_layers(folder: Path, modules: Sequence[str], base: Path) -> None:
    """A module of some layers has weights in each layer in which the base has that module. Modules that the base's files name otherwise are
    not compared."""
    layers = _layers(base)
    named = {name.removesuffix(".weight") for name in _names(base) if not (at := _LAYER.search(name)) or int(at[0]) < layers}
    adapted: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        adapted[_LAYER.sub("*", module)].add(module)
    for pattern, found in adapted.items():
        alike = {name for name in named if _LAYER.sub("*", name) == pattern}
        missing = sorted(alike - found)
        if missing and found <= alike:
            raise BadInput(
                f"the adapter {folder} lacks the weights of {len(missing)} of {len(alike)} modules, such as {missing[0]}", _ADVICE
            )


def _layers(base: Path) -> float:
    """Layers of the base model. Files of some models hold further ones, for predicting several tokens, which are not loaded."""
    with suppress(OSError, ValueError, AttributeError, TypeError):
        config = json.loads((base / "config.json").read_text())
        count = config.get("num_hidden_layers") or config.get("n_layer") or (config.get("text_config") or {}).get("num_hidden_layers")
        return float("inf") if count is None else float(count)
    return float("inf")


def _names(base: Path) -> Iterator[str]:
    """Names of the weights of a base model; nothing where its files cannot be read."""
    for file in sorted(base.glob("*.safetensors")):
        with suppress(BadInput):
            yield from safetensors_header(file)


def _check_finite(file: Path, header: Header) -> None:
    import numpy as np  # late: a client plans without it

    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        for name, about in header.items():
            if about["dtype"] not in _EXPONENT:
                continue
            kind, bits = _EXPONENT[about["dtype"]]
            start, stop = about["data_offsets"]
            stream.seek(8 + length + start)
            words = np.frombuffer(stream.read(stop - start), kind)
            if bool(((words & bits) == bits).any()):
                raise BadInput(f"the adapter has NaN or infinity in {name} of {file}", "train it again; a lower learning rate often helps")
