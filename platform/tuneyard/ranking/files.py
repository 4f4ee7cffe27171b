"""Rankers in folders: `model.safetensors` beside `ranker.json`; and exported programs for serving."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tuneyard.api import BadInput
from tuneyard.ranking.config import RankerConfig
from tuneyard.ranking.folder import CONFIG, WEIGHTS, read_config, version_of
from tuneyard.ranking.ranker import Ranker
from tuneyard.storage import MANIFEST, Manifest
from tuneyard.storage.marks import hash_of

_TOLERANCE = 1e-5


def save(ranker: Ranker, folder: str | Path) -> None:
    """Write a ranker to a folder, which is created."""
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    for old in [*where.glob("table-*.safetensors"), where / MANIFEST]:
        old.unlink(missing_ok=True)
    write_ranker(where, ranker.config, ranker.state_dict())


def write_table(folder: Path, number: int, name: str, table: torch.Tensor) -> None:
    """Write the `number`-th of several weights to its own file: tables are written one at a time, never all from memory."""
    from safetensors.torch import save_file

    (folder / CONFIG).unlink(missing_ok=True)
    save_file({name: table.detach().contiguous()}, folder / f"table-{number:05}.safetensors")


def write_ranker(folder: Path, config: RankerConfig, weights: Mapping[str, torch.Tensor]) -> None:
    """Write the weights that are in no other file, and the config last: a folder with a config is complete."""
    from safetensors.torch import save_file

    (folder / CONFIG).unlink(missing_ok=True)
    save_file({name: weight.detach().contiguous() for name, weight in weights.items()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps({"version": version_of(config), **config.to_dict()}, indent=1) + "\n")


def load(folder: str | Path) -> Ranker:
    """The ranker of a folder, in evaluation mode. Raises BadInput for a folder without a ranker, another version, weights that differ from
    the config, or files that differ from their manifest.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    where = Path(folder)
    config = read_config(where)
    _check_committed(where)
    try:
        weights = load_file(where / WEIGHTS)
        for table in sorted(where.glob("table-*.safetensors")):
            weights |= load_file(table)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{where} holds no ranker: {error}", f"name a folder with {CONFIG} and {WEIGHTS}") from error
    with torch.device("meta"):
        ranker = config.build()
    expected = {name: tuple(value.shape) for name, value in ranker.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if expected != found:
        names = sorted(name for name in {**expected, **found} if expected.get(name) != found.get(name))
        detail = f"{names[0]} is {found.get(names[0], 'missing')} and not {expected.get(names[0], 'asked for')}"
        raise BadInput(f"the weights in {where} are those of another ranker: {detail}", f"keep {CONFIG} and {WEIGHTS} together")
    ranker.load_state_dict({name: value.to(torch.float32, copy=True) for name, value in weights.items()}, assign=True)
    ranker.eval()
    return ranker


def _check_committed(folder: Path) -> None:
    """Raises BadInput if there is a manifest beside the files, and one of them differs from it."""
    if not (folder / MANIFEST).exists():
        return
    for file in Manifest.from_json((folder / MANIFEST).read_bytes()).files:
        path = folder / file.path
        if not path.is_file() or path.stat().st_size != file.size_bytes or hash_of(path) != file.sha256:
            raise BadInput(f"{path} is damaged or missing", "copy the folder again, or train the ranker again")


def export(ranker: Ranker, batch: Mapping[str, torch.Tensor]) -> Any:
    """A `torch.export` program for batches of two or more rows, and any number of ids, checked on `batch`: the same logits to 1e-5.

    Its input is the features alone, without labels. torch fixes sizes of 1: give a single row twice, to export and to serve. Raises
    BadInput for a batch of fewer than two rows, and if the exported program differs.
    """
    sparse = [f"{feature.name}.{part}" for feature in ranker.config.sparse for part in ("ids", "offsets")]
    features = {name: batch[name] for name in [*(["dense"] if ranker.config.dense else []), *sparse]}
    if any(len(value) < (3 if name.endswith(".offsets") else 2) for name, value in features.items() if not name.endswith(".ids")):
        raise BadInput("the batch to export on has fewer than two rows", "give at least two: torch fixes sizes of 1 in a program")
    rows = torch.export.Dim("rows", min=2)
    sizes = {"dense": rows} | {name: rows + 1 if name.endswith(".offsets") else torch.export.Dim.AUTO for name in sparse}
    shapes = ({name: {0: sizes[name]} for name in features},)
    program = torch.export.export(ranker.eval(), (features,), dynamic_shapes=shapes)
    with torch.no_grad():
        apart = float((program.module()(features) - ranker(features)).abs().max())
    if not apart <= _TOLERANCE:
        raise BadInput(f"the exported ranker's logits are {apart:.1e} from its own", "report this ranker's config")
    return program
