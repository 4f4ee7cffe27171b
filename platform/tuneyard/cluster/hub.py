"""The hub for its users: jobs, logs, schedules, clusters, templates and secrets."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tuneyard.api import JobFailed, ModelTemplate, TuneyardError
from tuneyard.api.loading_reasons import nearest
from tuneyard.api.templates import template_from, template_of
from tuneyard.cluster.address import Address
from tuneyard.cluster.api_server import ApiServer
from tuneyard.cluster.errors import HubError, Missing, NotAllowed, NotInstalled, NotLoggedIn, Overtaken, Taken, Unreachable
from tuneyard.cluster.history_api import USER
from tuneyard.cluster.hub_cluster import HubCluster, hub_cluster
from tuneyard.cluster.hub_job import HubJob, hub_job
from tuneyard.cluster.job_table import Facts, facts_of, facts_of_table
from tuneyard.cluster.log_api import LOG_GROUP, LOGGED_JOBSPEC, LogAnswer, LogQuery
from tuneyard.cluster.past_jobs import PastJobs
from tuneyard.cluster.snapshot import Snapshot
from tuneyard.cluster.submission import Submission, resubmit
from tuneyard.kubernetes import (
    Expired,
    Kind,
    Request,
    create_object,
    get_object,
    list_objects,
    patch_object,
    replace_object,
    table_of,
    watch_objects,
)
from tuneyard.kubernetes.kinds import (
    CLUSTER,
    JOBSPEC,
    MODEL_TEMPLATE,
    NAMESPACE,
    SCHEDULE,
    SECRET,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_REVIEW,
    TEAM,
)
from tuneyard.schedules.view import ScheduleView

OnAway = Callable[[TuneyardError], None]
_TRIES = 5
_WATCH_S = 30.0
_PAUSE_S = 2.0
_RIGHTS_SETTLE_S = 60.0
"""The time in which refusals are tried again: a starting API server refuses all users until it has read its roles."""
_NAMES_SEARCHED = 500
_AT_ONCE = 8
"""Requests for single objects."""


class Hub:
    """One hub and one user. The default of `namespace` arguments is the namespace of the address. All methods raise the errors of
    `ApiServer.ask`."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    @property
    def address(self) -> Address:
        return self._api.address

    # --- jobs

    def jobs(self, namespace: str | None = None, *, everywhere: bool = False) -> list[HubJob]:
        """The JobSpecs of one namespace, or of all, the newest first."""
        where = "" if everywhere else namespace or self.address.namespace
        found = [hub_job(item) for item in self._api.list(list_objects(JOBSPEC, where))]
        return sorted(found, key=lambda job: (job.created_at, job.label), reverse=True)

    def job(self, name: str, namespace: str | None = None) -> HubJob:
        """One JobSpec. Raises Missing, with the nearest name as its next step."""
        where = namespace or self.address.namespace
        try:
            return hub_job(self._api.ask(get_object(JOBSPEC, where, name)))
        except Missing:
            raise self._missing(name, where) from None

    def submit(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Submission:
        """Create a JobSpec, as `kubectl create` does, or compare it with the stored JobSpec of its name.

        `manifest` is the object as its file holds it. Raises Refused with the path and reason of each problem, and BadInput where another
        job of this name is in the way.
        """
        metadata = manifest["metadata"] if dry_run else self._signed(manifest["metadata"])
        namespace = metadata.get("namespace") or self.address.namespace
        body = {**manifest, "metadata": {**metadata, "namespace": namespace}}
        for tries in range(1, _TRIES + 1):
            try:
                answer = self._api.ask(create_object(JOBSPEC, namespace, body, dry_run=dry_run, strict=True))
                return Submission(hub_job(answer), "created", dry_run)
            except Taken:
                pass
            try:
                return self._resubmit(body, dry_run)
            except (Missing, Overtaken):  # removed, or changed by the operator, between two requests
                if tries == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def cancel(self, name: str, namespace: str | None = None) -> tuple[HubJob, bool]:
        """Cancel a job. Returns it, and whether this call cancelled it: False for a job that has ended or was cancelled before."""
        job = self.job(name, namespace)
        if job.ended or job.cancelled:
            return job, False
        cancel = patch_object(JOBSPEC, job.namespace, name, {"spec": {"cancelled": True}}, strict=True)
        return hub_job(self._api.ask(cancel)), True

    def suspend(self, name: str, namespace: str | None = None, *, hold: bool = True) -> tuple[HubJob, bool]:
        """Hold a job in the queue, at a checkpoint if it runs, or with `hold` False let it go on. Returns it, and whether this call
        changed it: False for a job that has ended, was cancelled, or is held (or not held) already. A server that sleeps is woken."""
        job = self.job(name, namespace)
        held = job.spec.get("suspend")
        wakes = not hold and not held and job.asleep
        if job.ended or job.cancelled or (bool(held) is hold and not wakes):
            return job, False
        # Any change of the spec wakes a server: false in place of nothing, or nothing in place of false.
        wanted = None if wakes and held is False else hold
        change = patch_object(JOBSPEC, job.namespace, name, {"spec": {"suspend": wanted}}, strict=True)
        return hub_job(self._api.ask(change)), True

    def follow(
        self, name: str, namespace: str | None = None, *, timeout_s: float | None = None, on_away: OnAway = lambda _: None
    ) -> Iterator[HubJob]:
        """The job now, and again after each change, until the caller stops or `timeout_s` have passed.

        An outage of the hub after the first answer is waited out: `on_away` is called once per outage. Raises JobFailed where the
        JobSpec is deleted meanwhile.
        """
        deadline = time.monotonic() + (timeout_s if timeout_s is not None else float("inf"))
        job = self.job(name, namespace)
        yield job
        away_since: float | None = None
        while (left := deadline - time.monotonic()) > 0:
            began = time.monotonic()
            try:
                for found in self._changes(job, min(left, _WATCH_S)):
                    job, away_since = found, None
                    yield job
                away_since = None
            except Missing:
                raise JobFailed(
                    f"JobSpec {job.label} was deleted while it was being followed", "tuneyard status lists the jobs that exist"
                ) from None
            except HubError as error:
                if away_since is None:
                    away_since = began
                    on_away(error)
                if isinstance(error, NotAllowed) and time.monotonic() - away_since > _RIGHTS_SETTLE_S:
                    raise
            if time.monotonic() - began < _PAUSE_S:  # the hub is away, or this user may get but not watch
                time.sleep(max(0.0, min(_PAUSE_S, deadline - time.monotonic())))

    # --- logs

    def log(self, name: str, namespace: str, query: LogQuery) -> LogAnswer:
        """A part of the log of one attempt, as the hub reads it from the job's storage.

        Raises NotInstalled where the hub has no such API (an older one, or one without it), NotAllowed where this user lacks the right
        to `get` jobspecs/log, NotReadable where the hub has no way to the storage, StorageError where the storage fails.
        """
        request = get_object(LOGGED_JOBSPEC, namespace, name, subresource="log", parameters=query.parameters())
        try:
            answer = self._api.ask(request)
        except (NotAllowed, NotInstalled):
            # API servers check rights before they see that the API does not exist.
            if self._api.serves(LOG_GROUP):
                raise
            raise NotInstalled(f"{self.address.hub} serves no logs", "read them from storage, with keys of your own") from None
        try:
            return LogAnswer.from_json(answer)
        except ValueError as error:
            raise Unreachable(f"the answer of {self.address.hub} cannot be read: {error}", "upgrade tuneyard, or the hub") from error

    # --- schedules

    def schedules(self, namespace: str | None = None, *, everywhere: bool = False) -> list[ScheduleView]:
        """The Schedules of one namespace, or of all, by name."""
        where = "" if everywhere else namespace or self.address.namespace
        found = [ScheduleView.of(item) for item in self._api.list(list_objects(SCHEDULE, where))]
        return sorted(found, key=lambda schedule: (schedule.namespace, schedule.name))

    def schedule(self, name: str, namespace: str | None = None) -> ScheduleView:
        """One Schedule. Raises Missing, with the nearest name as its next step."""
        where = namespace or self.address.namespace
        try:
            return ScheduleView.of(self._api.ask(get_object(SCHEDULE, where, name)))
        except Missing as error:
            there = [each.name for each in self.schedules(where)]
            best = nearest(name, there)
            hint = (
                f"did you mean {best}?" if best else f"there are: {', '.join(there[:20])}" if there else "there is none in this namespace"
            )
            raise Missing(error.cause, hint) from None

    def change_schedule(self, name: str, spec: Mapping[str, Any], namespace: str | None = None) -> ScheduleView:
        """Set fields of a Schedule's spec. Raises Missing, Refused."""
        where = self.schedule(name, namespace).namespace
        return ScheduleView.of(self._api.ask(patch_object(SCHEDULE, where, name, {"spec": dict(spec)}, strict=True)))

    @property
    def past(self) -> PastJobs:
        """The run history of the hub, which also has jobs whose JobSpecs are gone."""
        return PastJobs(self._api)

    # --- clusters, templates, secrets

    def clusters(self) -> list[HubCluster]:
        """The members, by name."""
        return sorted((hub_cluster(item) for item in self._api.list(list_objects(CLUSTER))), key=lambda cluster: cluster.name)

    def template(self, name: str) -> ModelTemplate:
        """The ModelTemplate `name`. Raises Missing, whose next step lists the names that the hub has."""
        try:
            found = self._api.ask(get_object(MODEL_TEMPLATE, None, name))
        except Missing as error:
            there = sorted(item["metadata"]["name"] for item in self._api.list(list_objects(MODEL_TEMPLATE), limit=_NAMES_SEARCHED))
            best = nearest(name, there)
            hint = f"did you mean {best}?" if best else f"there are: {', '.join(there[:20])}" if there else "the hub has none"
            raise Missing(error.cause, hint) from None
        return template_from(found)

    def snapshot(
        self,
        *,
        need_clusters: bool = True,
        namespaces: Callable[[], Sequence[str]] | None = None,
        only: Sequence[tuple[str, str]] | None = None,
    ) -> Snapshot:
        """Clusters, jobs and teams now. Where this user may not list jobs of all namespaces, the jobs of `namespaces`: by default of the
        one of the address.

        `need_clusters` False: no clusters where this user may not list them. `only`: namespace and name of the jobs that are read, each by
        a request of its own; a list reads all.
        """
        if only is not None:
            jobs, partial = self._named(only), ""
        else:
            jobs, partial = self._of_namespaces(lambda namespace: self._api.list(list_objects(JOBSPEC, namespace)), namespaces)
        try:
            teams = tuple(self._api.list(list_objects(TEAM)))
        except NotAllowed:
            teams, partial = (), "; ".join(part for part in (partial, "quotas are not counted: you may not list teams") if part)
        templates: tuple[Mapping[str, Any], ...] = ()
        if any(template_of(item.get("spec")) for item in jobs):
            try:
                templates = tuple(self._api.list(list_objects(MODEL_TEMPLATE)))
            except NotAllowed:
                partial = "; ".join(
                    part for part in (partial, "jobs by a template are not counted: you may not list modeltemplates") if part
                )
        try:
            clusters = tuple(self._api.list(list_objects(CLUSTER)))
        except NotAllowed:
            if need_clusters:
                raise
            clusters, partial = (), "; ".join(part for part in (partial, "you may not list clusters") if part)
        return Snapshot(clusters, jobs, teams, partial, templates)

    def listed(self, *, namespaces: Callable[[], Sequence[str]] | None = None) -> tuple[tuple[Facts, ...], str]:
        """JobSpecs with the facts of lists alone, of the namespaces as in `snapshot`, and what is missing of them.

        Of a hub whose CRD is older, they are read from whole objects."""

        def listed(namespace: str | None) -> Sequence[Facts]:
            found = facts_of_table(self._api.ask(table_of(JOBSPEC, namespace)))
            return found if found is not None else [facts_of(item) for item in self._api.list(list_objects(JOBSPEC, namespace))]

        return self._of_namespaces(listed, namespaces)

    def _named(self, names: Sequence[tuple[str, str]]) -> tuple[Mapping[str, Any], ...]:
        """JobSpecs by namespace and name. Those that have been removed, or that this user may not read, are left out."""

        def found(name: tuple[str, str]) -> Mapping[str, Any] | None:
            try:
                return self._api.ask(get_object(JOBSPEC, *name))
            except NotLoggedIn:
                raise
            except (Missing, NotAllowed):
                return None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return tuple(each for each in pool.map(found, names) if each is not None)

    def _of_namespaces(
        self, ask: Callable[[str | None], Sequence[Mapping[str, Any]]], namespaces: Callable[[], Sequence[str]] | None
    ) -> tuple[tuple[Mapping[str, Any], ...], str]:
        """Objects of all namespaces; where this user may not list those, of `namespaces`, and a text that says so."""
        try:
            return tuple(ask(None)), ""
        except NotLoggedIn:
            raise
        except NotAllowed:
            own = namespaces() if namespaces is not None else (self.address.namespace,)
            which = f"namespace {own[0]} are" if len(own) == 1 else f"namespaces {', '.join(own)} are" if own else "no namespace are"
            partial = f"only jobs of {which} counted: you may not list those of others"
            return tuple(item for namespace in own for item in ask(namespace)), partial

    # --- the user

    def user(self) -> str:
        """The name of this user, as the API server knows it. Raises NotLoggedIn for credentials that it does not accept."""
        return str(self._api.ask(create_object(SELF_SUBJECT_REVIEW, None, {}))["status"]["userInfo"]["username"])

    def may(self, verb: str, kind: Kind, namespace: str) -> bool:
        """Whether this user has a right on all objects of a kind in a namespace."""
        right = {"group": kind.group, "resource": kind.plural, "verb": verb, "namespace": namespace}
        answer = self._api.ask(create_object(SELF_SUBJECT_ACCESS_REVIEW, None, {"spec": {"resourceAttributes": right}}))
        return bool((answer.get("status") or {}).get("allowed"))

    def namespaces(self) -> list[str]:
        """The names of all namespaces of the hub's cluster."""
        return sorted(str(item["metadata"]["name"]) for item in self._api.list(list_objects(NAMESPACE)))

    def secret(self, name: str, namespace: str) -> dict[str, str]:
        """The values of a Secret that are text. Raises Missing, NotAllowed."""
        data = self._api.ask(get_object(SECRET, namespace, name)).get("data") or {}
        return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}

    # --- how

    def _signed(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Metadata with the name of this user, for usage by user. Unchanged where it names one, or where the API server tells none."""
        annotations = metadata.get("annotations") or {}
        if USER in annotations:
            return metadata
        try:
            found = self.user()
        except (TuneyardError, KeyError, TypeError):
            return metadata
        return {**metadata, "annotations": {**annotations, USER: found}}

    def _resubmit(self, body: dict[str, Any], dry_run: bool) -> Submission:
        # For a new name, the hub answers with the spec after admission, which is the fair comparison with a stored one.
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        metadata = {key: value for key, value in body["metadata"].items() if key != "name"}
        unnamed = {**body, "metadata": {**metadata, "generateName": f"{name}-"}}
        wanted = self._api.ask(create_object(JOBSPEC, namespace, unnamed, dry_run=True, strict=True))
        answer = self._api.ask(get_object(JOBSPEC, namespace, name))
        held = hub_job(answer)
        outcome = resubmit(held, wanted["spec"])
        if outcome == "updated":
            changed = {"metadata": answer["metadata"], "apiVersion": answer["apiVersion"], "kind": answer["kind"], "spec": body["spec"]}
            held = hub_job(self._api.ask(replace_object(JOBSPEC, namespace, name, changed, dry_run=dry_run, strict=True)))
        return Submission(held, outcome, dry_run)

    def _changes(self, job: HubJob, seconds: float) -> Iterator[HubJob]:
        """The job now, if it has changed since `job`, then each change for about `seconds`."""
        answer = self._api.ask(get_object(JOBSPEC, job.namespace, job.name))
        now = hub_job(answer)
        if now.uid != job.uid:
            raise Missing(f"JobSpec {job.label} was replaced by another of its name", "")
        if now.version != job.version:
            yield now
        fields = {"metadata.name": job.name}
        watch = watch_objects(JOBSPEC, job.namespace, since=now.version, timeout_s=seconds, fields=fields)
        try:
            for kind, item in self._api.changes(watch, seconds=seconds):
                if kind == "DELETED":
                    raise Missing(f"JobSpec {job.label} was deleted", "")
                if kind in ("ADDED", "MODIFIED"):
                    yield hub_job(item)
        except Expired:
            return  # the version is too old for a watch: the next round reads the newest
        except (NotAllowed, NotInstalled):
            return  # this user may get the job, and may not watch it

    def _missing(self, name: str, namespace: str) -> Missing:
        """The error for a missing name, with the nearest name that exists."""
        here = self._found(list_objects(JOBSPEC, namespace), _NAMES_SEARCHED)
        elsewhere = self._found(list_objects(JOBSPEC, fields={"metadata.name": name}), 1)
        best = nearest(name, here)
        if elsewhere:
            hint = f"there is one in another namespace: -n {next(iter(elsewhere.values()))}"
        elif best:
            hint = f"did you mean {best}?"
        elif here:
            hint = f"tuneyard status -n {namespace} lists the {len(here)} there"
        else:
            hint = f"there is no job in namespace {namespace}; choose another with -n, or look in all of them: tuneyard status -A"
        return Missing(f"{self.address.hub} has no JobSpec {namespace}/{name}", hint)

    def _found(self, request: Request, limit: int) -> dict[str, str]:
        """Name -> namespace of the jobs of a list that this user may see."""
        try:
            items = self._api.list(request, limit=limit)
        except NotAllowed:
            return {}
        return {item["metadata"]["name"]: item["metadata"]["namespace"] for item in items}
