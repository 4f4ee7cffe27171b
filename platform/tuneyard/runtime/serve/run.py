"""Runs a serve task on its machines: starts its server, tells its address, and ends it on request or for lack of requests."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from tuneyard.api import Blame, FailureKind, JobFailed, Task, TuneyardError
from tuneyard.api.errors import said_by
from tuneyard.api.serve import IDLE_S, SERVED_URL, SERVING
from tuneyard.runtime.machines import engine_log
from tuneyard.runtime.references import named_model
from tuneyard.runtime.score.run import EnginePlaces
from tuneyard.runtime.serve.arguments import Wishes
from tuneyard.runtime.serve.worker import Look, ModelServer, ServeOrder
from tuneyard.runtime.task_context import Attempts, Result, TaskContext
from tuneyard.tracking import Stage

_WAIT_S = 1.0
_END_S = 30.0


def run_serve(task: Task, context: TaskContext, attempts: Attempts) -> Result:
    """Serve until a stop is asked for, or nobody has asked the server for the time of `serve.idle`. Raises TuneyardError, also if the
    machine is lost."""
    import ray

    assert task.serve is not None
    context.machines.use_ray()
    attempts.begin()
    context.emit(Stage(task=task.name, name="finding the models"))
    log = context.machines.logs / engine_log(task.name, 0).file
    actor = ray.remote(ModelServer).options(**_options(task, context)).remote(_order(task, context), log)
    began = False
    try:
        place = _answer(actor.place.remote(), context)
        if place is None:
            return {"status": "stopped"}
        EnginePlaces(task.name, context)(place)
        address = _answer(actor.begin.remote(), context)
        if address is None:
            return {"status": "stopped"}
        began = True
        context.emit(Stage(task=task.name, name="loading the engine"))
        return _serve(task, context, actor, os.environ.get(SERVED_URL) or f"{address}/v1")
    finally:
        if began:
            with suppress(ray.exceptions.RayError):
                ray.get(actor.close.remote(), timeout=_END_S)
        ray.kill(actor)


def _serve(task: Task, context: TaskContext, actor: Any, url: str) -> Result:
    assert task.serve is not None
    told = False
    while True:
        look: Look | None = _answer(actor.look.remote(), context)
        if look is None:
            return {"status": "stopped"}
        if look.ready and not told:
            told = True
            context.emit(Stage(task=task.name, name=f"{SERVING}{url}"))
        if task.serve.idle is not None and look.ready and look.idle_s >= task.serve.idle:
            why = f"no request for {task.serve.idle:g} s, so its machines were given back"
            return {"status": "stopped", IDLE_S: round(look.idle_s, 1), "why": why}


def _answer(reference: Any, context: TaskContext) -> Any:
    """The answer of the actor; None: a stop was asked for meanwhile. Raises the actor's error, and JobFailed where it is lost."""
    import ray

    while not context.should_stop():
        if not ray.wait([reference], timeout=_WAIT_S)[0]:
            context.machines.check_living()
            continue
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TuneyardError):
                raise error.cause from error
            first_line = next(iter(str(error.cause).splitlines()), "")
            cause = f"the server failed: {type(error.cause).__name__}: {first_line}"
            raise JobFailed(cause, "its log says more: tuneyard logs", kind=FailureKind.INTERNAL, blame=Blame(rank=0)) from error
        except ray.exceptions.RayError as error:
            cause = f"the process of the server was lost: {said_by(error)}"
            raise JobFailed(cause, "its log says more: tuneyard logs", kind=FailureKind.NODE_LOST, blame=Blame(rank=0)) from error
    return None


def _order(task: Task, context: TaskContext) -> ServeOrder:
    serve = task.serve
    assert serve is not None
    uris = [
        context.output.task_uri(model.from_task) if model.from_task is not None else named_model(model.name or "", context.base_dir)
        for model in serve.models
    ]
    return ServeOrder(
        models=tuple(uris),
        names=tuple(model.served_as or "" for model in serve.models),
        wishes=Wishes(serve.max_length, serve.precision, serve.tensor_parallel, serve.trust_remote_code),
        sku=context.machine.sku,
        in_pod=SERVED_URL in os.environ,
        folder=context.scratch / task.name,
    )


def _options(task: Task, context: TaskContext) -> dict[str, Any]:
    """Ray's options of the actor: its GPUs, or the cores of the largest machine."""
    import ray

    once = {"max_restarts": 0, "max_task_retries": 0}
    if context.machine.has_gpus:
        return {**once, "num_cpus": 1, "num_gpus": task.engine_ranks}
    cores = max(node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"])
    threads = max(1, int(cores) // (task.engine_ranks or 1))
    return {**once, "num_cpus": cores, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(threads)}}}
