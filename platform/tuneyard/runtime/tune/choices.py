"""The choices of a tune task on this machine: for each point the task, its plan, and its row of history.

A rank task and a program have no row: history knows shapes of language models only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from tuneyard.admission import Machine, choose_workers
from tuneyard.api import BadInput, EmbeddingTables, Task, check_task
from tuneyard.api.tuned_settings import DATA_WORKERS, WORKERS, apply_settings, searched_as
from tuneyard.api.worker_counts import worker_counts
from tuneyard.catalog import gpu
from tuneyard.planning import DataRate, Plan, refuse_without_room
from tuneyard.runtime.models import model_shape
from tuneyard.runtime.tune.feeding import Feeding
from tuneyard.training.request import TrainRequest
from tuneyard.tuning import (
    Space,
    default_settings,
    default_settings_of_program,
    default_settings_of_ranker,
    refuse_without_effect,
    settings_row,
)

_UNSEEN = {
    *("strategy.sequenceParallel", "strategy.shardWithin", "strategy.quantisedAllReduce", "strategy.compile"),
    *("optimizer.name", "optimizer.states"),
}
Plans = Callable[[Task], TrainRequest]
"""Plans a train or rank task for this machine. Raises BadInput if it cannot run."""


class Choices:
    """Points over a train or rank task. The empty point is the task as in its file. Answers of the planner are cached."""

    def __init__(self, task: Task, machine: Machine, plan: Plans, rates: Mapping[str, DataRate]) -> None:
        """`rates`: rates of data workers in past runs, by format. Raises BadInput if the task itself cannot run here."""
        self._task, self._machine, self._plan = task, machine, plan
        self._facts = gpu(machine.sku)
        own = self._planned(task)
        self._requests: dict[str, TrainRequest | None] = {"{}": own}
        self.feeding = Feeding(own, machine, rates)

    def space(self, listed: Mapping[str, Any]) -> Space:
        """The space of the settings that the JobSpec lists, or of all settings of the device if it lists none. Raises BadInput."""
        settings = {path: tuple(values) for path, values in listed.items()}
        self._refuse_without_effect(settings)
        if self._task.rank is not None:
            return Space(settings or self._settings_of_ranker(), self._is_another)
        if searched_as(self._task) == "program":
            return Space(settings or self._settings_of_program(), self._is_another)
        settings = settings or default_settings(
            self._task,
            data_workers=self.feeding.choices(),
            workers=self._worker_counts(),
            is_cpu=self._facts.is_cpu,
            flash=self._facts.has_flash,
            liger=find_spec("liger_kernel") is not None,
            per_host=self._per_host,
        )
        return Space(settings, lambda point: self._find(point) is not None)

    def why_not(self, point: Mapping[str, Any]) -> str:
        """Why a point cannot work here; empty if it can."""
        try:
            self._planned(apply_settings(self._task, point))
        except BadInput as error:
            return error.cause
        return ""

    @property
    def _per_host(self) -> int:
        """Ranks of a machine."""
        return self._machine.per_host or max(1, self._machine.devices)

    def _refuse_without_effect(self, listed: Mapping[str, Sequence[Any]]) -> None:
        own = self.workers({})
        most = max([own, *(count for count in listed.get(WORKERS, ()) if isinstance(count, int))])
        refuse_without_effect(self._task, listed, workers=own, hosts=-(-most // self._per_host), is_cpu=self._facts.is_cpu)
        if DATA_WORKERS in listed and (why := self.feeding.no_choice()):
            raise BadInput(f"{DATA_WORKERS} cannot matter for task {self._task.name}: {why}", f"leave {DATA_WORKERS} out of the space")

    def _is_another(self, point: Mapping[str, Any]) -> bool:
        """Whether a point of a task in rows can work, and has another plan, other tables or other data workers than the file: the file must
        not be compared with itself.
        """
        found, own = self._find(point), self.request({})
        return found is not None and _what_differs(found) != _what_differs(own)

    def _settings_of_ranker(self) -> dict[str, tuple[Any, ...]]:
        return default_settings_of_ranker(self._task, workers=self._worker_counts(), is_cpu=self._facts.is_cpu, per_host=self._per_host)

    def _settings_of_program(self) -> dict[str, tuple[Any, ...]]:
        place: Any = {"is_cpu": self._facts.is_cpu, "per_host": self._per_host}
        return default_settings_of_program(self._task, workers=self._worker_counts(), data_workers=self.feeding.choices(), **place)

    def request(self, point: Mapping[str, Any]) -> TrainRequest:
        """The request of a point. Raises BadInput if its settings cannot work or do not fit."""
        found = self._find(point)
        if found is None:
            raise BadInput(f"{dict(point)} cannot work here", "take one of the combinations that can")
        return found

    def workers(self, point: Mapping[str, Any]) -> int:
        return self.request(point).plan.workers

    def fed(self, point: Mapping[str, Any]) -> float:
        """Share of the time in which the ranks of a point do not wait for rows, 0 to 1, by the planner."""
        return 1.0 if self._task.rank is not None else 1 - self.feeding.stall(self.request(point))

    def unseen(self, point: Mapping[str, Any]) -> float:
        """Factor of speed, by the planner, of the settings of a point that no column of history names; 1 where it has none."""
        seen = {path: value for path, value in point.items() if path not in _UNSEEN}
        if len(seen) == len(point) or self._find(seen) is None:
            return 1.0
        with_them, without = self.planned(point), self.planned(seen)
        return with_them / without if with_them and without else 1.0

    def planned(self, point: Mapping[str, Any]) -> float | None:
        """Planned tokens/s over all workers, or rows/s of a ranker; None if the plan has no speed, as that of a program."""
        speed = self.request(point).plan.speed
        return speed.tokens_per_s if speed is not None else None

    def row(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The row of history of a point of a train task."""
        request = self.request(point)
        shape = model_shape(request.model_uri, request.task.model.revision)
        return settings_row(request.task, shape, request.plan, gpus_per_node=self._per_host)

    def _find(self, point: Mapping[str, Any]) -> TrainRequest | None:
        key = json.dumps(point, sort_keys=True)
        if key not in self._requests:
            try:
                self._requests[key] = self._planned(apply_settings(self._task, point))
            except BadInput:
                self._requests[key] = None
        return self._requests[key]

    def _planned(self, task: Task) -> TrainRequest:
        here = task.model_copy(update={"resources": task.resources.model_copy(update={"sku": [self._facts.sku]})})
        broken = check_task(here, device=self._facts.device)
        if broken:
            raise BadInput(broken[0].reason, "take one of the combinations that work")
        found = self._plan(task)
        if found.rank is not None:
            refuse_without_room(found.plan, self._facts)
        return found

    def _worker_counts(self) -> list[int]:
        """All numbers of workers that the task allows on this machine, the smallest first."""
        most = choose_workers(self._task, self._machine)
        return sorted(count for count in worker_counts(self._task, usual=most, limit=most) if count <= most)


def _what_differs(request: TrainRequest) -> tuple[Plan, EmbeddingTables | None, int | str]:
    return request.plan, request.rank.tables if request.rank is not None else None, request.task.data.workers
