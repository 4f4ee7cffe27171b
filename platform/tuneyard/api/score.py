"""A score task: prompts through a model, rows out, with metrics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuneyard.api.base import Fields
from tuneyard.api.data import ScoreData
from tuneyard.api.train import Auto, Count, ModelRef, Precision

MetricName = Literal["exact_match", "rouge_l", "bleu", "perplexity"]


class Generation(Fields):
    max_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0, description="0: all tokens")
    stop: list[str] = Field(default_factory=list)
    seed: int | None = None


class Engine(Fields):
    """Settings of one vLLM engine."""

    tensor_parallel: int = Field(default=1, ge=1)
    batch: int = Field(default=64, ge=1, description="sequences in flight per engine")
    max_length: Count | Auto = Field(default="auto", description="prompt and answer tokens; auto: the model's own limit, at most 8192")
    precision: Precision = "auto"
    memory_fraction: float = Field(default=0.9, gt=0, le=1, description="share of GPU memory for weights and KV cache")
    kv_cache: str | None = Field(default=None, description="KV cache on cpu, such as 2Gi; GPUs take memoryFraction")
    eager: bool = Field(default=False, description="no CUDA graphs and no compilation: starts sooner, runs slower")


class ScoreTask(Fields):
    """Score a data set with a model."""

    model: ModelRef
    data: ScoreData
    generation: Generation = Field(default_factory=Generation)
    engine: Engine = Field(default_factory=Engine)
    metrics: list[MetricName] = Field(default_factory=list)
    rows_per_part: int = Field(default=512, ge=1, description="rows per committed Parquet part: what a kill can cost at most, per engine")
    max_error_fraction: float = Field(default=0.1, ge=0, le=1, description="rows with errors tolerated before the task counts as failed")
