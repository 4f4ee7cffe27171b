"""The modules that ranks and engines import, the modules hidden from them, and the fork servers that load them. Loads none itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuneyard.api import JobSpec, TrainTask
from tuneyard.training.quick_imports import UNUSED
from tuneyard.warm import WarmServer, possible, read_at_import

DATA_RESOURCE = "tuneyard-data"
"""Ray's custom resource of nodes for data workers: one per node, if a cluster has such nodes."""
SERVERS = "TUNEYARD_WARM_SERVERS"
"""Environment variable: `off`, or a folder with the sockets of running servers, `training` and `engines`."""
TRAINING, ENGINES = "training", "engines"
GANG_NEEDS = "pandas"
"""The last module of the training stack that agents and their trainer need. They are forked while the server loads the rest."""


@dataclass(frozen=True)
class Stack:
    """`modules`: modules to import. `absent`: modules hidden meanwhile (see `warm.without`). `needs`: modules that must not be hidden."""

    modules: tuple[str, ...]
    absent: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


def train_stack(tasks: Sequence[TrainTask], *, on_gpu: bool = False, quantised: bool = False) -> Stack:
    """The stack for ranks of these tasks.

    On GPUs, each rank imports DeepSpeed itself: its import queries the accelerator, which must not happen before a fork.
    """
    quantised = quantised or any(task.uses_bitsandbytes for task in tasks)
    modules = [
        "torch",
        *(["tuneyard.training.bitsandbytes_stack"] if on_gpu and quantised else []),  # before PEFT, which would import it
        GANG_NEEDS,
        "transformers",
        "peft",
        "tuneyard.training.entry",
        "tuneyard.runtime.gang.rank",
        "tuneyard.data.preparation",
        "tuneyard.catalog.families",
        "obstore.store",
    ]
    if not on_gpu:
        modules += ["tuneyard.training.zero_stack", "deepspeed.runtime.engine", "transformers.models.llama.modeling_llama"]
    needs = ("bitsandbytes",) if quantised else ()
    settings = (("PYTORCH_NVML_BASED_CUDA_CHECK", "1"), *((("DS_ACCELERATOR", "cpu"),) if not on_gpu else ()))
    return Stack(tuple(modules), tuple(name for name in (*UNUSED, "bitsandbytes") if name not in needs), needs, settings)


def engine_stack() -> Stack:
    """The stack for engines on cpu. On GPUs vLLM starts processes of its own."""
    from tuneyard.scoring.settings import ENGINE_ENVIRONMENT, ENGINE_ENVIRONMENT_ON_CPU

    modules = ("tuneyard.scoring.vllm_worker", "vllm", "vllm.v1.engine.llm_engine", "tuneyard.scoring.late_imports")
    # vLLM imports Ray to use several machines, and Ray does not survive a fork. An engine here is one process of a Ray actor.
    return Stack(modules, absent=("ray", "grpc"), settings=tuple({**ENGINE_ENVIRONMENT, **ENGINE_ENVIRONMENT_ON_CPU}.items()))


class WarmStacks:
    """The fork servers of one job. Each starts when it is first requested; all end with the job.

    Servers get the variables that their libraries read, and no secrets. `logs`: folder for the logs of servers. `own`: whether this process
    may start servers. It may not on a joined cluster, whose ranks and engines run on other machines.
    """

    def __init__(self, job: JobSpec, *, on_gpu: bool, logs: Path, own: bool = True) -> None:
        self._job, self._on_gpu, self._logs, self._own = job, on_gpu, logs, own
        self._given = os.environ.get(SERVERS, "")
        self._started: dict[str, WarmServer | None] = {}

    def training(self) -> Path | None:
        """Socket of the server for ranks, which is started if necessary; None if ranks start cold."""
        tasks = [task.training for task in self._job.spec.tasks if task.training is not None]
        return self._server(TRAINING, lambda: train_stack(tasks, on_gpu=self._on_gpu)) if tasks else None

    def engines(self) -> Path | None:
        """The same for engines."""
        scores = any(task.score is not None and task.endpoint is None for task in self._job.spec.tasks)
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
        # The value that Ray sets for workers of one core. Libraries read it when they are loaded.
        environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), **environment}
        log = self._logs / f"warm-{name}.log"
        try:
            return WarmServer(
                stack.modules, absent=stack.absent, settings=dict(stack.settings), secret=sorted(secret), environment=environment, log=log
            )
        except OSError:
            return None  # no processes or no disk left: the next step reports it
