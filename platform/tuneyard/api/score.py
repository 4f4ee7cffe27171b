"""A score task: prompts through a model, rows out, with metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tuneyard.api.base import Fields
from tuneyard.api.data import ScoreData
from tuneyard.api.limits import MOST_GPUS_PER_NODE
from tuneyard.api.train import Auto, Count, ModelRef, Precision
from tuneyard.metrics import METRICS, needing

if TYPE_CHECKING:
    MetricName = str
else:
    MetricName = Literal[tuple(METRICS)]
MOST_METRICS = 64
"""API servers refuse rules over lists that could take them long."""
_WITHOUT_REFERENCE = [name for name in METRICS if name not in needing("reference", METRICS.values())]


def _needs_reference() -> str:
    return f"all but {', '.join(_WITHOUT_REFERENCE)} need" if _WITHOUT_REFERENCE else "all need"


class Generation(Fields):
    """How answers are sampled."""

    max_tokens: int = Field(default=256, ge=1, description="tokens of an answer, at most")
    temperature: float = Field(default=0.0, ge=0, description="0: always the likeliest token")
    top_p: float = Field(default=1.0, gt=0, le=1, description="sample from the likeliest tokens that have this share of the probability")
    top_k: int = Field(default=0, ge=0, description="sample from the K likeliest tokens; 0: all tokens")
    stop: list[str] = Field(default_factory=list, description="texts that end an answer, beside the end token")
    seed: int | None = Field(default=None, description="makes sampling repeatable; default: a new seed each time")


class Engine(Fields):
    """Settings of one vLLM engine."""

    tensor_parallel: int = Field(default=1, ge=1, le=MOST_GPUS_PER_NODE, description="GPUs of one engine, which share each weight matrix")
    batch: int = Field(default=64, ge=1, description="sequences in flight per engine")
    max_length: Count | Auto = Field(default="auto", description="prompt and answer tokens; auto: the model's own limit, at most 8192")
    precision: Precision = Field(
        default="auto", description="of weights and activations; auto: bf16 where the GPU has it, else fp16; fp32 on cpu"
    )
    memory_fraction: float = Field(default=0.9, gt=0, le=1, description="share of GPU memory for weights and KV cache")
    kv_cache: str | None = Field(
        default=None, description="KV cache on cpu, such as 2Gi; default: room for a whole batch, at most 4Gi; GPUs take memoryFraction"
    )
    eager: bool = Field(default=False, description="no CUDA graphs and no compilation: starts sooner, runs slower")


class ScoreTask(Fields):
    """Score a data set with a model."""

    model: ModelRef
    data: ScoreData
    generation: Generation = Field(default_factory=Generation)
    engine: Engine = Field(default_factory=Engine)
    metrics: list[MetricName] = Field(
        default_factory=list, max_length=MOST_METRICS, description=f"what is computed; {_needs_reference()} data.reference"
    )
    rows_per_part: int = Field(default=512, ge=1, description="rows per committed Parquet part: what a kill can cost at most, per engine")
    max_error_fraction: float = Field(default=0.1, ge=0, le=1, description="share of rows with errors, 0 to 1, above which the task fails")
