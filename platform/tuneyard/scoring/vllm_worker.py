"""A worker whose engine is vLLM's: it fetches the model and loads it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tuneyard.api import Adapter, BadInput, FailureKind, JobFailed, TuneyardError
from tuneyard.api.errors import said_by
from tuneyard.catalog import ModelShape, adapted_projections
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.config_reader import config_in
from tuneyard.data.tokenizer import read_tokenizer
from tuneyard.scoring.adapter import MERGE
from tuneyard.scoring.engine import VllmEngine
from tuneyard.scoring.exchange import Asked
from tuneyard.scoring.model_folder import model_folder
from tuneyard.scoring.open_part import OpenPart
from tuneyard.scoring.order import ordered
from tuneyard.scoring.own_metrics import own_metrics_of
from tuneyard.scoring.prompts import PromptEncoder
from tuneyard.scoring.rank_deaths import RankLost, end_process
from tuneyard.scoring.rows import asks_of
from tuneyard.scoring.settings import EngineSettings, resolve_engine
from tuneyard.scoring.similarity import similarities_of
from tuneyard.scoring.special_marks import SpecialMarks
from tuneyard.scoring.worker import Loaded, PartWorker
from tuneyard.storage import fetch_folder
from tuneyard.warm import WHY_COLD


class VllmWorker(PartWorker):
    """See `PartWorker`."""

    def load(self) -> Loaded:
        """Fetch the model and load the engine. Raises BadInput for unusable inputs, JobFailed for failures of the engine."""
        began = time.perf_counter()
        request = self._order.request
        cache = Path(request.scratch) / "models"
        self._own = own_metrics_of(request)
        self._similarities = similarities_of(request)
        model = model_folder(request.model_uri, cache, request.task.model.revision)
        adapter = fetch_folder(request.adapter_uri, cache) if request.adapter_uri else None
        self._shape = model_shape_of(config_in(model))
        self._settings = resolve_engine(request.task, model, self._shape, adapter, sku=request.sku)
        self._adapter = _countable_adapter(self._shape, self._settings)
        tokenizer = read_tokenizer(self._settings.tokenizer, trust=self._settings.trust_remote_code)  # the engine's thread uses its own
        data, longest = request.task.data, self._settings.max_length
        how: Any = {"chat": data.chat, "control_tokens": data.control_tokens, "templated": data.template is not None}
        prompts = PromptEncoder(tokenizer, max_length=longest, **how)
        if asks_of(request.task).likelihood:
            prompts.check_likelihood()
        try:
            engine = VllmEngine(self._settings, request.task.generation, prompts.ends, SpecialMarks.of(tokenizer))
        except RankLost as error:
            end_process(error)
        except Exception as error:
            raise _load_failure(error, self._settings) from error
        self._begin(engine, prompts)
        took_s = time.perf_counter() - began
        return Loaded(os.getpid(), took_s, self._settings, prompts.chats, os.environ.get(WHY_COLD, ""), self._warnings)

    def _ordered(self, requests: list[Asked]) -> list[Asked]:
        return ordered(requests)

    def _flops(self, part: OpenPart) -> float:
        return part.flops(self._shape, self._adapter)


def _countable_adapter(shape: ModelShape, settings: EngineSettings) -> Adapter | None:
    """The adapter for counting FLOPs; None where its targets are unknown, which leaves out about one percent."""
    if settings.adapter is None:
        return None
    adapter = settings.adapter.as_trained()
    try:
        adapted_projections(shape, adapter)
    except BadInput:
        return None
    return adapter


def _load_failure(error: Exception, settings: EngineSettings) -> TuneyardError:
    raised = getattr(error, "raised", type(error).__name__)
    if raised in ("OutOfMemoryError", "MemoryError"):
        return JobFailed(
            f"the engine ran out of memory while it loaded {settings.model}: {said_by(error)}",
            "lower engine.maxLength or engine.batch, raise engine.tensorParallel, or take a machine with more memory",
            kind=FailureKind.OUT_OF_MEMORY,
        )
    if settings.adapter is not None and "lora" in str(error).lower():
        return BadInput(f"the engine cannot apply an adapter to {settings.model}: {said_by(error)}", MERGE)
    return JobFailed(
        f"the engine cannot load {settings.model}: {_reason(error)}",
        "is it a complete model folder of an architecture that vLLM knows? `--debug` shows the engine's own error",
    )


def _reason(error: Exception) -> str:
    """The first line of an error; of a validation error the first three lines, because its first line is only a count."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    validation = len(lines) > 1 and "validation error" in lines[0]
    return " ".join(lines[:3])[:600] if validation else said_by(error)
