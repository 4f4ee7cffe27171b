"""One vLLM engine that is fed while it runs, so that its batch never drains between one part of the data and the next.

`Engine.run` pulls requests from an iterator, keeps a bounded number of them in the engine, and yields answers as they finish.
vLLM is imported when an engine is built.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import Generation
from tuneyard.scoring.prompts import Likelihood
from tuneyard.scoring.ranks import RankLost, executor_of, told, unnamed_shared_memory, use_folder, worker_class
from tuneyard.scoring.settings import ENGINE_ENVIRONMENT, ENGINE_ENVIRONMENT_ON_CPU, EngineSettings
from tuneyard.warm import temporary_folder


@dataclass(frozen=True, slots=True)
class Generate:
    """Asks for an answer to the prompt `ids`. `seed` makes sampling repeatable."""

    key: Any
    ids: list[int]
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Asks for the likelihood of tokens."""

    key: Any
    tokens: Likelihood


@dataclass(frozen=True, slots=True)
class Answer:
    """Of a Generate: text, finish_reason, output_tokens. Of an Evaluate: nll, in nats. Or an error, of this request alone."""

    key: Any
    latency_s: float
    text: str | None = None
    finish_reason: str | None = None
    output_tokens: int = 0
    nll: float | None = None
    error: str | None = None


Asked = Generate | Evaluate


class Engine:
    """A loaded engine. For one thread at a time."""

    def __init__(self, settings: EngineSettings, generation: Generation, ends: Sequence[int] = ()) -> None:
        """Load the model: some 20 s of one core before the first weight is read, most of it vLLM's imports, which each rank repeats.

        `ends`: tokens that end an answer, beside the end tokens of tokenizer and model, which the engine knows.
        Raises what vLLM raises; of several ranks RankFailed, or RankLost.
        """
        _set_environment(settings)
        self._settings = settings
        self._begin_thread()
        from vllm import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        if settings.on_cpu:
            _inspect_models_here()
        self._generation = generation
        self._ends = list(ends)
        self._left_behind = ExitStack()
        folder = self._left_behind.enter_context(temporary_folder("ty-engine-", Path("/tmp")))
        use_folder(folder)
        with told(folder), unnamed_shared_memory() if settings.tensor_parallel > 1 else nullcontext():
            self._vllm = LLMEngine.from_engine_args(EngineArgs(**engine_arguments(settings)))
        self._lora = _lora_request(settings)
        self._running: dict[str, tuple[Asked, float]] = {}
        self._asked = 0
        # Enough beyond the batch that a sequence that ends is followed by another in the very next step.
        self._at_most = settings.batch + max(1, settings.batch // 4)

    def _begin_thread(self) -> None:
        """What torch keeps for each thread: the engine is built in one, and runs in another."""
        _take_threads()
        if self._settings.on_cpu and self._settings.eager:
            _never_compile()

    @property
    def in_flight(self) -> int:
        """Requests that the engine has and has not answered."""
        return len(self._running)

    def run(self, requests: Iterator[Asked | None]) -> Iterator[Answer]:
        """Answer all `requests`, in the order in which they finish.

        The iterator yields None where it has nothing for now; it may block only while `in_flight` is 0.
        Raises RankLost where a rank was killed, once the others have ended.
        """
        self._begin_thread()
        try:
            yield from self._answers(requests)
        except Exception as error:
            self._check_ranks(error)
            raise

    def close(self) -> None:
        """Remove what vLLM would leave behind on the disk. The process has to end next."""
        self._left_behind.close()

    def _check_ranks(self, error: Exception) -> None:
        """Raises RankLost where `error` is of a rank that was killed. vLLM ends the others then, which takes up to 10 s where they wait in
        a collective for the lost one."""
        executor = executor_of(self._vllm)
        if not getattr(executor, "is_failed", False):
            return
        while any(worker.proc.is_alive() for worker in executor.workers):
            time.sleep(0.1)
        raise RankLost("a rank of the engine was killed") from error

    def _answers(self, requests: Iterator[Asked | None]) -> Iterator[Answer]:
        more = True
        while more or self._running:
            while more and len(self._running) < self._at_most:
                request = next(requests, _END)
                if isinstance(request, _End):
                    more = False
                elif request is None:
                    break
                else:
                    yield from self._hand_over(request)
            if self._running:
                yield from self._step()

    def _hand_over(self, request: Asked) -> Iterator[Answer]:
        """Nothing is yielded, unless the engine refuses the request."""
        from vllm.inputs.engine import tokens_input

        self._asked += 1
        name = str(self._asked)
        ids = request.ids if isinstance(request, Generate) else request.tokens.ids
        try:
            self._vllm.add_request(name, tokens_input(ids), self._sampling(request), lora_request=self._lora)
        except ValueError as error:
            yield Answer(request.key, 0.0, error=f"the engine refuses it: {error}")
        else:
            self._running[name] = (request, time.perf_counter())

    def _sampling(self, request: Asked) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        if isinstance(request, Evaluate):
            return SamplingParams(
                max_tokens=1,  # the engine knows no less
                temperature=0.0,
                prompt_logprobs=0,  # of the prompt's own tokens alone
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
        wished = self._generation
        return SamplingParams(
            max_tokens=min(wished.max_tokens, self._settings.max_length - len(request.ids)),
            temperature=wished.temperature,
            top_p=wished.top_p,
            top_k=wished.top_k,
            stop=wished.stop,
            stop_token_ids=self._ends,
            seed=request.seed,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _step(self) -> Iterator[Answer]:
        for output in self._vllm.step():
            if not output.finished:
                continue
            request, since = self._running.pop(output.request_id)
            latency_s = time.perf_counter() - since
            if isinstance(request, Evaluate):
                yield _likelihood(request, latency_s, output.prompt_logprobs)
            else:
                yield _generated(request, latency_s, output.outputs[0])


_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class _End:
    """Follows the last request."""


_END = _End()


def _generated(request: Generate, latency_s: float, made: Any) -> Answer:
    if made.finish_reason not in ("stop", "length"):
        return Answer(request.key, latency_s, error=f"the engine gave up on it ({made.finish_reason})")
    return Answer(request.key, latency_s, made.text, made.finish_reason, len(made.token_ids))


def _likelihood(request: Evaluate, latency_s: float, logprobs: Any) -> Answer:
    """`logprobs` is flat: one entry per token after the first, which has none."""
    nll = -sum(logprobs.logprobs[logprobs.start_indices[i]] for i, counts in enumerate(request.tokens.counted) if counts)
    if not math.isfinite(nll):
        return Answer(request.key, latency_s, error="the model gives the reference no finite likelihood (NaN or zero)")
    return Answer(request.key, latency_s, nll=nll)


def engine_arguments(settings: EngineSettings) -> dict[str, Any]:
    """Keyword arguments for vLLM's `EngineArgs` or `LLM`: the same engine by either."""
    arguments: dict[str, Any] = {
        "model": settings.model,
        "tokenizer": settings.tokenizer,
        "dtype": _DTYPES[settings.precision],
        "max_model_len": settings.max_length,
        "max_num_seqs": settings.batch,
        "tensor_parallel_size": settings.tensor_parallel,
        "gpu_memory_utilization": settings.memory_fraction,
        "kv_cache_memory_bytes": settings.kv_cache_bytes,
        "enforce_eager": settings.eager,
        "trust_remote_code": settings.trust_remote_code,
        "disable_log_stats": True,
    }
    if settings.tensor_parallel > 1:
        arguments |= {"distributed_executor_backend": "mp", "worker_cls": worker_class(on_cpu=settings.on_cpu)}
    if settings.adapter is not None:
        arguments |= {
            "enable_lora": True,
            "max_lora_rank": settings.adapter.engine_rank,
            "max_loras": 1,
            # Left to itself, vLLM wraps all that could be adapted; a wrapped head cannot give likelihoods of prompts.
            "lora_target_modules": list(settings.adapter.targets),
        }
    return arguments


def _set_environment(settings: EngineSettings) -> None:
    """vLLM reads these when it is imported or an engine is built; there is no other way to say them."""
    for name, value in ENGINE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if settings.on_cpu:
        os.environ.update(ENGINE_ENVIRONMENT_ON_CPU)


def _inspect_models_here() -> None:
    """vLLM looks at an architecture that is new to its cache in another process, which imports all of vLLM again, so that this one makes no
    CUDA context. On cpu there is none to make."""
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()


def _take_threads() -> None:
    """OpenMP gives a new thread the number that OMP_NUM_THREADS had when torch was loaded, which in a forked process was another's. torch
    knows the right one, and puts it on in each thread that asks; vLLM's kernels do not ask, and fail where it changes under them."""
    import torch

    torch.get_num_threads()


def _never_compile() -> None:
    """`enforce_eager` spares the model alone: the likelihoods' ranks would still be compiled, which takes seconds and a C++ compiler."""
    import torch._dynamo

    torch._dynamo.config.disable = True


def _lora_request(settings: EngineSettings) -> Any:
    if settings.adapter is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest("adapter", 1, settings.adapter.folder)
