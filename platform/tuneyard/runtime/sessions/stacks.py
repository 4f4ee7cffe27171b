"""What ranks and engines import, what they must not waste time on, and the fork servers that have it loaded. Loads none of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuneyard.api import JobSpec, TrainTask
from tuneyard.warm import WarmServer, possible, read_at_import

DATA_RESOURCE = "tuneyard-data"
"""Of Ray: what nodes for data workers offer, one each, where a cluster has such."""
SERVERS = "TUNEYARD_WARM_SERVERS"
"""`off`, or a folder with the sockets of servers that run already: `training` and `engines`."""
TRAINING, ENGINES = "training", "engines"
GANG_NEEDS = "pandas"
"""The last module of the training stack that agents and their trainer need; theirs are forked while the rest is loaded."""
_UNUSED = ("comet_ml", "sklearn", "scipy", "PIL", "torchvision", "librosa", "tensorboard", "wandb", "mlflow", "optuna", "lightgbm")
"""Installed for other rooms; transformers, PEFT and accelerate would import them to see what they are."""


@dataclass(frozen=True)
class Stack:
    """`modules` to import, with those of `absent` hidden meanwhile (see `warm.without`). `needs`: what must not be hidden."""

    modules: tuple[str, ...]
    absent: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


def train_stack(tasks: Sequence[TrainTask], *, on_gpu: bool = False, quantised: bool = False) -> Stack:
    """The stack of ranks of these tasks.

    On GPUs DeepSpeed is left to each rank: it asks for the accelerator while it is imported, which must not happen before a fork.
    """
    quantised = quantised or any(task.uses_bitsandbytes for task in tasks)
    modules = [
        "torch",
        GANG_NEEDS,
        "transformers",
        "peft",
        "tuneyard.training.entry",
        "tuneyard.runtime.gang.rank",
        "tuneyard.data.preparation",
        "tuneyard.catalog.families",
        "obstore.store",
    ]
    if any(task.objective == "dpo" for task in tasks):
        modules.append("tuneyard.training.preference")
    if not on_gpu:
        modules += ["tuneyard.training.zero_stack", "deepspeed.runtime.engine", "transformers.models.llama.modeling_llama"]
    needs = ("bitsandbytes",) if quantised else ()
    settings = (("PYTORCH_NVML_BASED_CUDA_CHECK", "1"), *((("DS_ACCELERATOR", "cpu"),) if not on_gpu else ()))
    return Stack(tuple(modules), tuple(name for name in (*_UNUSED, "bitsandbytes") if name not in needs), needs, settings)


def engine_stack() -> Stack:
    """The stack of engines on cpu; on GPUs vLLM starts processes of its own."""
    from tuneyard.scoring.settings import ENGINE_ENVIRONMENT, ENGINE_ENVIRONMENT_ON_CPU

    modules = ("tuneyard.scoring.worker", "vllm", "vllm.v1.engine.llm_engine")
    # vLLM looks for Ray, which does not survive a fork, to run several machines; an engine here is one process of a Ray actor.
    return Stack(modules, absent=("ray", "grpc"), settings=tuple({**ENGINE_ENVIRONMENT, **ENGINE_ENVIRONMENT_ON_CPU}.items()))


class WarmStacks:
    """The fork servers of one job, each started when it is first asked for; all end with the job.

    Servers get the variables that their libraries read, and no secrets. `logs`: folder for what servers print. `own`: whether this
    process may start servers; on a cluster that was joined, ranks and engines run on other machines.
    """

    def __init__(self, job: JobSpec, *, on_gpu: bool, logs: Path, own: bool = True) -> None:
        self._job, self._on_gpu, self._logs, self._own = job, on_gpu, logs, own
        self._given = os.environ.get(SERVERS, "")
        self._started: dict[str, WarmServer | None] = {}

    def training(self) -> Path | None:
        """Socket of the server for ranks, started now if need be; None where ranks start cold."""
        tasks = [task.training for task in self._job.spec.tasks if task.training is not None]
        return self._server(TRAINING, lambda: train_stack(tasks, on_gpu=self._on_gpu)) if tasks else None

    def engines(self) -> Path | None:
        """The same for engines."""
        scores = any(task.score is not None for task in self._job.spec.tasks)
        return self._server(ENGINES, engine_stack) if scores and not self._on_gpu else None

    def close(self) -> None:
        for server in self._started.values():
            if server is not None:
                server.close()
        self._started.clear()

    def _server(self, name: str, stack: Callable[[], Stack]) -> Path | None:
        if self._given == "off" or not possible():
            return None
        if self._given:
            return Path(self._given).resolve() / name
        if not self._own:
            return None
        if name not in self._started:
            self._started[name] = self._start(name, stack())
        server = self._started[name]
        return server.socket if server is not None else None

    def _start(self, name: str, stack: Stack) -> WarmServer | None:
        references = [(variable.name, variable.value_from.secret_key_ref) for variable in self._job.spec.env if variable.value_from]
        secret = {name for own, reference in references for name in (own, reference.key)}
        environment = {name: value for name, value in os.environ.items() if name == "PATH" or (read_at_import(name) and name not in secret)}
        # As Ray sets it for workers of one core: the libraries read it while they are loaded.
        environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), **environment}
        log = self._logs / f"warm-{name}.log"
        try:
            return WarmServer(
                stack.modules, absent=stack.absent, settings=dict(stack.settings), secret=sorted(secret), environment=environment, log=log
            )
        except OSError:
            return None  # no processes or no disk: whatever comes next will say so
