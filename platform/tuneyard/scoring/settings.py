"""Settings of an engine: the task's settings with every `auto` resolved, for a model in a local folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuneyard.api import BadInput, ScoreTask
from tuneyard.api import Engine as EngineWishes
from tuneyard.api.quantities import parse_size_bytes
from tuneyard.api.train import Precision
from tuneyard.catalog import ModelShape, gpu
from tuneyard.catalog.gpus import Dtype
from tuneyard.metrics import METRICS, needing
from tuneyard.planning import engine_length, gpus_of_machine, resolve_engine_plan, step_tokens
from tuneyard.scoring.adapter import LoraAdapter, read_adapter

ENGINE_ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1"}
"""Variables that vLLM reads on import."""
ENGINE_ENVIRONMENT_ON_CPU = {
    # One process per engine: no communication per step, and no process is left over when it is killed.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # No binding to cores: threads of several engines would all be bound to the first cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
_KV_BLOCK_TOKENS = 128  # vLLM's block size on CPU
_KV_DEFAULT_LIMIT_BYTES = 4 * 1024**3
_USUAL_PROMPT_TOKENS = 512
"""A guess for `batch: auto`: vLLM lets sequences wait, or starts them anew, where prompts are longer."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """One engine. `kv_cache_bytes` is None on GPUs, where the cache takes the rest of `memory_fraction`."""

    model: str
    tokenizer: str
    adapter: LoraAdapter | None
    precision: Dtype
    max_length: int
    batch: int
    step_tokens: int
    """Tokens of one scheduler step."""
    prefix_cache: bool | None
    """Whether caches of prompts are kept for others that begin alike; None: vLLM's default for the model."""
    tensor_parallel: int
    memory_fraction: float
    kv_cache_bytes: int | None
    eager: bool
    trust_remote_code: bool
    on_cpu: bool


def resolve_engine(task: ScoreTask, model: Path, shape: ModelShape, adapter: Path | None, *, sku: str) -> EngineSettings:
    """Resolve every `auto` of `task.engine`. `shape`: the shape of the model in the folder `model`.

    Raises BadInput for settings that do not work with the model.
    """
    engine = task.engine
    on_cpu = sku == "cpu"
    max_length = engine_length(task, shape)
    precision = _precision(engine.precision, sku)
    batch = engine.batch if engine.batch != "auto" else _batch(task, shape, max_length, precision, sku=sku)
    lora = read_adapter(adapter, model) if adapter is not None else None
    measured = [METRICS[name] for name in task.metrics]
    by_likelihood = [*needing("likelihood", measured), *needing("choices", measured), *(["lmEval"] if task.data.lm_eval else [])]
    if lora is not None and lora.adapts_head and by_likelihood:
        # vLLM ignores the adapted head in likelihoods of prompts: silently on GPUs, with a crash on CPU (vLLM issue 51594).
        raise BadInput(
            f"the adapter in {lora.folder} adapts lm_head, and the engine gives wrong likelihoods for such adapters",
            f"leave {', '.join(by_likelihood)} out of the score task, or set merge: true in the method of the train task "
            "and score its merged weights",
        )
    return EngineSettings(
        model=str(model),
        tokenizer=str(tokenizer_folder(model, adapter)),
        adapter=lora,
        precision=precision,
        max_length=max_length,
        batch=batch,
        step_tokens=(
            step_tokens(gpu(sku), engine.tensor_parallel, batch, max_length) if engine.step_tokens == "auto" else engine.step_tokens
        ),
        prefix_cache=None if engine.prefix_cache == "auto" else engine.prefix_cache,
        tensor_parallel=engine.tensor_parallel,
        memory_fraction=engine.memory_fraction,
        kv_cache_bytes=_kv_cache_bytes(engine, batch, _sequence_bytes(shape, max_length, precision)) if on_cpu else None,
        # Compilation takes longer than most CPU jobs, so on `cpu` it is used only on request.
        eager=engine.eager if "eager" in engine.model_fields_set or not on_cpu else True,
        trust_remote_code=task.model.trust_remote_code,
        on_cpu=on_cpu,
    )


def tokenizer_folder(model: Path, adapter: Path | None) -> Path:
    """The folder with the tokenizer: training saves its own, with the chat template, beside the adapter."""
    return adapter if adapter is not None and (adapter / "tokenizer_config.json").exists() else model


def _precision(wished: Precision, sku: str) -> Dtype:
    if wished != "auto":
        return wished
    if sku == "cpu":
        return "fp32"
    return "bf16" if gpu(sku).has_bf16 else "fp16"


def _batch(task: ScoreTask, shape: ModelShape, max_length: int, precision: Dtype, *, sku: str) -> int:
    """Sequences whose prompt and answer the KV cache holds, 1 to the bound of `auto`, for prompts of a usual length."""
    engine, usual = task.engine, min(max_length, _USUAL_PROMPT_TOKENS + task.generation.max_tokens)
    if sku == "cpu":
        cache = _KV_DEFAULT_LIMIT_BYTES if engine.kv_cache is None else int(parse_size_bytes(engine.kv_cache))
        held = cache // _sequence_bytes(shape, usual, precision)
    else:
        plan = resolve_engine_plan(task, shape, gpu(sku), gpus_per_node=gpus_of_machine(task))
        held = int(plan.kv_tokens // usual)
    return max(1, min(engine.most_in_flight, held))


def _sequence_bytes(shape: ModelShape, length: int, precision: Dtype) -> int:
    """The cache of one sequence on CPU, in whole blocks."""
    per_token = shape.layers * shape.kv_heads * (shape.head_dim + shape.value_dim) * (4 if precision == "fp32" else 2)
    return (-(-(length + 1) // _KV_BLOCK_TOKENS) + 1) * _KV_BLOCK_TOKENS * per_token


def _kv_cache_bytes(engine: EngineWishes, batch: int, sequence: int) -> int:
    """The task's setting; default: a whole batch of `sequence` bytes each, at most 4 GiB, at least two sequences."""
    if engine.kv_cache is not None:
        return int(parse_size_bytes(engine.kv_cache))
    return max(2 * sequence, min((batch + 1) * sequence, _KV_DEFAULT_LIMIT_BYTES))
