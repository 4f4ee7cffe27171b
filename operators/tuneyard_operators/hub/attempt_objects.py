"""The objects of an attempt on its member: create them, ask the attempt to stop. Each action is idempotent, and may be cut short."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tuneyard.api import Attempt, BadInput
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.job_secrets import JobSecrets
from tuneyard_operators.hub.member import Member
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.kube import (
    ATTEMPT_REPORT,
    NETWORK_POLICY,
    POD,
    RAYJOB,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    AlreadyExists,
    Conflict,
    Forbidden,
    Kind,
    Missing,
)
from tuneyard_operators.rendering import (
    AUTOSCALER_ACCOUNT,
    DOOR,
    door,
    door_name,
    labels_of,
    needed_secrets,
    network_policy,
    platform_image,
    rayjob,
    secret,
    service,
    wants_autoscaler,
)

log = logging.getLogger(__name__)


async def start(
    goal: Goal, attempt: Attempt, output: str, member: Member, secrets: JobSecrets, settings: Settings, past_runs: str = ""
) -> None:
    """Create the attempt's Secret, Service, NetworkPolicy and RayJob, unless they exist. `past_runs`: for a search.

    Raises ApiError, and BadInput if no image is known.
    """
    job = goal.job
    namespace = member.cluster.spec.namespace
    isolated = member.caches.isolates
    autoscaled = await _autoscaled(goal, attempt, member, settings)
    body = rayjob(
        job,
        goal.uid,
        attempt,
        member.cluster,
        output,
        settings.defaults,
        isolated=isolated,
        autoscaled=autoscaled,
        past_runs=past_runs,
    )
    labels = _labels(goal, attempt)
    needed = needed_secrets(job.spec.env)
    if needed:
        values = await secrets.values(job.metadata.namespace, needed)
        await _create(member, SECRET, secret(attempt.name, labels, values))
    serves = job.spec.task(attempt.task).serve is not None
    if serves:
        await _serve(member, attempt.name, labels)
    if isolated:
        await _create(member, NETWORK_POLICY, network_policy(attempt.name, labels, serves=serves))
    try:
        member.caches.rayjobs.put(await member.connection.create(RAYJOB, namespace, body, brief=True))
    except AlreadyExists:
        member.caches.rayjobs.put(await member.connection.get(RAYJOB, namespace, attempt.name))


async def _autoscaled(goal: Goal, attempt: Attempt, member: Member, settings: Settings) -> bool:
    """Whether the attempt's data workers are autoscaled. A member allows it by having the autoscaler's ServiceAccount."""
    image = platform_image(member.cluster, settings.defaults)
    if not wants_autoscaler(goal.job, attempt.task, member.cluster, image):
        return False
    try:
        await member.connection.get(SERVICE_ACCOUNT, member.cluster.spec.namespace, AUTOSCALER_ACCOUNT)
    except (Missing, Forbidden):
        return False
    return True


async def _serve(member: Member, attempt: str, labels: Mapping[str, str]) -> None:
    """Create the Service of a serve task. One that leads to a door stays until the server answers. Raises Conflict while the Service of
    another earlier attempt is there, and BadInput where the member grants no Services."""
    namespace = member.cluster.spec.namespace
    wanted = service(labels, await member.connection.get(SECRET, namespace, attempt))
    try:
        with _granted(member, "create no Services", "a serve task needs"):
            await member.connection.create(SERVICE, namespace, wanted, brief=True)
    except AlreadyExists as error:
        found = await member.connection.get(SERVICE, namespace, wanted["metadata"]["name"])
        owned = found["metadata"].get("ownerReferences") == wanted["metadata"]["ownerReferences"]
        if not owned and not await _leads_to_door(member, found):
            raise Conflict(409, f"the Service {wanted['metadata']['name']} of an earlier attempt is not removed yet") from error


async def _leads_to_door(member: Member, found: Mapping[str, Any]) -> bool:
    """Whether a Service leads to a door that is not being removed: its Secret is there."""
    owners = found["metadata"].get("ownerReferences") or []
    if DOOR not in found["spec"]["selector"] or not owners:
        return False
    try:
        secret = await member.connection.get(SECRET, member.cluster.spec.namespace, owners[0]["name"])
    except Missing:
        return False
    return bool(secret["metadata"]["uid"] == owners[0]["uid"]) and "deletionTimestamp" not in secret["metadata"]


async def open_door(goal: Goal, attempt: Attempt, output: str, member: Member, settings: Settings) -> None:
    """Give the machines of an attempt back whose server sleeps, and lead its Service to a pod that hears requests.

    Of a JobSpec with a problem no pod can be made; its machines are given back all the same. Raises ApiError, and BadInput where the member
    takes no such pod.
    """
    await member.remove(attempt.name, only_machines=True)
    if goal.problem:
        return
    namespace = member.cluster.spec.namespace
    made = rayjob(goal.job, goal.uid, attempt, member.cluster, output, settings.defaults, isolated=member.caches.isolates)
    try:
        owner = await member.connection.get(SECRET, namespace, attempt.name)
    except Missing as error:
        raise BadInput(f"the Secret of the attempt is gone from {member.name}", "resume the job by hand") from error
    with _granted(member, "create no pods or change no Services", "the first request needs that wakes a server"):
        await _lead(member, service(_labels(goal, attempt), owner, to_door=True))
        try:  # the pod last: the next hub takes it as the sign that all is done
            await member.connection.create(POD, namespace, door(made, owner), brief=True)
        except AlreadyExists:
            found = await member.connection.get(POD, namespace, door_name(attempt.name))
            if found.get("status", {}).get("phase") in ("Failed", "Succeeded"):  # evicted: the next look makes another
                await member.connection.delete(POD, namespace, door_name(attempt.name))


async def hand_over(goal: Goal, attempt: Attempt, member: Member) -> None:
    """Lead the Service of a serve task from the door of an earlier attempt to the server of this one. Raises ApiError."""
    owner = await member.connection.get(SECRET, member.cluster.spec.namespace, attempt.name)
    await _lead(member, service(_labels(goal, attempt), owner))


async def _lead(member: Member, wanted: Mapping[str, Any]) -> None:
    """Lead the Service of a serve task to other pods. It is made if an earlier attempt took it along."""
    namespace, goal = member.cluster.spec.namespace, wanted["spec"]
    change = {**wanted, "spec": {**goal, "selector": {"ray.io/group": None, DOOR: None, **goal["selector"]}}}
    try:
        await member.connection.patch(SERVICE, namespace, wanted["metadata"]["name"], change, brief=True)
    except Missing:
        await member.connection.create(SERVICE, namespace, wanted, brief=True)


def _labels(goal: Goal, attempt: Attempt) -> dict[str, str]:
    return labels_of(goal.job.metadata.name, goal.job.metadata.namespace, goal.uid, attempt.task, attempt.number)


@contextmanager
def _granted(member: Member, what: str, why: str) -> Iterator[None]:
    """Turns a refusal by the member's rules into BadInput."""
    try:
        yield
    except Forbidden as error:
        if "exceeded quota" in error.message:  # 403 too: there may be room later
            raise
        advice = f"upgrade the chart tuneyard-member of {member.name}, or name other clusters in spec.placement.clusters"
        raise BadInput(f"the hub may {what} on {member.name}, which {why}: {error.message}", advice) from error


async def _create(member: Member, kind: Kind, body: Mapping[str, Any]) -> None:
    """Create an object that the attempt's pods need, unless it exists. A Secret of a killed hub gets the keys that this one names."""
    namespace, name = member.cluster.spec.namespace, body["metadata"]["name"]
    try:
        await member.connection.create(kind, namespace, body, brief=True)
    except AlreadyExists:
        log.info("the %s of %s exists already", kind.name, name)
        if kind is SECRET:
            await member.connection.patch(kind, namespace, name, {"data": body["data"]}, brief=True)


async def stop(attempt: Attempt, member: Member, settings: Settings) -> None:
    """Write the request to stop into the attempt's report. The attempt reads it with its next heartbeat."""
    await tell(attempt, member, {"stop": {"reason": attempt.stopping, "graceS": settings.stop_grace_s}})


async def tell(attempt: Attempt, member: Member, said: Mapping[str, Any]) -> None:
    """Write into the spec of an attempt's report what the hub has to say. `said`: fields of AttemptGoal."""
    try:
        answer = await member.connection.patch(ATTEMPT_REPORT, member.cluster.spec.namespace, attempt.name, {"spec": said})
        member.caches.reports.put(answer)
    except Missing:
        log.info("%s cannot be told of %s: it has no report", attempt.name, ", ".join(said))
