"""Runs of this platform as rows of history: with the columns of published runs, so that one predictor learns from both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tuneyard.api import TrainTask
from tuneyard.catalog import ModelShape
from tuneyard.planning import Calibration, Plan, calibrated
from tuneyard.tuning.rows import INPUTS, OPTIONAL, OUTCOMES, check_columns, clean, setups_of

if TYPE_CHECKING:
    import pandas as pd

_STATUS = {"succeeded": "ok", "OutOfMemory": "oom", "Deadline": "hang", "Settings": "failed"}
"""Status of a row, by failure, else by status. Other failures say nothing about the settings."""
_FAILURES = {"oom": "OutOfMemory", "hang": "Deadline", "failed": "Settings"}
"""Failure by the prefix of a published run's status. A failure without a reason counts against the settings."""


def settings_row(task: TrainTask, shape: ModelShape, plan: Plan, *, gpus_per_node: int = 8) -> dict[str, Any]:
    """Inputs of a predictor about a run (`rows.INPUTS` and `rows.OPTIONAL`), known before it starts."""
    adapter = task.method.adapter
    places = (("optimizer", plan.offload_optimizer), ("parameters", plan.offload_parameters))
    offloads = [f"{what} to {where}" for what, where in places if where != "none"]
    return {
        "params_b": shape.parameters / 1e9,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "ffn": shape.ffn,
        "vocab": shape.vocab,
        "seq_len": task.data.max_length,
        "gpus": plan.workers,
        "gpus_per_node": gpus_per_node,
        "gpu_type": plan.sku,
        "micro_batch": plan.micro_batch,
        "grad_accum": plan.grad_accum,
        "global_batch": plan.global_batch,
        "precision": plan.precision,
        "dp": plan.data_parallel,
        "tp": plan.tensor_parallel,
        "pp": 1,
        "cp": plan.context_parallel,
        "sharding": f"zero{plan.zero}",
        "zero_stage": plan.zero,
        "activation_checkpointing": plan.recompute,
        "offload": ", ".join(offloads) or "none",
        "attention_impl": plan.attention,
        "method": task.method.name,
        "lora_rank": adapter.rank if adapter else None,
        "framework": "tuneyard",
        "packed": 1.0 if task.data.pack else 0.0,
    }


def history_frame(attempts: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of past attempts from `History.training_runs`: inputs and outcomes. May be empty."""
    import pandas as pd

    return pd.DataFrame([_row(attempt) for attempt in attempts], columns=[*INPUTS, *OPTIONAL, *OUTCOMES, "origin"])


def _row(attempt: Mapping[str, Any]) -> dict[str, Any]:
    result = attempt.get("result") or {}
    row = dict(attempt["settings"])
    per_gpu = result.get("tokens_per_s_per_gpu")
    if per_gpu is None and result.get("tokens_per_s") and row.get("gpus"):
        per_gpu = result["tokens_per_s"] / row["gpus"] / (1 - _stall(result))
    peaks = result.get("peak_memory_gb")  # of each rank, or from a hub their peak
    status = _STATUS.get(attempt.get("failure") or attempt["status"], "not reported")
    return row | {
        "tokens_per_sec_per_gpu": per_gpu,
        "peak_mem_gb": (max(peaks) if isinstance(peaks, list) else peaks) if peaks else None,
        "status": status,
        "origin": attempt.get("origin", ""),
    }


def _stall(result: Mapping[str, Any]) -> float:
    """Share of the time in which a run on streamed data waited for rows. It is independent of the settings, and the planner adds it
    again.
    """
    stall = ((result.get("details") or {}).get("bottleneck") or {}).get("stall") or 0.0
    return min(0.99, max(0.0, float(stall)))


def calibration_of(rows: pd.DataFrame, *, latest: int = 200) -> tuple[Calibration, Counter[str]]:
    """The planner's efficiencies, corrected by the speed of this platform's runs, and the number of these runs by SKU.

    Runs of other software lack data that the planner needs. `latest`: number of recent runs to use. A plan does not include the cost of
    padding: if a SKU has runs with full sequences, only these are used.
    """
    used = _calibrating(rows, latest)
    speeds = zip(setups_of(clean(used)), used.tokens_per_sec_per_gpu, strict=True)
    found = [(setup, float(speed)) for setup, speed in speeds if setup is not None]
    return calibrated(found), Counter(setup.gpu.sku for setup, _ in found)


def imported_runs(rows: pd.DataFrame, *, latest: int = 200) -> Counter[str]:
    """How many runs that `calibration_of` uses were imported, by SKU."""
    used = _calibrating(rows, latest)
    return Counter(used.gpu_type[used.origin == "imported"])


def _calibrating(rows: pd.DataFrame, latest: int) -> pd.DataFrame:
    own = rows[(rows.framework == "tuneyard") & (rows.status == "ok") & (rows.tokens_per_sec_per_gpu > 0)]
    full = own.packed.fillna(1.0) > 0
    return own[full | ~own.gpu_type.isin(own.gpu_type[full])].tail(latest)


def published_runs(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with the columns of published runs, as `History.add_training_runs` takes them: source, settings, status, failure, result.

    Raises BadInput if a column that a predictor reads is missing.
    """
    check_columns(rows, (*INPUTS, *OUTCOMES))
    return [_published(row) for row in rows.astype(object).where(rows.notna(), None).to_dict("records")]


def _published(row: Mapping[str, Any]) -> dict[str, Any]:
    status = str(row["status"] or "").lower()
    failure = next((kind for word, kind in _FAILURES.items() if status.startswith(word)), "")
    known = {"tokens_per_s_per_gpu": row["tokens_per_sec_per_gpu"], "peak_memory_gb": [row["peak_mem_gb"]] if row["peak_mem_gb"] else None}
    return {
        "source": str(row.get("source") or "csv"),
        "settings": {name: row.get(name) for name in (*INPUTS, *OPTIONAL)},
        "status": "succeeded" if status == "ok" else "failed",
        "failure": failure,
        "result": {name: value for name, value in known.items() if value is not None},
    }
