"""Weights, gradients and optimizer states of one rank, in the dtypes that the libraries keep.

ZeRO: Rajbhandari et al. 2020, section 3. Dtypes: DeepSpeed 0.19 (`runtime/zero`), PEFT 0.21 (adapters are fp32), bitsandbytes 0.50, torch
2.13 (FSDP, AdamW), nanotron and Megatron-LM (fp32 accumulation of gradients).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuneyard.catalog import trainable_parameters
from tuneyard.planning.host import offloaded_bytes
from tuneyard.planning.setup import BYTES, Setup
from tuneyard.planning.tensor import rank_adapter_parameters, rank_parameters

MOMENT_BYTES = {"adamw": 8.0, "adamw-8bit": 2.0, "adafactor": 0.1, "sgd": 0.0}
"""Bytes per trained parameter: two fp32 moments; two of 8 bits; a row and a column of second moments; nothing."""
FP32 = 4
STEP_COPIES = 1
"""Copies of all trained parameters that torch's AdamW makes in a step (`foreach`): the square root of the second moments."""


@dataclass(frozen=True)
class States:
    """Bytes on one rank. `gradients`: all of them, after backward; `step`: extra memory of the optimizer step; `host`: offloaded states;
    `snapshot`: copies that a checkpoint makes in the memory of the process.
    """

    weights: float
    gradients: float
    optimizer: float
    step: float
    host: float
    snapshot: float
    stage: float
    """Parameters of this rank's pipeline stage and tensor-parallel share, before ZeRO."""
    trained: float
    """Trained parameters among `stage`."""
    parameter_width: int
    """Bytes of a weight in a forward pass."""


def states_of(setup: Setup, *, last_stage: bool) -> States:
    """The states of a rank of the first or of the last pipeline stage."""
    shape, layout = setup.shape, setup.layout
    width, data = BYTES[layout.precision], setup.shards
    stage = stage_parameters(setup, last_stage=last_stage)
    share = stage / shape.parameters
    adapter = setup.method.adapter is not None
    trained = _adapter_parameters(setup, share) if adapter else stage
    halved = setup.optimizer_states == "bf16"
    moments = MOMENT_BYTES[setup.optimizer] * (0.5 if halved else 1.0)
    if layout.engine == "fsdp":
        # Without mixed precision, weights loaded in 16 bits stay so, and moments take their dtype; PEFT's adapters are fp32.
        trained_width = FP32 if adapter or (layout.mixed_precision and layout.zero == 3) else width
        weights, gradients = trained * trained_width, trained * trained_width
        optimizer = trained * moments * trained_width / FP32
        step = STEP_COPIES * trained * trained_width
        sharded = layout.zero == 3
        weights, gradients, optimizer, step = (each / data if sharded else each for each in (weights, gradients, optimizer, step))
        frozen = _frozen(setup, width) * share / (data if sharded else 1) if adapter else 0.0
        return States(weights + frozen, gradients, optimizer, step, 0.0, 0.0, stage, trained, width)
    # DeepSpeed keeps fp32 masters, also in fp32 training. Without it, trained weights are fp32 themselves. Megatron accumulates in fp32.
    fp32_gradients = layout.engine in ("megatron", "nanotron")
    masters = layout.zero > 0 or fp32_gradients
    trained_width = width if masters else FP32
    weights = trained * trained_width + (_frozen(setup, width) * share if adapter else 0.0)
    gradients = trained * (FP32 if fp32_gradients else trained_width)
    if layout.engine == "nanotron" and layout.grad_accum > 1:
        gradients += trained * width
    optimizer = trained * (moments + (FP32 if masters else 0))
    step = 0.0
    if layout.zero >= 1:
        optimizer /= data
    if layout.zero >= 2:
        gradients /= data
    if masters and width < FP32 and layout.engine == "deepspeed":
        step = FP32 * trained / data  # an fp32 copy of this rank's gradients
    elif not masters and not halved and setup.gpu.is_cpu:  # the bf16 AdamW works by pieces, and the fused one of GPUs makes no copy
        step = STEP_COPIES * trained * FP32 if setup.optimizer == "adamw" else 0.0
    if setup.objective == "dpo" and not adapter:
        weights *= 2  # the reference, in the same dtype and layout
    if layout.zero == 3:
        weights /= data
    host = offloaded_bytes(setup, trained=trained, moments=moments, weights=weights)
    if layout.offload_optimizer != "none":
        optimizer = step = 0.0
        # From stage 2 on, each gradient moves to the host as soon as it is reduced.
        gradients = 0.0 if layout.zero >= 2 else gradients
    if layout.offload_parameters != "none":
        weights = 0.0
    snapshot = trained * (FP32 + moments) / layout.gradient_ranks  # each rank writes its share of fp32 weights and moments
    return States(weights, gradients, optimizer, step, host, snapshot, stage, trained, width)


def stage_parameters(setup: Setup, *, last_stage: bool) -> float:
    """Parameters that a rank of the first (with the embedding) or last (with the head) pipeline stage works on."""
    shape, layout = setup.shape, setup.layout
    if layout.pipeline_parallel == 1:
        return rank_parameters(shape, layout.tensor_parallel) if layout.is_ours else shape.parameters / layout.tensor_parallel
    outer = shape.head.weights if last_stage else shape.embedding_parameters
    inner = shape.parameters - shape.embedding_parameters - (0 if shape.tied else shape.head.weights)
    # If layers do not divide over the stages, this is the fuller stage.
    return (inner / shape.layers * -(-shape.layers // layout.pipeline_parallel) + outer) / layout.tensor_parallel


def _adapter_parameters(setup: Setup, share: float) -> float:
    layout = setup.layout
    trained = float(trainable_parameters(setup.shape, setup.method))
    if not layout.is_ours or layout.tensor_parallel == 1:
        return trained * share
    alone = replace(setup, layout=replace(layout, tensor_parallel=1))
    return trained * rank_adapter_parameters(setup) / rank_adapter_parameters(alone)


def _frozen(setup: Setup, width: int) -> float:
    """Bytes of weights that an adapter does not train. In 4 bits, bitsandbytes keeps a scale per 64 weights: fp32, or 8 bits with an fp32
    per 256 scales.

    It quantises the layers' matrices; embedding, head, norms and fused experts keep their dtype.
    """
    shape, qlora = setup.shape, setup.method.qlora
    if qlora is None:
        return float(shape.parameters * width)
    quantised = sum(p.layers * p.copies * p.weights for p in shape.projections if p.stage != "head" and not p.stacked)
    return quantised * quantised_width(scales_too=qlora.double_quantization) + (shape.parameters - quantised) * width


def quantised_width(*, scales_too: bool) -> float:
    """Bytes of a 4-bit weight with its share of the scales, which may be quantised too."""
    return 0.5 + ((1 + 4 / 256) / 64 if scales_too else 4 / 64)
