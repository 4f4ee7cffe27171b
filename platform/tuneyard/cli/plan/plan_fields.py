"""A plan of a train or rank task as fields of a row of `tuneyard plan`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tuneyard.catalog import gpu
from tuneyard.planning import Plan


def plan_fields(found: Plan) -> dict[str, Any]:
    memory = {name.removesuffix("_gb"): value for name, value in asdict(found.memory).items()}
    speed = found.speed
    return {
        "sku": found.sku,
        "workers": found.workers,
        "strategy": {
            "zero": found.zero,
            "offload": {"optimizer": found.offload_optimizer, "parameters": found.offload_parameters},
            "tensorParallel": found.tensor_parallel,
            "sequenceParallel": found.sequence_parallel,
            "contextParallel": found.context_parallel,
            "shardWithin": found.shard_within,
            "quantisedAllReduce": found.quantised_all_reduce,
            "recompute": found.recompute,
            "precision": found.precision,
            "liger": found.liger,
            "compile": "layers" if found.compiled else "none",
        },
        "attention": found.attention,
        "notes": list(found.notes),
        "global_batch": found.global_batch,
        "micro_batch": found.micro_batch,
        "grad_accum": found.grad_accum,
        "memory_gb": {**memory, "total": found.memory.total_gb},
        "host_memory_gb": found.host_memory_gb,
        "fits": found.fits,
        "tokens_per_s": speed.tokens_per_s if speed else None,
        "mfu": speed.mfu if speed else None,
        "peak_from": gpu(found.sku).basis,
        "step_s": speed.step_s if speed else None,
        "compile_s": speed.compile_s if speed else None,
        "step_terms_s": {name.removesuffix("_s"): value for name, value in asdict(speed.terms).items()} if speed else None,
    }
