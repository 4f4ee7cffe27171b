"""The entry of a rank. `train` joins the world, runs the attempt for the kind of task, and turns out-of-memory errors into failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tuneyard.data.shared.courier import sharing
from tuneyard.parallel import Mesh
from tuneyard.tracking.events import Emit, Event, MachineUsed, Warned, silent
from tuneyard.training.attempt import Attempt
from tuneyard.training.distributed import joined_world
from tuneyard.training.host_sharding import ONE_HOST, on_hosts, sharded_within_hosts
from tuneyard.training.library_state import clean_libraries
from tuneyard.training.memory import is_out_of_memory, out_of_memory
from tuneyard.training.offload_disk import on_disk
from tuneyard.training.request import TrainRequest, TrainResult
from tuneyard.training.stop import listening
from tuneyard.training.tensor_parallel import check_supported


def never() -> bool:
    """Never stops."""
    return False


def train(request: TrainRequest, *, emit: Emit = silent, should_stop: Callable[[], bool] = never) -> TrainResult:
    """Run one rank of a train task to its end, or to a requested stop; the result is the same on every rank.

    The rank and the world come from torchrun's environment; without it there is one process. `should_stop` is polled twice a second on
    every rank. Once it is true on any rank, all ranks stop after the same step, and a checkpoint is committed. In the main thread SIGTERM
    and SIGINT do the same.

    Raises BadInput (a model or data set that cannot be used), JobFailed (NaN loss, out of memory), StorageError (a failed write).
    """
    plan, attempt = request.plan, f"{request.run} {request.attempt} {request.output}"
    place = request.shared if _may_share(request) else None
    check_supported(plan)
    mesh = Mesh.over(plan.workers, context=plan.context_parallel, tensor=plan.tensor_parallel)
    joined = joined_world(on_gpu=plan.sku != "cpu", with_deepspeed=plan.zero > 0, mesh=mesh)
    with joined as world, listening(should_stop) as stop, clean_libraries():
        try:
            tell = emit if world.is_first else partial(_of_machine, emit)
            plan, lack = on_hosts(plan, world)
            if lack or (request.task.layout.shard_within == "host" and plan.shard_within == "none"):
                tell(Warned(task=request.name, message=lack or ONE_HOST))
            with sharded_within_hosts(plan, world) as placed, on_disk(plan) as own, sharing(place, attempt):
                return _kind_of_attempt(request)(replace(request, plan=own), placed, stop, tell).run()
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise out_of_memory(error, plan, world.device) from error
            raise


def _may_share(request: TrainRequest) -> bool:
    """Whether a rank may make shards that others may have."""
    if request.rank is not None:
        return request.rank.is_streamed and request.rank.shared
    data = request.task.data
    streams = data.streaming is not False if request.task.program is None else data.asks_for_stream
    return streams and data.shared


def _of_machine(emit: Emit, event: Event) -> None:
    """Rank 0 tells what all ranks know. What a machine does is known there alone."""
    if isinstance(event, MachineUsed):
        emit(event)


def _kind_of_attempt(request: TrainRequest) -> type[Attempt]:
    if request.rank is not None:
        from tuneyard.training.rank.attempt import RankAttempt  # late: only rankers need its modules

        return RankAttempt
    if request.task.program is None:
        return Attempt
    from tuneyard.training.program.attempt import ProgramAttempt  # late: only programs need its modules

    return ProgramAttempt
