"""The input of the hub's scheduler, from the objects that a user may read: for `why`, `usage` and dry runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from tuneyard.admission import ask_of
from tuneyard.api import STORED, BadInput, Cluster, ClusterStatus, FindTemplate, JobSpec, JobStatus, ModelTemplate, Phase
from tuneyard.api.templates import filled_job, no_template, template_from
from tuneyard.api.wire import read
from tuneyard.catalog import canonical_sku
from tuneyard.cluster.hub_cluster import HubCluster, hub_cluster
from tuneyard.federation import (
    POLICIES,
    SCHEDULE_LABEL,
    Ask,
    Guesses,
    Member,
    Place,
    Repeats,
    Running,
    Wait,
    World,
    attempts_of,
    forecast,
    job_name,
    member_of,
    read_team,
    scheduler_of,
    series_of,
    spent_by,
    taken_by,
    unknown_team,
)

_POLICY = POLICIES["tuneyard"]


@dataclass(frozen=True)
class Outlook:
    """The forecast of a waiting task. `place`: its placement in the next cycle. `wait`: the reasons where it has none. `ahead`: number of
    waiting tasks that the scheduler considers before it."""

    task: str
    place: Place | None
    wait: Wait | None
    ahead: int
    why_there: str = ""


@dataclass(frozen=True)
class Snapshot:
    """Clusters, jobs and teams as JSON of the API server. `partial`: the reason for missing jobs, if any. `templates`: ModelTemplates of
    jobs that have not begun."""

    clusters: tuple[Mapping[str, Any], ...]
    jobs: tuple[Mapping[str, Any], ...]
    teams: tuple[Mapping[str, Any], ...]
    partial: str = ""
    templates: tuple[Mapping[str, Any], ...] = ()

    def read_job(self, item: Mapping[str, Any]) -> tuple[JobSpec, JobStatus] | None:
        """A JobSpec and its status; None where this client cannot read it."""
        return read_job(item, self._template)

    def _template(self, name: str) -> ModelTemplate:
        found = next((item for item in self.templates if item["metadata"]["name"] == name), None)
        return template_from(found) if found is not None else no_template(name)

    @cached_property
    def skus(self) -> frozenset[str]:
        """SKUs of all clusters, by the catalog's names."""
        return frozenset(canonical_sku(sku["name"]) for item in self.clusters for sku in item["spec"].get("skus", []))

    def asks(self, job: JobSpec, created: float, status: JobStatus) -> tuple[list[Ask], str]:
        """The asks of a job's waiting tasks; none, and the reason, where the job cannot be judged.

        Such a job costs the others nothing: the hub pauses it in the same way.
        """
        try:
            return [ask_of(job, created, task, status, self.skus) for task in waiting_tasks(job, status)], ""
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one job stays with it
            return [], f"its tasks cannot be judged: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"

    def world(self, now: datetime, extra: Iterable[Ask] = (), *, named: Iterable[str] = ()) -> World:
        """The input of a scheduling cycle now. `extra`: asks of a job that the hub does not hold; `named`: the team that it names."""
        seconds = now.timestamp()
        running: list[Running] = []
        asks: list[Ask] = []
        guesses, repeats = Guesses(), Repeats()
        for item in self.jobs:
            found = self.read_job(item)
            if found is None:
                continue
            job, status = found
            running += attempts_of(job_name(job), item["spec"], job.metadata.namespace or "default", status, seconds, _POLICY.grace_s)
            asks += self.asks(job, created_at(item), status)[0]
            for taken in taken_by(status):
                guesses.learn((job_name(job), taken.task), job.team, taken.guessed_s, taken.took_s, taken.ended)
            for task, spent_s, ended in spent_by(status):
                series = series_of(job.metadata.namespace or "default", job.metadata.labels.get(SCHEDULE_LABEL, ""), task)
                repeats.learn((job_name(job), task), series, spent_s, ended)
        wanted = list(extra)
        asks = [
            repeats.expected(guesses.corrected(ask))
            for ask in [*(ask for ask in asks if all(ask.job != other.job for other in wanted)), *wanted]
        ]
        teams = [read_team(item, now)[0] for item in self.teams]
        names = {team.name for team in teams}
        if names:
            teams += [unknown_team(name, names) for name in sorted((self._named_teams() | set(named)) - names)]
        members = tuple(member for item in self.clusters if (member := self._member(item, running)) is not None)
        return World(members=members, asks=tuple(asks), running=tuple(running), teams=tuple(teams))

    def outlook(self, asks: Iterable[Ask], now: datetime, *, named: str | None = None) -> list[Outlook]:
        """The forecast of these asks now, among all other waiting tasks. `named`: the team that their job names, if any."""
        wanted = list(asks)
        world = self.world(now, wanted, named=[named] if named else [])
        scheduler = scheduler_of(world, _POLICY, now.timestamp())
        ahead = {(ask.job, ask.task): scheduler.ahead(ask.job, ask.task, now.timestamp()) for ask in wanted}
        placed = {(d.ask.job, d.ask.task): d for d in scheduler.cycle(now.timestamp()) if isinstance(d, Place)}
        starts = forecast(world, _POLICY, now.timestamp()) if len(placed) < len(wanted) else {}
        found = []
        for ask in wanted:
            key = (ask.job, ask.task)
            place = placed.get(key)
            wait = replace(scheduler.explain(*key, now.timestamp()), starts=starts.get(key)) if place is None else None
            why = scheduler.score(place) if place is not None else ""
            found.append(Outlook(ask.task, place, wait, ahead[ask.job, ask.task], why))
        return found

    def members(self) -> list[HubCluster]:
        """The members, by name."""
        return sorted(map(hub_cluster, self.clusters), key=lambda cluster: cluster.name)

    def held(self) -> Counter[tuple[str, str]]:
        """GPUs by cluster and SKU (the catalog's name) of attempts that run now."""
        found: Counter[tuple[str, str]] = Counter()
        for _, status in filter(None, map(self.read_job, self.jobs)):
            for attempt in status.attempts:
                if attempt.placement is not None and not attempt.cleaned:
                    found[attempt.placement.cluster, canonical_sku(attempt.placement.sku)] += attempt.placement.gpus
        return found

    def cost(self, place: Place) -> float:
        """The predicted cost of a placement."""
        for item in self.clusters:
            for sku in item["spec"].get("skus", []) if item["metadata"]["name"] == place.cluster else []:
                if canonical_sku(sku["name"]) == canonical_sku(place.sku):
                    return round(float(sku.get("pricePerGpuHour", 0.0)) * place.workers * place.seconds / 3600, 2)
        return 0.0

    def _named_teams(self) -> set[str]:
        return {item["spec"]["team"] for item in self.jobs if item["spec"].get("team")}

    def _member(self, item: Mapping[str, Any], running: Iterable[Running]) -> Member | None:
        try:
            cluster = Cluster.model_validate(_known(item), extra="ignore")
        except ValidationError:
            return None  # of a newer hub: `tuneyard clusters` says that it cannot be read
        status = cluster.status or ClusterStatus()
        why_not = "" if status.healthy else status.message or "the hub has not looked at it yet"
        member = member_of(cluster, status.nodes, why_not=why_not)
        # The inventory counts GPUs that pods of others leave; a World counts unallocated GPUs.
        held: dict[str, int] = {}
        for attempt in running:
            if attempt.cluster == member.name:
                for name, gpus in attempt.nodes.items():
                    held[name] = held.get(name, 0) + gpus
        return replace(member, nodes=tuple(replace(node, free=node.free - held.get(node.name, 0)) for node in member.nodes))


def read_job(item: Mapping[str, Any], find: FindTemplate = no_template) -> tuple[JobSpec, JobStatus] | None:
    """A JobSpec and its status; None where this client cannot read it."""
    try:
        made = filled_job(item, find)
        known = {key: made[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in made}
        job = JobSpec.model_validate(known, extra="ignore", context=STORED)  # of a newer hub, as in `hub_job`
        return job, read(JobStatus, item.get("status")).value
    except (ValidationError, BadInput):
        return None


def waiting_tasks(job: JobSpec, status: JobStatus) -> list[str]:
    """Tasks that wait for a placement: their upstream tasks have succeeded, and no attempt of theirs runs or sleeps."""
    if status.phase.final or job.spec.suspend or job.spec.cancelled:
        return []
    done = {task.name for task in status.tasks if task.phase is Phase.SUCCEEDED}
    busy = {attempt.task for attempt in status.attempts if attempt.ended_at is None or attempt.sleeps}
    return [task.name for task in job.spec.task_order() if task.name not in done | busy and set(job.spec.needs(task)) <= done]


def created_at(item: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp()


def _known(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item[key] for key in ("metadata", "spec", "status") if item.get(key) is not None}
