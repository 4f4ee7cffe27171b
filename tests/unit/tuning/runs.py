"""Rows of runs that never were: a grid of layouts whose speed follows from a simple law."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from tuneyard.tuning import INPUTS, OUTCOMES

MODELS = {
    "1b": {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 32000},
    "8b": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000},
}


def row(model: str = "1b", **changes: Any) -> dict[str, Any]:
    """A run of a Llama-like model on eight H100s, with nothing measured."""
    fields: dict[str, Any] = dict.fromkeys(INPUTS + OUTCOMES) | MODELS[model]
    fields |= {"seq_len": 4096, "gpus": 8, "gpus_per_node": 8, "gpu_type": "H100-80GB", "micro_batch": 1, "global_batch": 64}
    fields |= {"dp": 8, "tp": 1, "pp": 1, "cp": 1, "zero_stage": 1, "precision": "bf16", "method": "pretrain", "framework": "nemo"}
    fields["grad_accum"] = 64 // ((changes.get("dp") or 8) * (changes.get("micro_batch") or 1)) or 1
    return fields | changes


def measured(fields: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The row with an outcome: slower with each doubling of tp and pp, faster with larger micro-batches until memory ends."""
    size = fields["layers"] * fields["hidden"] ** 2 * 12 / 1e9
    peak = 18 * size / (fields["tp"] * fields["pp"]) + 4 * fields["micro_batch"] * fields["layers"] / 16 / fields["tp"]
    if peak > 80:
        return {**fields, "status": "oom"}
    share = 0.45 * 0.85 ** np.log2(fields["tp"]) * 0.8 ** np.log2(fields["pp"]) * 1.1 ** np.log2(fields["micro_batch"])
    speed = 989e12 * share / (6 * size * 1e9) * float(np.exp(rng.normal(0, 0.03)))
    return {**fields, "status": "ok", "tokens_per_sec_per_gpu": speed, "peak_mem_gb": peak}


def grid(model: str = "1b", *, gpus: int = 8, seed: int = 0) -> pd.DataFrame:
    """All layouts of a model on some GPUs, measured."""
    rng = np.random.default_rng(seed)
    found = []
    for tp, pp, micro, zero in product((1, 2, 4, 8), (1, 2, 4), (1, 4, 16), (0, 1)):
        if tp * pp <= gpus and micro * gpus // (tp * pp) <= 64:
            fields = row(model, gpus=gpus, tp=tp, pp=pp, dp=gpus // (tp * pp), micro_batch=micro, zero_stage=zero)
            found.append(measured(fields, rng))
    return pd.DataFrame(found)
