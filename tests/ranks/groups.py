"""Training in real ranks for tests and benchmarks: forks that form a group, and run one request after the other.

The group is made once, as a launcher such as Ray makes it. torchrun itself is tested in test_training_command.py and test_run_trains.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tests.builders.checkpoints import saves_in_turn
from tests.ranks.forks import Call, called
from tests.servers.installed import free_port

from tuneyard.api import TuneyardError
from tuneyard.tracking.events import Event, Step
from tuneyard.training import TrainRequest, TrainResult, train


def train_in_ranks(
    requests: Sequence[TrainRequest], workers: int, *, per_host: int | None = None, stop_after: int | None = None
) -> list[TrainResult | TuneyardError]:
    """What rank 0 answered to each request: its result, or the error that people would see. `per_host`: ranks that take themselves for
    those of one host; default: all. `stop_after`: a step of this attempt, but not its first, after which each run is asked to stop."""
    places = group(workers, per_machine=per_host or workers)
    answers: list[TrainResult | TuneyardError] = called([Call(_rank, (list(requests), stop_after), place) for place in places])[0]
    return answers


def results_in_ranks(
    requests: Sequence[TrainRequest], workers: int, *, per_host: int | None = None, stop_after: int | None = None
) -> list[TrainResult]:
    """Like `train_in_ranks`, for requests that all succeed; the first error is raised."""
    answers = train_in_ranks(requests, workers, per_host=per_host, stop_after=stop_after)
    for answer in answers:
        if isinstance(answer, TuneyardError):
            raise answer
    return [answer for answer in answers if isinstance(answer, TrainResult)]


def group(workers: int, *, per_machine: int) -> list[dict[str, str]]:
    """The variables that tell each rank of a new group its place."""
    port = free_port()
    places = [
        {
            "RANK": rank,
            "WORLD_SIZE": workers,
            "LOCAL_RANK": rank % per_machine,
            "LOCAL_WORLD_SIZE": per_machine,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        for rank in range(workers)
    ]
    return [{name: str(value) for name, value in place.items()} for place in places]


def made_on_first(make: Callable[[], Any]) -> Any:
    """What `make` returns on the first rank of a group that exists, or its error, on every rank: a proof of a plan costs a second."""
    import torch.distributed as dist

    made: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            made[0] = make()
        except Exception as error:  # noqa: BLE001  raised below on every rank: the others wait for an answer
            made[1] = error
    dist.broadcast_object_list(made)
    if made[1] is not None:
        raise made[1]
    return made[0]


def _rank(requests: Sequence[TrainRequest], stop_after: int | None = None) -> list[TrainResult | TuneyardError]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    answers: list[TrainResult | TuneyardError] = []
    for request in requests:
        try:
            with saves_in_turn():
                # A stop that is asked for at the end of a step is heard in the next.
                answers.append(train(request, **(stopping_at(stop_after - 1) if stop_after else {})))
        except TuneyardError as error:
            answers.append(error)
    dist.destroy_process_group()
    return answers


def stopping_at(step: int) -> dict[str, Callable[..., Any]]:
    """Arguments of `train` that ask for a stop at `step` and hold the run until it was heard: the thread that asks ends with that."""
    reached: list[int] = []

    def emit(event: Event) -> None:
        if isinstance(event, Step) and event.step == step:
            reached.append(step)
            for thread in threading.enumerate():
                if thread.name == "tuneyard-should-stop":
                    thread.join()

    return {"emit": emit, "should_stop": lambda: bool(reached)}
