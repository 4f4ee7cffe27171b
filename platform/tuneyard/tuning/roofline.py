"""Seconds of a training step, term by term, each with a factor that is fitted to history.

A step is a sum of terms computed from dimensions, data-sheet peaks and volumes of collectives: matmuls, attention, elementwise work,
reading weights, launching kernels, tensor- and data-parallel collectives inside and across machines, pipeline transfers, the optimizer.
Quantities that are in no data sheet (achieved share of the peak, latencies of a library) are one factor per term, fitted to log(seconds) by
regularised non-linear least squares: without rows the factors are the prior's, with many rows they are history's. The form follows
Narayanan et al. 2021 (section 3) for volumes and the pipeline's bubble.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tuneyard.tuning.rows import device

if TYPE_CHECKING:
    import pandas as pd

FACTORS = {
    "matmul": 1.6,
    "attention": 2.0,
    "head": 1.0,
    "elementwise": 1.5,
    "unsplit_elementwise": 1.0,
    "weights": 1.0,
    "launches": 0.5,
    "slots": 0.5,
    "tp_inside": 2.0,
    "tp_across": 2.0,
    "tp_latency_inside": 1.0,
    "tp_latency_across": 1.0,
    "pp_inside": 1.0,
    "pp_across": 1.0,
    "pp_latency": 1.0,
    "dp_inside": 1.0,
    "dp_across": 1.0,
    "dp_each_micro_batch": 0.02,
    "dp_each_micro_batch_unsharded": 0.02,
    "dp_latency": 1.0,
    "zero3": 0.5,
    "optimizer": 1.0,
    "offload": 1.0,
    "step": 1.0,
}
"""Terms, with the prior factor of each."""
TIGHTNESS = 0.05
"""Weight of the prior on log factors, relative to the mean squared residual: rows that determine a factor move it freely."""


def terms(known: pd.DataFrame) -> pd.DataFrame:
    """Seconds per optimizer step of each term at its nominal rate, for cleaned rows. NaN where a row lacks an input."""
    import pandas as pd

    k = {c: known[c].to_numpy(float) for c in known.columns if c not in ("sku", "framework")}
    peak, memory, inside, across, host = _rates(known)
    tokens = k["micro_batch"] * k["seq_len"] / k["cp"]
    slots = k["grad_accum"] + k["pp"] - 1
    tp, pp, dp, hidden, node = k["tp"], k["pp"], k["dp"], k["hidden"], k["gpus_per_node"]
    layers = k["layers"] / pp
    per_layer = hidden**2 * (2 + 2 * k["kv_heads"] / k["heads"]) + 3 * hidden * k["ffn"]
    own, head = per_layer * layers / tp, k["vocab"] * hidden / tp
    # Forward, gradient of inputs, gradient of weights: 2 FLOPs each per weight and token; frozen weights have no gradient of their own.
    passes = 6 - 2 * k["adapter"] + 2 * k["recompute"]
    parameters = own + head * np.where(pp == 1, 2, 1)
    rank_weights = 2 * k["lora_rank"] * (hidden * 6 + k["ffn"] * 3) * layers / tp
    trained = np.where(k["adapter"] > 0, rank_weights, parameters)
    tp_in, tp_out = (tp > 1) & (tp <= node), tp > node
    dp_in, dp_out = (dp > 1) & (tp * dp <= node), (dp > 1) & (tp * dp > node)
    pp_in, pp_out = (pp > 1) & (tp * dp < node), (pp > 1) & (tp * dp >= node)
    reduced = 4 * trained * 2 * (dp - 1) / dp
    gradient_s = reduced * (dp_in / inside + dp_out / across)
    exchanged = tokens * hidden * 2
    ring = slots * layers * 4 * exchanged * (tp - 1) / tp
    found = {
        "matmul": slots * passes * own * tokens / peak,
        "attention": slots * passes * k["seq_len"] / k["cp"] * hidden * layers / tp * tokens / peak,
        "head": k["grad_accum"] * passes * head * tokens / peak,
        "elementwise": slots * layers * tokens * hidden * 34 * 2 / tp / memory,
        "unsplit_elementwise": slots * layers * tokens * hidden * 10 * 2 / memory,
        "weights": slots * (own + head) * 12 / memory,
        "launches": slots * layers * 1e-3,
        "slots": slots * 1e-3,
        "tp_inside": tp_in * ring / inside,
        "tp_across": tp_out * ring / across,
        "tp_latency_inside": tp_in * slots * layers * 8 * 2e-5,
        "tp_latency_across": tp_out * slots * layers * 8 * np.log2(tp) * 2e-5,
        "pp_inside": pp_in * slots * 2 * exchanged / tp / inside,
        "pp_across": pp_out * slots * 2 * exchanged / tp / across,
        "pp_latency": (pp > 1) * slots * 1e-3,
        "dp_inside": dp_in * reduced / inside,
        "dp_across": dp_out * reduced / across,
        "dp_each_micro_batch": k["grad_accum"] * gradient_s,
        "dp_each_micro_batch_unsharded": (k["zero"] == 0) * (pp > 1) * k["grad_accum"] * gradient_s,
        "dp_latency": dp_out * np.log2(np.maximum(dp, 1)) * 1e-2,
        "zero3": (k["zero"] == 3) * k["grad_accum"] * 2 * 2 * (own + head) * (dp > 1) / np.where(k["gpus"] > node, across, inside),
        "optimizer": trained / np.where(k["zero"] > 0, dp, 1) * 30 / memory,
        "offload": k["offload"] * trained / np.where(k["zero"] > 0, dp, 1) * 16 / host,
        "step": np.full(len(known), 1e-2) + 0 * peak,
    }
    return pd.DataFrame(found, index=known.index)


def _rates(known: pd.DataFrame) -> tuple[np.ndarray, ...]:
    """Per row: FLOP/s of the dtype, and bytes/s of memory, of links inside and across machines (one direction), and to the host."""
    rates = np.full((5, len(known)), np.nan)
    for sku in known["sku"].unique():
        found = device(sku) if sku else None
        if found is None:
            continue
        here = (known["sku"] == sku).to_numpy()
        # Ranks on `cpu` share one machine's peaks.
        share = known["gpus"].to_numpy()[here] if found.is_cpu else 1.0
        peak = found.peak_flops.get("bf16") or found.peak_flops.get("fp16") or found.peak_flops["fp32"]
        width = known["compute_bytes"].to_numpy()[here]
        fp32 = found.tf32_flops or found.peak_flops.get("fp32", peak)
        rates[0, here] = np.where(width == 4, fp32, np.where(width < 2, found.peak_flops.get("fp8", peak), peak)) / share
        rates[1, here] = found.memory_bandwidth_gb_s * 1e9 / share
        rates[2, here] = (found.link_gb_s / 2 or found.memory_bandwidth_gb_s / 4) * 1e9 / share
        # 400 Gbit/s per GPU beside H100 and later, 200 beside A100, 100 otherwise: as in the makers' own machines.
        rates[3, here] = (50 if found.link_gb_s >= 900 else 25 if found.link_gb_s >= 600 else 12.5) * 1e9
        rates[4, here] = (found.pcie_gb_s / 2 or found.memory_bandwidth_gb_s / 4) * 1e9
    return tuple(rates)


@dataclass(frozen=True)
class Roofline:
    """Terms times factors. `seconds` is the calibrated length of a step."""

    log_factors: np.ndarray
    """One per term, in the order of FACTORS."""

    @classmethod
    def prior(cls) -> Self:
        return cls(np.log(np.array(list(FACTORS.values()))))

    def fitted(self, found: pd.DataFrame, log_seconds: np.ndarray) -> Roofline:
        """Factors that explain `log_seconds` of steps with these terms, close to this roofline's where rows do not determine them. Robust
        to outliers.
        """
        if len(log_seconds) == 0:
            return self
        from scipy.optimize import least_squares

        matrix, start = found.to_numpy(float), self.log_factors
        weight = TIGHTNESS * np.sqrt(max(len(log_seconds), 100) / len(start))

        def residual(theta: np.ndarray) -> np.ndarray:
            return np.concatenate([np.log(matrix @ np.exp(theta)) - log_seconds, weight * (theta - start)])

        def jacobian(theta: np.ndarray) -> np.ndarray:
            parts = matrix * np.exp(theta)
            return np.vstack([parts / parts.sum(1, keepdims=True), weight * np.eye(len(theta))])

        fit: Any = least_squares(residual, start, jacobian, loss="soft_l1", f_scale=0.3, max_nfev=60)
        return Roofline(np.asarray(fit.x))

    def seconds(self, found: pd.DataFrame) -> np.ndarray:
        """Length of an optimizer step in seconds. Shape (rows,)."""
        return np.asarray(found.to_numpy(float) @ np.exp(self.log_factors))
