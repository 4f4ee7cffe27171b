"""One vLLM engine that receives requests while it runs, so that its batch never drains between two parts of the data.

`Engine.run` pulls requests from an iterator, keeps a bounded number of them in the engine, and yields answers as they finish.
vLLM is imported when an engine is built.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from itertools import compress
from pathlib import Path
from typing import Any

from tuneyard.api import Generation
from tuneyard.scoring.exchange import Answer, Asked, Evaluate, Generate, Sampling
from tuneyard.scoring.prompts import Likelihood
from tuneyard.scoring.rank_deaths import RankLost, never_waits_for_the_dead, wait_for_ends
from tuneyard.scoring.ranks import executor_of, raise_reported, unnamed_shared_memory, use_folder, worker_class
from tuneyard.scoring.settings import ENGINE_ENVIRONMENT, ENGINE_ENVIRONMENT_ON_CPU, EngineSettings
from tuneyard.scoring.special_marks import SpecialMarks
from tuneyard.warm import temporary_folder


class VllmEngine:
    """A loaded engine (see `exchange.Engine`)."""

    def __init__(
        self, settings: EngineSettings, generation: Generation, ends: Sequence[int] = (), marks: SpecialMarks | None = None
    ) -> None:
        """Load the model. It takes about 20 s of one core before the first weight is read, mostly for vLLM's imports in each rank.

        `ends`: tokens that end an answer, in addition to the end tokens of tokenizer and model, which the engine knows. `marks`: of
        thoughts, where they are special tokens.
        Raises vLLM's errors; with several ranks RankFailed or RankLost.
        """
        _set_environment(settings)
        self._settings = settings
        self._begin_thread()
        from vllm import EngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        if settings.on_cpu:
            _inspect_models_here()
        self._generation = generation
        self._ends = list(ends)
        self._marks = marks
        self._left_behind = ExitStack()
        folder = self._left_behind.enter_context(temporary_folder("ty-engine-", Path("/tmp")))
        use_folder(folder)
        with raise_reported(folder), _ranks(folder) if settings.tensor_parallel > 1 else nullcontext():
            # As `vllm.LLM`: steps of two to eight times the tokens of an online engine, whose latency per token matters.
            arguments = EngineArgs(**engine_arguments(settings), **_structured(generation))
            self._vllm = LLMEngine.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)
        self._lora = _lora_request(settings)
        self._running: dict[str, tuple[Asked, float]] = {}
        self._asked = 0
        # Some requests beyond the batch, so that each finished sequence is replaced in the very next step.
        self._at_most = settings.batch + max(1, settings.batch // 4)

    def _begin_thread(self) -> None:
        """Set torch's per-thread state. The engine is built in one thread, and runs in another."""
        _take_threads()
        if self._settings.on_cpu and self._settings.eager:
            _never_compile()

    @property
    def in_flight(self) -> int:
        """Number of requests in the engine that are not answered yet."""
        return len(self._running)

    def run(self, requests: Iterator[Asked | None]) -> Iterator[Answer]:
        """Answer all `requests`, in the order in which they finish.

        The iterator yields None while it has no request; it may block only while `in_flight` is 0.
        Raises RankLost if a rank was killed, once the other ranks have ended.
        """
        self._begin_thread()
        try:
            yield from self._answers(requests)
        except Exception as error:
            self._check_ranks(error)
            raise

    def close(self) -> None:
        """Remove vLLM's files. The process must end after this call."""
        self._left_behind.close()

    def _check_ranks(self, error: Exception) -> None:
        """Raises RankLost where `error` comes from a killed rank, once the other ranks have ended."""
        if self._settings.tensor_parallel > 1 and wait_for_ends(executor_of(self._vllm)):
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
        """Give a request to the engine. Yields an answer only if the engine refuses the request."""
        from vllm.inputs.engine import tokens_input

        self._asked += 1
        name = str(self._asked)
        ids = request.prompt if isinstance(request, Generate) else request.tokens.ids
        try:
            self._vllm.add_request(name, tokens_input(ids), self._sampling(request), lora_request=self._lora)
        except ValueError as error:
            yield Answer(request.key, 0.0, error=f"the engine refuses it: {error}")
        else:
            self._running[name] = (request, time.perf_counter())

    def _sampling(self, request: Asked) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        if isinstance(request, Evaluate):
            return SamplingParams(
                max_tokens=1,  # the engine's minimum
                temperature=0.0,
                prompt_logprobs=1 if request.greedy else 0,  # of the prompt's own tokens, and of the likeliest
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
        if request.sampling is not None:
            return _own_sampling(request, request.sampling, self._settings.max_length)
        wished = self._generation
        return SamplingParams(
            max_tokens=min(wished.max_tokens, self._settings.max_length - len(request.prompt)),
            temperature=wished.temperature,
            top_p=wished.top_p,
            top_k=wished.top_k,
            stop=wished.stop,
            stop_token_ids=self._ends,
            seed=request.seed,
            structured_outputs=StructuredOutputsParams(json=wished.json_schema) if wished.json_schema is not None else None,
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
                yield _generated(request, latency_s, output.outputs[0], self._marks)


@contextmanager
def _ranks(folder: Path) -> Iterator[None]:
    """Around the load of an engine with several ranks."""
    with never_waits_for_the_dead(folder), unnamed_shared_memory():
        yield


_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class _End:
    """Marks the end of requests."""


_END = _End()


def _generated(request: Generate, latency_s: float, made: Any, marks: SpecialMarks | None) -> Answer:
    if made.finish_reason not in ("stop", "length"):
        return Answer(request.key, latency_s, error=f"the engine gave up on it ({made.finish_reason})")
    by_stop_text = isinstance(made.stop_reason, str)  # of an end token it is the token, or None
    text = made.text
    if marks is not None and request.sampling is None:
        text = marks.text(made.token_ids, text)
    ids = tuple(made.token_ids) if request.sampling is not None else None
    return Answer(request.key, latency_s, text, made.finish_reason, len(made.token_ids), by_stop_text=by_stop_text, output_ids=ids)


def _own_sampling(request: Generate, sampling: Sampling, max_length: int) -> Any:
    """Settings of a request of its own. Control tokens stay in the text, so that texts of `stop` may be control tokens."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        **{**asdict(sampling), "max_tokens": min(sampling.max_tokens, max_length - len(request.prompt))},
        seed=request.seed,
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _likelihood(request: Evaluate, latency_s: float, logprobs: Any) -> Answer:
    """The answer to an Evaluate. `logprobs` is flat: one entry per token after the first one; with `greedy` a second one, of the likeliest
    token, unless that is the token itself."""
    nll = -sum(logprobs.logprobs[logprobs.start_indices[i]] for i, counts in enumerate(request.tokens.counted) if counts)
    if not math.isfinite(nll):
        return Answer(request.key, latency_s, error="the model gives the reference no finite likelihood (NaN or zero)")
    return Answer(request.key, latency_s, nll=nll, greedy=_is_greedy(request.tokens, logprobs) if request.greedy else None)


def _is_greedy(tokens: Likelihood, logprobs: Any) -> bool:
    """Whether each token that counts is the likeliest one. Where several are equally likely, in bf16 a case of every day, the engine names
    one of them, as argmax does; ranks would count all of them as less likely."""
    likeliest = (logprobs.token_ids[logprobs.end_indices[i] - 1] for i, counts in enumerate(tokens.counted) if counts)
    return all(found == token for found, token in zip(likeliest, compress(tokens.ids, tokens.counted), strict=True))


def engine_arguments(settings: EngineSettings) -> dict[str, Any]:
    """Keyword arguments for vLLM's `EngineArgs` or `LLM`; both give the same engine."""
    arguments: dict[str, Any] = {
        "model": settings.model,
        "tokenizer": settings.tokenizer,
        "dtype": _DTYPES[settings.precision],
        "max_model_len": settings.max_length,
        "max_num_seqs": settings.batch,
        "max_num_batched_tokens": settings.step_tokens,
        "tensor_parallel_size": settings.tensor_parallel,
        "gpu_memory_utilization": settings.memory_fraction,
        "kv_cache_memory_bytes": settings.kv_cache_bytes,
        "enforce_eager": settings.eager,
        "trust_remote_code": settings.trust_remote_code,
        "disable_log_stats": True,
    }
    if settings.prefix_cache is not None:
        arguments["enable_prefix_caching"] = settings.prefix_cache
    if settings.tensor_parallel > 1:
        arguments |= {"distributed_executor_backend": "mp", "worker_cls": worker_class(on_cpu=settings.on_cpu)}
    if settings.adapter is not None:
        arguments |= {
            "enable_lora": True,
            "max_lora_rank": settings.adapter.engine_rank,
            "max_loras": 1,
            # By default, vLLM wraps all modules that can be adapted; a wrapped head cannot compute likelihoods of prompts.
            "lora_target_modules": list(settings.adapter.targets),
        }
    return arguments


def _structured(generation: Generation) -> dict[str, Any]:
    """Arguments for answers in the form of a JSON schema: compact JSON, in which no model can write blanks until `maxTokens`. Of the
    backends that offer this, llguidance knows most of JSON schema."""
    if generation.json_schema is None:
        return {}
    from vllm.config import StructuredOutputsConfig

    return {"structured_outputs_config": StructuredOutputsConfig(backend="guidance", disable_any_whitespace=True)}


def _set_environment(settings: EngineSettings) -> None:
    """Set vLLM's environment variables. vLLM reads them on import or when an engine is built; there is no other interface."""
    for name, value in ENGINE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if settings.on_cpu:
        os.environ.update(ENGINE_ENVIRONMENT_ON_CPU)


def _inspect_models_here() -> None:
    """Make vLLM inspect new architectures in this process.

    By default it starts another process, which imports all of vLLM again, so that this process creates no CUDA context. On CPU there is
    none.
    """
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()


def _take_threads() -> None:
    """Set the number of OpenMP threads for this thread.

    OpenMP gives a new thread the value that OMP_NUM_THREADS had when torch was loaded; in a forked process it is the parent's value. torch
    sets the right number in each thread that calls it. vLLM's kernels do not call it, and fail when the number changes.
    """
    import torch

    torch.get_num_threads()


def _never_compile() -> None:
    """Disable torch.compile. `enforce_eager` covers only the model: vLLM's code for likelihoods would still be compiled, which takes
    seconds and needs a C++ compiler."""
    import torch._dynamo

    torch._dynamo.config.disable = True


def _lora_request(settings: EngineSettings) -> Any:
    if settings.adapter is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest("adapter", 1, settings.adapter.folder)
