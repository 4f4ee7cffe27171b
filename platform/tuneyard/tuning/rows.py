"""A row of run history: its columns, the values that follow from others, and the same run as the planner's Setup.

A row has the columns of `training_runs.csv`: one training run of any software. Sources leave out columns that follow from others. `clean`
fills these in, and leaves NaN otherwise. Speed and memory are never guessed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tuneyard.api import BadInput, Method
from tuneyard.catalog import Gpu, ModelShape, gpu, kinds, shape_from_config
from tuneyard.catalog.gpu_entries import kept_kind
from tuneyard.planning import Layout, Setup

if TYPE_CHECKING:
    import pandas as pd

INPUTS = (
    *("params_b", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq_len", "gpus", "gpus_per_node", "gpu_type"),
    *("micro_batch", "grad_accum", "global_batch", "precision", "dp", "tp", "pp", "cp", "sharding", "zero_stage"),
    *("activation_checkpointing", "offload", "attention_impl", "method", "lora_rank", "framework"),
)
"""Columns that a prediction reads."""
OPTIONAL = ("packed",)
"""Columns that a prediction also reads if a source has them. `packed`: 1 if samples fill the sequences, 0 if each sequence holds one sample
and its padding. Sources without the column count as 1, as in pre-training.
"""
OUTCOMES = ("tokens_per_sec_per_gpu", "peak_mem_gb", "status")
"""Columns with the outcomes of a run."""
FAILED = ("oom", "failed", "hang")
"""Prefixes of a status that means that the settings did not work. `unsupported` and `not reported` say nothing about the settings."""

_TEXT = ("gpu_type", "precision", "sharding", "activation_checkpointing", "offload", "attention_impl", "method", "framework")
_NUMERIC = tuple(c for c in INPUTS if c not in _TEXT)
_STAGES: tuple[Literal[0, 1, 2, 3], ...] = (0, 1, 2, 3)
_ENGINES: Mapping[str, Literal["megatron", "nanotron"]] = {"nanotron": "nanotron", "megatron": "megatron", "nemo": "megatron"}


def kept(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns of a history. Raises BadInput for missing ones."""
    check_columns(rows, INPUTS + OUTCOMES)
    return rows.reindex(columns=[*INPUTS, *OPTIONAL, *OUTCOMES]).reset_index(drop=True)


def check_columns(rows: pd.DataFrame, columns: tuple[str, ...]) -> None:
    """Raises BadInput with the names of the columns that are missing entirely."""
    missing = [c for c in columns if c not in rows.columns]
    if missing:
        raise BadInput(
            f"the rows have no column {', '.join(missing)}",
            "give all columns of training_runs.csv; leave unknown cells empty",
        )


@functools.cache
def device(gpu_type: str) -> Gpu | None:
    """The SKU of a source's name of a GPU, such as `NVIDIA H100-SXM5-80GB`; None if the catalog lacks it."""
    return gpu("cpu") if gpu_type.strip().lower() == "cpu" else kinds().find(gpu_type) or kept_kind(gpu_type)


def failed(rows: pd.DataFrame) -> np.ndarray:
    """1.0 if the settings did not work, 0.0 if they did, NaN if the source does not say. Shape (rows,)."""
    status = rows["status"].astype("string").str.lower().fillna("")
    bad = np.asarray(status.str.startswith(FAILED), dtype=bool)
    fine = np.asarray(status == "ok", dtype=bool)
    return np.where(bad, 1.0, np.where(fine, 0.0, np.nan))


def clean(rows: pd.DataFrame) -> pd.DataFrame:
    """The inputs as numbers, with values that follow from other columns filled in. Raises BadInput for missing columns.

    If a source has only the number of parameters, dimensions are those of a model with layers = hidden / 128 (12 layers hidden^2
    parameters), and `shape_known` is 0.
    """
    import pandas as pd

    check_columns(rows, INPUTS)
    text = {c: rows[c].astype("string").str.lower().fillna("") for c in INPUTS if c not in _NUMERIC}
    known = pd.DataFrame({c: pd.to_numeric(rows[c], errors="coerce").astype(float).to_numpy() for c in _NUMERIC})
    _fill_shape(known)
    _fill_layout(known, text)
    known["recompute"] = (text["activation_checkpointing"].isin(("true", "1", "1.0")) * 1.0).to_numpy()
    offload = text["offload"]
    known["offload"] = (~offload.isin(("", "none", "see section")) * 1.0).to_numpy()
    known["eager"] = (text["attention_impl"] == "eager").to_numpy() * 1.0
    method = text["method"]
    known["adapter"] = (~method.isin(("", "pretrain", "full")) * 1.0).to_numpy()
    known["quantised"] = (method == "qlora").to_numpy() * 1.0
    known["lora_rank"] = known.lora_rank.fillna(16.0)
    eight_bits = text["precision"].str.contains("fp8")
    known["compute_bytes"] = np.select(
        [eight_bits, text["precision"] == "fp32", text["precision"].str.contains("fp4")], [1.0, 4.0, 0.5], 2.0
    )
    known["sku"] = [found.sku if (found := device(name)) else "" for name in text["gpu_type"]]
    known["framework"] = text["framework"].to_numpy(dtype=object)
    packed = rows["packed"] if "packed" in rows.columns else pd.Series(1.0, index=rows.index)
    known["packed"] = pd.to_numeric(packed, errors="coerce").fillna(1.0).to_numpy(float)
    known.index = rows.index
    return known


def _fill_shape(known: pd.DataFrame) -> None:
    """Fill in missing dimensions from the number of parameters, and the reverse."""
    known["shape_known"] = known[["layers", "hidden", "heads", "ffn", "vocab"]].notna().all(axis=1) * 1.0
    hidden = (known.params_b * 1e9 * 128 / 12) ** (1 / 3)
    known["hidden"] = known.hidden.fillna(hidden)
    known["layers"] = known.layers.fillna(known.params_b * 1e9 / (12 * known.hidden**2)).clip(lower=1)
    known["heads"] = known.heads.fillna(known.hidden / 128)
    known["kv_heads"] = known.kv_heads.fillna(known.heads)
    known["ffn"] = known.ffn.fillna(8 / 3 * known.hidden)
    known["vocab"] = known.vocab.fillna(50_000)
    per_layer = known.hidden**2 * (2 + 2 * known.kv_heads / known.heads) + 3 * known.hidden * known.ffn
    known["parameters"] = (known.params_b * 1e9).fillna(known.layers * per_layer + 2 * known.vocab * known.hidden)


def _fill_layout(known: pd.DataFrame, text: dict[str, pd.Series]) -> None:
    """Degrees of parallelism, ZeRO stage and batch. dp x tp x pp x cp = GPUs; rows of a step = dp x micro-batch x accumulation."""
    for degree in ("tp", "pp", "cp"):
        known[degree] = known[degree].fillna(1.0).clip(lower=1)
    known["gpus_per_node"] = known.gpus_per_node.fillna(8.0).clip(lower=1)
    known["dp"] = known.dp.fillna(known.gpus / (known.tp * known.pp * known.cp)).clip(lower=1)
    accum = known.grad_accum.where(known.grad_accum > 0)
    micro = known.micro_batch.where(known.micro_batch > 0)
    known["micro_batch"] = micro.fillna(known.global_batch / (known.dp * accum.fillna(1.0)))
    known["grad_accum"] = accum.fillna((known.global_batch / (known.dp * known.micro_batch)).clip(lower=1)).fillna(1.0)
    sharding = text["sharding"].to_numpy(dtype=str)

    def says(*words: str) -> np.ndarray:
        return np.asarray(np.any([np.char.find(sharding, word) >= 0 for word in words], axis=0))

    stage = np.select(
        [says("zero1", "zero 1"), says("grad_op", "zero2", "zero 2"), says("full", "fsdp", "hsdp", "zero3", "zero 3")], [1, 2, 3], 0
    )
    known["zero"] = np.where(known.zero_stage.notna(), known.zero_stage, stage).astype(float)


def setup_of(row: Mapping[str, Any]) -> Setup | None:
    """A row as the planner's Setup; None if it lacks dimensions or layout, or its GPU is not in the catalog."""
    import pandas as pd

    one = pd.DataFrame([{c: row.get(c) for c in INPUTS}])
    return setups_of(clean(one))[0]


def setups_of(known: pd.DataFrame) -> list[Setup | None]:
    """The planner's Setup of each cleaned row; see `setup_of`."""
    return [_setup(values) for values in known.to_dict("records")]


def _setup(k: Mapping[Any, Any]) -> Setup | None:
    needed = ("layers", "hidden", "heads", "ffn", "vocab", "seq_len", "gpus", "micro_batch", "grad_accum")
    if not k["sku"] or not k["shape_known"] or any(np.isnan(k[c]) for c in needed):
        return None
    shape = _shape(*(round(k[c]) for c in ("hidden", "layers", "heads", "kv_heads", "ffn", "vocab")))
    if shape is None or round(k["tp"] * k["pp"] * k["dp"] * k["cp"]) != round(k["gpus"]):
        return None
    adapter = {"rank": round(k["lora_rank"])}
    method = {"qlora": adapter} if k["quantised"] else {"lora": adapter} if k["adapter"] else {"full": {}}
    layout = Layout(
        workers=round(k["gpus"]),
        zero=_STAGES[round(k["zero"])],
        precision="fp32" if k["compute_bytes"] == 4 else "bf16",
        attention="eager" if k["eager"] else "flash",
        micro_batch=max(1, round(k["micro_batch"])),
        seq_len=round(k["seq_len"]),
        grad_accum=max(1, round(k["grad_accum"])),
        recompute=bool(k["recompute"]),
        offload_optimizer="cpu" if k["offload"] else "none",
        tensor_parallel=round(k["tp"]),
        pipeline_parallel=round(k["pp"]),
        context_parallel=round(k["cp"]),
        divides_all=k["framework"] != "tuneyard",
        engine=next((engine for word, engine in _ENGINES.items() if word in k["framework"]), "fsdp" if k["zero"] == 3 else "deepspeed"),
    )
    found = device(k["sku"])
    assert found is not None
    return Setup(
        shape=shape,
        gpu=found,
        layout=layout,
        method=Method.model_validate(method),
        objective="clm",
        gpus_per_node=round(k["gpus_per_node"]),
    )


@functools.cache
def _shape(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocab: int) -> ModelShape | None:
    try:
        return shape_from_config(
            {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
            | {"num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab, "max_position_embeddings": 131072}
        )
    except BadInput:
        return None
