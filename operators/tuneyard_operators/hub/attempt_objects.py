"""The objects of an attempt on its member: create them, ask the attempt to stop. Each action is idempotent, and may be cut short."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tuneyard.api import Attempt, BadInput
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.job_secrets import JobSecrets
from tuneyard_operators.hub.member import Member
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.kube import (
    ATTEMPT_REPORT,
    NETWORK_POLICY,
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
    labels = labels_of(job.metadata.name, job.metadata.namespace, goal.uid, attempt.task, attempt.number)
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
    """Create the Service of a serve task. Raises Conflict while the Service of an earlier attempt is there, and BadInput where the member
    grants no Services."""
    namespace = member.cluster.spec.namespace
    wanted = service(labels, await member.connection.get(SECRET, namespace, attempt))
    try:
        await member.connection.create(SERVICE, namespace, wanted, brief=True)
    except AlreadyExists as error:
        found = await member.connection.get(SERVICE, namespace, wanted["metadata"]["name"])
        if found["metadata"].get("ownerReferences") != wanted["metadata"]["ownerReferences"]:
            raise Conflict(409, f"the Service {wanted['metadata']['name']} of an earlier attempt is not removed yet") from error
    except Forbidden as error:
        if "exceeded quota" in error.message:  # 403 too: there may be room later
            raise
        advice = f"upgrade the chart tuneyard-member of {member.name}, or name other clusters in spec.placement.clusters"
        raise BadInput(f"the hub may create no Services on {member.name}, which a serve task needs: {error.message}", advice) from error


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
    body = {"spec": {"stop": {"reason": attempt.stopping, "graceS": settings.stop_grace_s}}}
    try:
        member.caches.reports.put(await member.connection.patch(ATTEMPT_REPORT, member.cluster.spec.namespace, attempt.name, body))
    except Missing:
        log.info("%s cannot be asked to stop: it has no report", attempt.name)
