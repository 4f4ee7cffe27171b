"""The TorchTrainer that starts a gang: Ray's own, without parts that a gang of fixed size on running machines does not need.

The trainer and its controller run in the gang's mailbox: this saves an actor, and the job's own process needs neither torch nor Ray Train.
Four helper actors are left out, each a process that imports for two seconds: the manager of datasets (there are none here), the cleaner
of placement groups (they end with the actor that made them), the coordinator of autoscaling (all machines run already), and the barrier of
reports (agents report to the mailbox).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ray.exceptions import RayActorError
from ray.train import FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group import state, worker_group

from tuneyard.runtime.gang.mailbox import GangEnd, GangShape
from tuneyard.runtime.gang.rank_agent import serve
from tuneyard.runtime.sessions.stacks import GANG_NEEDS
from tuneyard.warm import shim_command

_UNUSED = (DatasetsCallback, PlacementGroupCleanerCallback)


class AgentsConfig(TorchConfig):
    """A process group of agents that never touch a GPU: a CUDA context in an agent would take memory from its rank."""

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[None]]:
        return nullcontext


class MachinesAreThere(FixedScalingPolicy):
    """Asks no autoscaler for machines."""

    def after_controller_start(self, train_run_context: Any) -> None: ...

    def _maybe_send_resource_request(self) -> None: ...


class TellsPlacement(WorkerGroupCallback):
    """Calls `on_placed` with the placement group of the agents, so that it can be freed if the controller must be killed."""

    def __init__(self, on_placed: Callable[[Any], None]) -> None:
        self._on_placed = on_placed

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._on_placed(worker_group.get_worker_group_state().placement_group_handle.placement_group)


class NoBarrier:
    """Stands for Ray's SynchronizationActor, whose handle agents get and never use."""

    @classmethod
    def options(cls, **_options: Any) -> type[NoBarrier]:
        return cls

    @staticmethod
    def remote(**_options: Any) -> str:
        return "none"


def leave_out_barrier() -> None:
    """Make Ray Train of this process start gangs without their barrier. Ray has no option for it."""
    worker_group.SynchronizationActor = NoBarrier
    state._shutdown_sync_actor = lambda _barrier: None


class GangTrainer(TorchTrainer):
    def __init__(self, *arguments: Any, on_placed: Callable[[Any], None], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._on_placed = on_placed

    def _create_default_callbacks(self) -> list[Any]:
        kept = [callback for callback in super()._create_default_callbacks() if not isinstance(callback, _UNUSED)]
        return [*kept, TellsPlacement(self._on_placed)]

    def _initialize_and_run_controller(self, **arguments: Any) -> Any:
        """Run the controller in this process, instead of in an actor."""
        controller = TrainController(**{**arguments, "scaling_policy": MachinesAreThere(scaling_config=self.scaling_config)})
        asyncio.run(controller.run())
        return controller.get_result()


def run_agents(shape: GangShape, mailbox: Any, *, on_placed: Callable[[Any], None]) -> GangEnd:
    """Start the agents of a gang, and wait for their end. `mailbox`: handle of the actor that this thread runs in."""
    leave_out_barrier()
    executable = shim_command(Path(shape.server), after=GANG_NEEDS) if shape.server else ""
    trainer = GangTrainer(
        serve,
        train_loop_config={"mailbox": mailbox, "server": shape.server},
        torch_config=AgentsConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=shape.workers,
            use_gpu=shape.use_gpu,
            resources_per_worker={"CPU": 1, **({"GPU": 1} if shape.use_gpu else {})},
        ),
        # Tuneyard makes checkpoints and retries itself: Ray keeps only a marker file here.
        run_config=RunConfig(
            name="gang",
            storage_path=str(Path(shape.scratch) / "ray-train"),
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            worker_runtime_env={"py_executable": executable} if executable else None,
        ),
        on_placed=on_placed,
    )
    try:
        trainer.fit()
    except WorkerGroupError as error:
        causes = {rank: _cause(failure) for rank, failure in error.worker_failures.items()}
        died = frozenset(rank for rank, cause in causes.items() if _has_died(cause))
        failures = {rank: f"{type(cause).__name__}: {cause}" for rank, cause in causes.items()}
        return GangEnd(str(error), failures, died)
    except Exception as error:  # noqa: BLE001 - every error is reported
        return GangEnd(str(error) or type(error).__name__)
    return GangEnd()


def _cause(failure: Exception) -> Exception:
    """The cause behind failed health checks, such as the death of an agent between two calls."""
    while isinstance(failure, WorkerHealthCheckFailedError):
        failure = failure.health_check_failure
    return failure


def _has_died(failure: Exception) -> bool:
    return isinstance(failure, RayActorError) or "ActorDiedError" in str(failure)
