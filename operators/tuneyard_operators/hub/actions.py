"""Carries out the actions of an outcome once its status is stored: on the JobSpec at once, on a member in that member's lane."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from tuneyard.api import Attempt, BadInput, JobSpec
from tuneyard_operators.hub import attempt_objects
from tuneyard_operators.hub.goals import Goal
from tuneyard_operators.hub.guard import reason_of
from tuneyard_operators.hub.job_secrets import JobSecrets
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.hub.member import Member
from tuneyard_operators.hub.members import Members
from tuneyard_operators.hub.outcomes import Action, Outcome, Verb
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.workqueue import WorkQueue
from tuneyard_operators.kube import JOBSPEC, ApiError, Connection, Invalid, Key

log = logging.getLogger(__name__)
_CLEAN_AGAIN_S = 3.0
_RECORD_AGAIN_S = 30.0
_MOST_TRIES = 3
"""Tries to create a RayJob before its attempt counts as refused."""


MayVanish = Callable[[Key], bool]
"""Whether a JobSpec may be deleted for good: run history, if there is one, has its end."""


PastRuns = Callable[[JobSpec, str], Awaitable[str]]
"""The past runs that an attempt at a task of a job gets; empty: none. It raises nothing that ends a start."""


async def no_past_runs(_job: JobSpec, _task: str) -> str:
    """Of a hub without run history."""
    return ""


class Actions:
    """Every action is idempotent. A failed action is repeated when its job is reconciled again."""

    def __init__(
        self,
        connection: Connection,
        jobs: JobSpecs,
        members: Members,
        queue: WorkQueue[Key],
        settings: Settings,
        may_vanish: MayVanish,
        past_runs: PastRuns,
        secrets: JobSecrets,
    ) -> None:
        self._connection = connection
        self._jobs = jobs
        self._members = members
        self._queue = queue
        self._settings = settings
        self._may_vanish = may_vanish
        self._past_runs = past_runs
        self._secrets = secrets

    async def carry_out(self, outcome: Outcome, goal: Goal) -> bool:
        """Carry out all actions. False if an action waits in a member's lane: its result is not known yet."""
        for action in outcome.actions:
            await self._carry_out(action, goal, outcome.status.output)
        return all(action.attempt is None for action in outcome.actions)

    async def _carry_out(self, action: Action, goal: Goal, output: str) -> None:
        key = goal.key
        if action.verb in (Verb.REMOVE_FINALIZER, Verb.DELETE) and not self._may_vanish(key):
            self._queue.add_after(key, _RECORD_AGAIN_S)
        elif action.verb is Verb.REMOVE_FINALIZER:
            await self._jobs.remove_finalizer(key, self._jobs.items[key])
        elif action.verb is Verb.DELETE:
            await self._connection.delete(JOBSPEC, *key)
        elif action.attempt is not None and action.attempt.placement is not None:
            member = self._members.get(action.attempt.placement.cluster)
            if member is None or not member.reachable:
                self._queue.retry(key)
                return
            work = partial(self._on_member, member, action, action.attempt, goal, output)
            member.lane.hand(action.attempt.name, work, then=partial(self._queue.add, key), owner=key[0])

    async def _on_member(self, member: Member, action: Action, attempt: Attempt, goal: Goal, output: str) -> None:
        """Carry out one action on a member; the member's lane calls this. Raises nothing."""
        key, verb = goal.key, action.verb
        try:
            if not member.reachable:
                self._queue.retry(key)
                return
            if verb is Verb.START:
                if self._is_wanted(goal, attempt) and not member.has(attempt.name):
                    past = await self._past_runs(goal.job, attempt.task)
                    await attempt_objects.start(goal, attempt, output, member, self._secrets, self._settings, past)
            elif verb is Verb.STOP:
                await attempt_objects.stop(attempt, member, self._settings)
            elif verb is Verb.DOOR:
                await attempt_objects.open_door(goal, attempt, output, member, self._settings)
            elif verb is Verb.TELL:
                await attempt_objects.tell(attempt, member, {"standing": action.told})
            elif verb is Verb.CLEAN:
                if action.successor is not None:
                    await attempt_objects.hand_over(goal, action.successor, member)
                if not await member.remove(attempt.name):
                    self._queue.add_after(key, _CLEAN_AGAIN_S)
            self._queue.forget(key)
        except (Invalid, BadInput) as error:
            member.refuse(attempt.name, str(error))
            self._queue.add(key)
        except ApiError as error:
            log.warning("%s: %s", attempt.name, error)
            self._queue.retry(key)
        except Exception as error:  # one broken attempt must not stop the others
            log.exception("%s on %s: %s failed", attempt.name, member.name, verb)
            if verb is Verb.START and self._queue.failures(key) >= _MOST_TRIES:
                member.refuse(attempt.name, reason_of(error))
            self._queue.retry(key, base_s=5.0, longest_s=300.0)

    def _is_wanted(self, goal: Goal, attempt: Attempt) -> bool:
        """False if the attempt ended, or its JobSpec was deleted, while the start waited in the lane."""
        item = self._jobs.items.get(goal.key)
        if item is None or item["metadata"]["uid"] != goal.uid or "deletionTimestamp" in item["metadata"]:
            return False
        stored = self._jobs.status(goal.key).attempts
        return any(own.number == attempt.number and not own.created and own.ended_at is None for own in stored)
