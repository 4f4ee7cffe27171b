"""Features of the predictor, each with a stated meaning. They are scale-free if possible, so that a new model size is not out of range.

Shares of the roofline's terms say what bounds a step, whatever the model's size. The layout adds the rest. The planner's estimates of speed
and memory are features too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuneyard.api import BadInput
from tuneyard.planning import estimate_memory, estimate_speed
from tuneyard.tuning.roofline import FACTORS, Roofline, terms
from tuneyard.tuning.rows import clean, device, setups_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Feature:
    name: str
    unit: str
    meaning: str


LAYOUT = (
    Feature("log_dp", "log2", "data-parallel ranks"),
    Feature("log_tp", "log2", "tensor-parallel ranks"),
    Feature("log_pp", "log2", "pipeline stages"),
    Feature("log_cp", "log2", "context-parallel ranks"),
    Feature("log_gpus", "log2", "GPUs of the run"),
    Feature("log_micro_batch", "log2 rows", "rows of one rank in one pass"),
    Feature("log_grad_accum", "log2", "micro-batches per optimizer step and rank"),
    Feature("zero", "stage", "ZeRO stage; FSDP's full shard counts as 3"),
    Feature("recompute", "0 or 1", "activations are recomputed in backward"),
    Feature("offload", "0 or 1", "something is offloaded to the host"),
    Feature("adapter", "0 or 1", "an adapter is trained and the rest is frozen"),
    Feature("quantised", "0 or 1", "frozen weights are in 4 bits"),
    Feature("compute_bytes", "bytes", "width of matmul inputs"),
    Feature("packed", "0 or 1", "samples fill the sequences: no padding"),
)
RATIOS = (
    Feature("log_rank_tokens", "log2 tokens", "tokens of one rank in one pass"),
    Feature("log_layers_per_stage", "log2 layers", "layers of a pipeline stage"),
    Feature("log_width_per_rank", "log2", "hidden / tp: the narrow side of a rank's matmuls"),
    Feature("log_rank_parameters", "log2", "parameters / (tp pp): weights that a rank computes with"),
    Feature("log_pass_flops_s", "log2 s", "matmul time of one pass of one stage at the peak, behind which latencies hide"),
    Feature("bubble", "share", "(pp - 1) / (accum + pp - 1), the pipeline's bubble (Narayanan et al. 2021)"),
    Feature("log_group", "log2", "tp x dp: ranks between two pipeline stages' neighbours"),
    Feature("tp_machines", "machines", "tp / GPUs per machine: above 1, tensor parallelism crosses machines"),
    Feature("dp_crosses", "0 or 1", "gradients are reduced across machines"),
    Feature("pp_crosses", "0 or 1", "pipeline stages send across machines"),
    Feature(
        "syncs",
        "log2",
        "reductions of gradients per step if every micro-batch had one: accum, with ZeRO off and several stages and replicas",
    ),
    Feature("memory_share", "share", "the planner's estimate of peak memory over the device's"),
    Feature("memory_known", "0 or 1", "whether the planner could estimate the memory"),
    Feature("planner_ratio", "log", "planner's seconds of a step over the roofline's before history"),
    Feature("log_machines", "log2", "machines of the run"),
    Feature("shape_known", "0 or 1", "dimensions are the source's, not derived from the number of parameters"),
)
SHARES = tuple(Feature(f"share_{name}", "share", f"the roofline's term `{name}` over the sum, before history") for name in FACTORS)
FEATURES = LAYOUT + RATIOS + SHARES


@dataclass(frozen=True)
class Described:
    """Rows with their features. All members have the same index; NaN where a row lacks an input."""

    known: pd.DataFrame
    """Cleaned inputs."""
    terms: pd.DataFrame
    """Seconds of each roofline term."""
    features: pd.DataFrame
    """Columns are FEATURES by name."""
    planner_step_s: np.ndarray
    planner_memory_gb: np.ndarray
    step_tokens: np.ndarray
    """Tokens of an optimizer step per GPU."""
    memory_gb: np.ndarray
    """Memory of one device."""

    def at(self, which: np.ndarray) -> Described:
        """The rows where `which` is true (or at those positions), with a fresh index."""
        frames = [frame[which] if which.dtype == bool else frame.iloc[which] for frame in (self.known, self.terms, self.features)]
        arrays = [a[which] for a in (self.planner_step_s, self.planner_memory_gb, self.step_tokens, self.memory_gb)]
        known, found, features = (frame.reset_index(drop=True) for frame in frames)
        return Described(known, found, features, *arrays)

    @property
    def usable(self) -> np.ndarray:
        """Whether a row has enough known fields for a prediction. Shape (rows,)."""
        return np.asarray(np.isfinite(self.terms.to_numpy()).all(axis=1) & np.isfinite(self.step_tokens) & (self.step_tokens > 0))


def describe(rows: pd.DataFrame) -> Described:
    """Features of rows of history, or of requests with the same columns. Raises BadInput for missing columns."""
    known = clean(rows)
    found = terms(known)
    step_s, memory_gb = _planned(known)
    limit = np.array([np.nan if (sku := device(name)) is None else sku.memory_gb for name in known["sku"]], dtype=float)
    tokens = known.micro_batch * known.grad_accum * known.dp * known.seq_len / known.gpus
    features = _features(known, found, step_s, memory_gb / limit)
    return Described(known, found, features, step_s, memory_gb, tokens.to_numpy(), limit)


def _planned(known: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The planner's seconds of a step, and peak memory in GB. NaN where the planner has no estimate."""
    answer = np.full((2, len(known)), np.nan)
    for i, setup in enumerate(setups_of(known)):
        if setup is None:
            continue
        try:
            answer[0, i], answer[1, i] = estimate_speed(setup).step_s, estimate_memory(setup).device.total_gb
        except BadInput:
            continue
    return answer[0], answer[1]


def _features(known: pd.DataFrame, found: pd.DataFrame, step_s: np.ndarray, memory_share: np.ndarray) -> pd.DataFrame:
    import pandas as pd

    def log2(values: pd.Series) -> pd.Series:
        return np.log2(values.where(values > 0))

    k = known
    prior = found.to_numpy() * np.exp(Roofline.prior().log_factors)
    columns = {f"log_{name}": log2(k[name]) for name in ("dp", "tp", "pp", "cp", "gpus", "micro_batch", "grad_accum")}
    columns |= {
        name: k[name] for name in ("zero", "recompute", "offload", "adapter", "quantised", "compute_bytes", "packed", "shape_known")
    }
    slots = k.grad_accum + k.pp - 1
    columns |= {
        "log_rank_tokens": log2(k.micro_batch * k.seq_len / k.cp),
        "log_layers_per_stage": log2(k.layers / k.pp),
        "log_width_per_rank": log2(k.hidden / k.tp),
        "log_rank_parameters": log2(k.parameters / (k.tp * k.pp)),
        "log_pass_flops_s": log2(found["matmul"] / slots),
        "bubble": (k.pp - 1) / slots,
        "log_group": log2(k.tp * k.dp),
        "tp_machines": k.tp / k.gpus_per_node,
        "dp_crosses": ((k.dp > 1) & (k.tp * k.dp > k.gpus_per_node)) * 1.0,
        "pp_crosses": ((k.pp > 1) & (k.tp * k.dp >= k.gpus_per_node)) * 1.0,
        "syncs": np.log2(k.grad_accum.where((k.zero == 0) & (k.pp > 1) & (k.dp > 1), 1.0)),
        "memory_share": pd.Series(memory_share, index=k.index).fillna(0.0),
        "memory_known": pd.Series(np.isfinite(memory_share) * 1.0, index=k.index),
        "planner_ratio": pd.Series(np.log(step_s / prior.sum(1)), index=k.index).fillna(0.0),
        "log_machines": log2(np.ceil(k.gpus / k.gpus_per_node)),
    }
    shares = prior / prior.sum(1, keepdims=True)
    columns |= {f"share_{name}": shares[:, i] for i, name in enumerate(FACTORS)}
    table = pd.DataFrame(columns, index=k.index)
    return table[[feature.name for feature in FEATURES]].astype(float)
