"""Published runs as setups: those rows of benchmarks/data/training_runs.csv.gz that say enough to predict their speed."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tuneyard.api import BadInput, Method
from tuneyard.catalog import ModelShape, gpu, shape_from_config
from tuneyard.planning import Layout, Setup

DATA = Path(__file__).parent / "data" / "training_runs.csv.gz"
_SKUS = {"H100-80GB": "h100-80gb", "A100-80GB": "a100-80gb", "A800-80GB": "a100-80gb", "A100-40GB": "a100-40gb"}
_NETWORK_GB_S = {"RoCE 1600 Gbps node": 200.0, "400Gbps": 50.0, "800Gbps": 100.0, "4x100Gb RoCE": 50.0}
_SOURCES = ("hf-ultrascale-playbook", "llm-foundry", "fms-acceleration", "fms-fsdp", "internevo", "bigscience")
_STAGES: tuple[Literal[0, 1, 2, 3], ...] = (0, 1, 2, 3)
_ENGINES = {"nanotron": "nanotron", "megatron": "megatron", "internevo": "deepspeed", "composer": "fsdp", "fms-fsdp": "fsdp"}


@dataclass(frozen=True)
class Run:
    """A setup, and what it reached."""

    source: str
    model: str
    setup: Setup
    tokens_per_s_per_gpu: float


def runs() -> list[Run]:
    """All rows that finished, in a precision that this project trains in, on a device of the catalog."""
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as file:
        return [run for row in csv.DictReader(file) for run in _run(row)]


def _run(row: Mapping[str, str]) -> Iterator[Run]:
    known = row["status"] == "ok" and row["source"] in _SOURCES and row["gpu_type"] in _SKUS
    if not known or not row["layers"] or not row["tokens_per_sec_per_gpu"] or not row["seq_len"] or "fp8" in row["precision"]:
        return
    if "gptq" in row["quantization"] or row["packing"] == "padding-free" or "Mixtral" in row["model"] or "bigcode" in row["model"]:
        return
    try:
        setup = _setup(row)
    except (BadInput, ValueError):
        return
    yield Run(row["source"], row["model"], setup, float(row["tokens_per_sec_per_gpu"]))


def _setup(row: Mapping[str, str]) -> Setup:
    def number(name: str, default: int = 1) -> int:
        return int(float(row[name] or default))

    workers, tensor, pipeline = number("gpus"), number("tp"), number("pp")
    micro = number("micro_batch")
    data_parallel = workers // (tensor * pipeline)
    framework = row["framework"].split("/")[0].split("+")[0].split("-")[0]
    engine: Any = "fsdp" if row["source"] in ("llm-foundry", "fms-acceleration", "fms-fsdp") else _ENGINES.get(framework, "megatron")
    accum = number("grad_accum") if row["grad_accum"] else max(1, number("global_batch", micro) // (micro * data_parallel))
    attention: Any = "eager" if row["source"] == "bigscience" else "flash"
    return Setup(
        shape=_shape(row),
        gpu=gpu(_SKUS[row["gpu_type"]]),
        layout=Layout(
            workers=workers,
            zero=_STAGES[number("zero_stage", 0)],
            precision="fp16" if row["precision"] in ("fp16", "float16") else "bf16",
            attention=attention,
            micro_batch=micro,
            seq_len=number("seq_len"),
            grad_accum=accum,
            recompute=row["activation_checkpointing"] == "True",
            liger="liger" in row["framework"],
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            sequence_parallel=row["source"] == "hf-ultrascale-playbook",
            engine=engine,
            divides_all=engine == "deepspeed",
        ),
        method=_method(row),
        network_gb_s=_NETWORK_GB_S.get(row["interconnect"], 50.0 if "Omni-Path" in row["interconnect"] else None),
    )


def _method(row: Mapping[str, str]) -> Method:
    name = row["method"]
    if name in ("lora", "qlora"):
        return Method.model_validate({name: {"rank": int(float(row["lora_rank"] or 16))}})
    return Method.model_validate({"full": {}})


def _shape(row: Mapping[str, str]) -> ModelShape:
    hidden, heads = int(float(row["hidden"])), int(float(row["heads"]))
    vocab = int(float(row["vocab"] or 103168))
    dense = row["source"] in ("llm-foundry", "bigscience")
    inner = int(float(row["ffn"] or (4 * hidden if dense else 11008)))
    config = {"vocab_size": vocab, "num_hidden_layers": int(float(row["layers"])), "hidden_size": hidden, "num_attention_heads": heads}
    if dense:
        return shape_from_config({"model_type": "gpt_neox", "intermediate_size": inner, "max_position_embeddings": 65536, **config})
    kv = int(float(row["kv_heads"] or heads))
    return shape_from_config({"model_type": "llama", "intermediate_size": inner, "num_key_value_heads": kv, **config})
