"""An engine of a score task: weights, KV cache per token, tensor parallelism, and the number of sequences that it holds at once.

Memory is divided as in vLLM (Kwon et al. 2023, PagedAttention, 4): `memory_fraction` of a GPU holds the weights and the activations of one
scheduler step, and the KV cache takes the rest. Tensor-parallel ranks divide weights, and key heads as far as there are enough.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput, ScoreTask
from tuneyard.api.quantities import parse_size_bytes
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.setup import BYTES, Precision

LONGEST_AUTO = 8192
_STEP_TOKENS, _STEP_TOKENS_LARGE, _STEP_TOKENS_CPU = 8192, 16384, 4096
_LARGE_GB, _AMPERE = 75.0, "sm80"
_OUTSIDE_GB = 1.5
"""CUDA context, NCCL and CUDA graphs. They fit into the memory outside `memory_fraction`, or else reduce the cache."""
_CPU_CACHE_BYTES = 4 * 1024**3
_DEGREES = (1, 2, 4, 8, 16)
_ENOUGH_SEQUENCES = 8
_USUAL_GPUS = 8


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """One engine of a score task. Sizes are those of one of its GPUs, in 1e9 bytes."""

    sku: str
    tensor_parallel: int
    engines_per_node: int
    """On `cpu`: the task's number of engines, which share the machine."""
    precision: Precision
    max_length: int
    """Tokens of a prompt and its answer together."""
    weights_gb: float
    other_gb: float
    """Activations of one step, and reserved memory."""
    kv_gb: float
    kv_bytes_per_token: float
    """Over all GPUs of the engine, at full length. Layers with a sliding window keep no more than the window."""
    step_tokens: int
    kv_tokens: int
    """Tokens that the cache holds, in sequences of full length."""
    max_sequences: int
    """Sequences of full length in flight at once: the capacity of the cache, bounded by `engine.batch`."""

    @property
    def total_gb(self) -> float:
        return self.weights_gb + self.other_gb + self.kv_gb

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "total_gb": self.total_gb}


def resolve_engine_plan(task: ScoreTask, shape: ModelShape, gpu: Gpu, *, instances: int = 1, gpus_per_node: int = 8) -> EnginePlan:
    """The engine of `task` on GPUs of one kind, at the task's tensor parallelism.

    It fits when the cache holds one sequence of full length. Without a degree in the task, the engine has the smallest degree at which the
    cache holds eight sequences (or `engine.batch`), or else the degree with the most. `instances`: engines that the task asks for. Raises
    BadInput if the engine does not fit, with the degree or the batch that fits; if the degree does not divide the model's heads; and if it
    needs more GPUs than a machine has.
    """
    engine_length(task, shape)
    asked = task.engine.tensor_parallel
    if "tensor_parallel" not in task.engine.model_fields_set and not gpu.is_cpu:
        found = _smallest(task, shape, gpu, instances, gpus_per_node)
        if found is not None:
            return found
    if not _divides(asked, shape):
        heads = f"{shape.kv_heads} KV heads" if shape.heads % asked == 0 else f"{shape.heads} heads"
        raise BadInput(f"tensorParallel {asked} does not divide {heads}", _degrees_advice(task, shape, gpu, instances, gpus_per_node))
    if asked > gpus_per_node and not gpu.is_cpu:
        raise BadInput(
            f"tensorParallel {asked} needs {asked} GPUs of one machine, and a machine of {gpu.sku} has {gpus_per_node}: the ranks of an "
            "engine are on one machine",
            f"{_advice(task, shape, gpu, gpus_per_node)}, or name the GPUs of a larger machine (--gpus-per-node)",
        )
    plan = _engine(task, shape, gpu, asked, instances, gpus_per_node)
    if plan.max_sequences:
        return plan
    largest = _largest_batch(task, shape, gpu, asked, instances, gpus_per_node)
    if largest:
        raise BadInput(
            f"engine.batch {task.engine.most_in_flight:,} is too large for {asked} x {gpu.sku}: {_excess(task, gpu, plan, instances)}",
            f"set engine.batch to auto, or to at most {largest:,}",
        )
    raise BadInput(
        f"an engine does not fit on {asked} x {gpu.sku}: weights take {plan.weights_gb:.1f} GB of each, and a sequence of "
        f"{plan.max_length} tokens {plan.kv_bytes_per_token * plan.max_length / asked / 1e9:.1f} GB, of "
        f"{task.engine.memory_fraction * gpu.memory_gb:.1f} GB",
        _advice(task, shape, gpu, gpus_per_node),
    )


def engine_length(task: ScoreTask, shape: ModelShape) -> int:
    """Tokens of a prompt and its answer together, at most. Raises BadInput for a length beyond the model's positions, and for one without
    room for a prompt and an answer.
    """
    asked = task.engine.max_length
    if asked == 1:
        raise BadInput("engine.maxLength is 1, and a prompt with its answer has 2 tokens or more", "set engine.maxLength to at least 2")
    if asked == "auto":
        return min(shape.max_positions, LONGEST_AUTO)
    if asked > shape.max_positions:
        raise BadInput(
            f"engine.maxLength is {asked}, but the model was built for {shape.max_positions} positions",
            f"set engine.maxLength to at most {shape.max_positions}",
        )
    return asked


def gpus_of_machine(task: ScoreTask) -> int:
    """GPUs of a machine for the task, where they are not known: eight, or as many as its engine needs."""
    return max(_USUAL_GPUS, task.engine.tensor_parallel)


def keeps_no_cache(shape: ModelShape) -> bool:
    """Whether no layer has attention to earlier tokens, so that nothing is cached for them: a state-space model (Mamba, RWKV)."""
    return shape.sliding_window == 1 and shape.sliding_layers == shape.layers


def _smallest(task: ScoreTask, shape: ModelShape, gpu: Gpu, instances: int, gpus_per_node: int) -> EnginePlan | None:
    """The engine at the smallest degree with enough sequences in flight; None if no degree fits."""
    enough = min(_ENOUGH_SEQUENCES, task.engine.most_in_flight)
    degrees = [degree for degree in _DEGREES if degree <= gpus_per_node and _divides(degree, shape)]
    engines = [_engine(task, shape, gpu, degree, instances, gpus_per_node) for degree in degrees]
    most = max(engines, key=lambda engine: engine.max_sequences)
    found = next((engine for engine in engines if engine.max_sequences >= enough), most)
    return found if found.max_sequences else None


def _divides(degree: int, shape: ModelShape) -> bool:
    """Whether ranks can share the heads as vLLM does (`ModelConfig.verify_with_parallel_config`): ranks beyond the number of KV heads
    repeat them evenly. Latent attention has a single latent, which every rank repeats.
    """
    if shape.heads % degree:
        return False
    keys = max(1, shape.kv_heads)
    return _latent(shape) is not None or max(degree, keys) % min(degree, keys) == 0


def _latent(shape: ModelShape) -> int | None:
    """Elements of the latent of latent attention (MLA); None: the model has keys and values."""
    return next((p.outputs for p in shape.projections if p.name == "kv_a_proj_with_mqa"), None)


def kv_bytes_per_sequence(shape: ModelShape, length: int, precision: Precision, tensor_parallel: int = 1) -> float:
    """Bytes of the KV cache of one sequence of `length` tokens, over all GPUs of an engine.

    Each layer keeps a key and a value per key head; latent attention (MLA) keeps one latent for all heads, on every rank. Ranks beyond the
    number of key heads repeat them. A layer with a sliding window keeps no more than the window.
    """
    latent = _latent(shape)
    if latent is not None:
        per_layer = float(latent * tensor_parallel)
    else:
        per_layer = float(max(shape.kv_heads, tensor_parallel) * (shape.head_dim + shape.value_dim))
    windowed = min(length, shape.sliding_window or length)
    tokens = (shape.layers - shape.sliding_layers) * length + shape.sliding_layers * windowed
    return per_layer * tokens * BYTES[precision]


def _engine(task: ScoreTask, shape: ModelShape, gpu: Gpu, degree: int, instances: int, gpus_per_node: int) -> EnginePlan:
    engine = task.engine
    precision = _precision(task, gpu)
    longest = engine_length(task, shape)
    width = BYTES[precision]
    weights = shape.parameters * width / degree
    sequence = kv_bytes_per_sequence(shape, longest, precision, degree)
    # Activations at the widest point of a layer, and fp32 logits of the sequences in flight.
    step = step_tokens(gpu, degree, engine.most_in_flight, longest) if engine.step_tokens == "auto" else engine.step_tokens
    activations = step * (4 * shape.hidden + 3 * shape.ffn / degree) * width + 4 * engine.most_in_flight * shape.vocab
    if gpu.is_cpu:
        given = parse_size_bytes(engine.kv_cache) if engine.kv_cache else min((engine.most_in_flight + 1) * sequence, _CPU_CACHE_BYTES)
        room = gpu.memory_gb * 1e9 / instances - weights - activations
        cache = float(given) if given <= room else 0.0
        other = activations
        nodes = instances
    else:
        free = (1 - engine.memory_fraction) * gpu.memory_gb * 1e9
        other = activations + max(0.0, _OUTSIDE_GB * 1e9 - free)
        cache = max(0.0, engine.memory_fraction * gpu.memory_gb * 1e9 - weights - other)
        nodes = gpus_per_node // degree
    held = int(cache * degree / sequence)
    return EnginePlan(
        sku=gpu.sku,
        tensor_parallel=degree,
        engines_per_node=nodes,
        precision=precision,
        max_length=longest,
        weights_gb=weights / 1e9,
        other_gb=other / 1e9,
        kv_gb=cache / 1e9,
        kv_bytes_per_token=sequence / longest,
        step_tokens=step,
        kv_tokens=int(cache * degree / sequence * longest),
        max_sequences=min(held, engine.most_in_flight),
    )


def step_tokens(gpu: Gpu, tensor_parallel: int, in_flight: int, longest: int) -> int:
    """Tokens of one scheduler step, whose activations the profiling run measures. The engine gets this number as `max_num_batched_tokens`.

    It is that of vLLM 0.32 for offline engines: larger on cards of 70 GiB and more, except A100, where larger steps are slower
    (`EngineArgs.get_batch_defaults`).
    """
    large = gpu.memory_gb >= _LARGE_GB and gpu.architecture != _AMPERE
    usual = _STEP_TOKENS_CPU * tensor_parallel if gpu.is_cpu else _STEP_TOKENS_LARGE if large else _STEP_TOKENS
    return max(in_flight, min(usual, in_flight * longest))


def _precision(task: ScoreTask, gpu: Gpu) -> Precision:
    asked = task.engine.precision
    if asked != "auto":
        return asked
    return "fp32" if gpu.is_cpu else "bf16" if gpu.has_bf16 else "fp16"


def _excess(task: ScoreTask, gpu: Gpu, plan: EnginePlan, instances: int) -> str:
    """What a batch takes that does not fit beside the weights."""
    if gpu.is_cpu:
        return (
            f"beside {plan.weights_gb:.1f} GB of weights, the cache and the activations of its sequences do not fit into the "
            f"{gpu.memory_gb / instances:.1f} GB of an engine"
        )
    return (
        f"beside {plan.weights_gb:.1f} GB of weights, the activations of a step with all of its sequences take {plan.other_gb:.1f} GB, "
        f"of {task.engine.memory_fraction * gpu.memory_gb:.1f} GB"
    )


def _largest_batch(task: ScoreTask, shape: ModelShape, gpu: Gpu, degree: int, instances: int, gpus_per_node: int) -> int:
    """The largest `engine.batch` below that of the task with which an engine fits; 0: none."""

    def fits(batch: int) -> bool:
        smaller = task.model_copy(update={"engine": task.engine.model_copy(update={"batch": batch})})
        return _engine(smaller, shape, gpu, degree, instances, gpus_per_node).max_sequences > 0

    return bisect_left(range(1, task.engine.most_in_flight), True, key=lambda batch: not fits(batch))


def _degrees_advice(task: ScoreTask, shape: ModelShape, gpu: Gpu, instances: int, gpus_per_node: int) -> str:
    """The degrees that divide the model and with which an engine fits, or the advice where there are none."""
    degrees = [degree for degree in range(1, gpus_per_node + 1) if _divides(degree, shape) and shape.ffn % degree == 0]
    fitting = [str(each) for each in degrees if _engine(task, shape, gpu, each, instances, gpus_per_node).max_sequences]
    if not fitting:
        return _advice(task, shape, gpu, gpus_per_node)
    return f"set engine.tensorParallel to {' or '.join([*([', '.join(fitting[:-1])] if fitting[1:] else []), fitting[-1]])}"


def _advice(task: ScoreTask, shape: ModelShape, gpu: Gpu, gpus_per_node: int) -> str:
    found = None if gpu.is_cpu else _smallest(task, shape, gpu, 1, gpus_per_node)
    if found is not None:
        return f"set engine.tensorParallel to {found.tensor_parallel}"
    return f"use a device with more memory than {gpu.sku}, a smaller model, or a shorter engine.maxLength"
