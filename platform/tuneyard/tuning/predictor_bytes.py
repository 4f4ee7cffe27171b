"""A predictor as bytes: gzipped JSON with a version. It holds no code, and keeps floats to the last bit."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import numpy as np
import pandas as pd

from tuneyard.api import BadInput
from tuneyard.tuning.boosting import Bag
from tuneyard.tuning.features import FEATURES
from tuneyard.tuning.kernel import Kernel
from tuneyard.tuning.predictor import Predictor
from tuneyard.tuning.residual import Residual
from tuneyard.tuning.roofline import FACTORS, Roofline
from tuneyard.tuning.rows import kept

FORMAT = 2
"""It increases with each change of the parts, or of the meaning of a feature."""
_AGAIN = "fit it again from history (Predictor.fit)"


def predictor_to_bytes(predictor: Predictor) -> bytes:
    """The predictor with its history. The same predictor gives the same bytes."""
    parts = {
        "format": FORMAT,
        "features": [feature.name for feature in FEATURES],
        "factors": list(FACTORS),
        "grown_from": predictor.grown_from.to_csv(index=False),
        "late": predictor.late.to_csv(index=False),
        "seed": predictor.seed,
        "rooflines": {name: roofline.log_factors.tolist() for name, roofline in predictor.rooflines.items()},
        "speed": _residual(predictor.speed),
        "memory": _residual(predictor.memory),
        "failure": predictor.failure.texts,
        "seen": _array(predictor.seen),
        "timed_rows": predictor.timed_rows,
        "late_speed": _kernel(predictor.late_speed),
        "late_failure": _kernel(predictor.late_failure),
    }
    return gzip.compress(json.dumps(parts).encode(), compresslevel=4, mtime=0)


def predictor_from_bytes(data: bytes) -> Predictor:
    """The predictor in `data`. Raises BadInput if the bytes are no predictor, or one of another version."""
    try:
        parts: dict[str, Any] = json.loads(gzip.decompress(data))
        version = parts["format"]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"this is not a predictor: {error}", _AGAIN) from error
    if version != FORMAT:
        raise BadInput(f"the predictor is of format {version}, and this Tuneyard reads format {FORMAT}", _AGAIN)
    if parts["features"] != [feature.name for feature in FEATURES] or parts["factors"] != list(FACTORS):
        raise BadInput("the predictor was made with other features", _AGAIN)
    return Predictor(
        grown_from=_read_rows(parts["grown_from"]),
        late=_read_rows(parts["late"]),
        seed=parts["seed"],
        rooflines={name: Roofline(np.array(values)) for name, values in parts["rooflines"].items()},
        speed=_read_residual(parts["speed"]),
        memory=_read_residual(parts["memory"]),
        failure=Bag(tuple(parts["failure"])),
        seen=_read_array(parts["seen"]),
        timed_rows=parts["timed_rows"],
        late_speed=_read_kernel(parts["late_speed"]),
        late_failure=_read_kernel(parts["late_failure"]),
    )


def _read_rows(rows: str) -> pd.DataFrame:
    return kept(pd.read_csv(io.StringIO(rows), low_memory=False))


def _array(values: np.ndarray) -> dict[str, Any]:
    return {"shape": values.shape, "values": values.ravel().tolist()}


def _read_array(kept: dict[str, Any]) -> np.ndarray:
    return np.array(kept["values"], dtype=float).reshape(kept["shape"])


def _kernel(kernel: Kernel) -> dict[str, Any]:
    scalars = {"variance": kernel.variance, "noise": kernel.noise, "shared": kernel.shared}
    return {"points": _array(kernel.points), "values": _array(kernel.values), **scalars}


def _read_kernel(kept: dict[str, Any]) -> Kernel:
    return Kernel(_read_array(kept["points"]), _read_array(kept["values"]), kept["variance"], kept["noise"], kept["shared"])


def _residual(residual: Residual) -> dict[str, Any]:
    trees = {"trees": residual.trees.texts, "noise": residual.noise.texts}
    return {**trees, "like": _kernel(residual.like), "usual_noise": residual.usual_noise}


def _read_residual(kept: dict[str, Any]) -> Residual:
    return Residual(Bag(tuple(kept["trees"])), _read_kernel(kept["like"]), Bag(tuple(kept["noise"])), kept["usual_noise"])
