"""Shares of peaks that an engine reaches, and times that do not depend on the device: the constants of `planning.engines`.

Those of GPUs were fitted once, in logarithms of seconds, robustly (soft L1), with a prior around each, to the rows of
benchmarks/data/published_engines.csv that are marked `fit`: vLLM on A100, H100, H200 and MI300X, dense models of 7 to 70 billion
parameters, and two mixtures. docs/benchmarks/engine_speed.md has the errors on these rows and on the others. `experts_s` was introduced
with rows in sight that were not in the fit. On `cpu` they hold until past runs of the machine correct them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineEfficiency:
    """Shares of peaks (0 to 1), and seconds."""

    weights: float = 0.82
    """Share of memory bandwidth at which a pass reads weights."""
    cache: float = 0.63
    """Share of memory bandwidth at which attention reads the KV cache."""
    matmul: float = 0.7
    """Share of peak FLOP/s of the matrices of a pass with many tokens."""
    step_s: float = 1e-3
    """The engine's own time for a step: it chooses sequences, and prepares the inputs of the model."""
    layer_s: float = 41e-6
    """Gaps between the kernels of a layer, and elementwise kernels."""
    experts_s: float = 33e-6
    """The same for the routing of a layer with experts."""
    sequence_s: float = 71e-6
    """The engine's own time for a token of one sequence: it samples, and turns the token into text."""
    collective_s: float = 15e-6
    """Latency of an all-reduce inside a machine."""
    start_s: float = 20.0
    """Imports and the start of processes, before the first weight is read. Measured on 2 cores."""
    graphs_s: float = 40.0
    """Compilation and the capture of CUDA graphs, without `eager`. An assumption."""
    load_gb_s: float = 2.0
    """Rate at which weights are read into a machine. An assumption: one NVMe disk, shared."""


IN_USE = EngineEfficiency()
