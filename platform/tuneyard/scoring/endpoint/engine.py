"""An endpoint as an engine: requests over HTTP, many at once, in one thread with an event loop of its own.

1. `run` pulls requests from its iterator and makes a task of each, up to the number that may be in flight.
2. A task waits for its turn (rate limits; in trouble one request at a time), sends, and reads the reply.
3. A failure of the request is tried again, and is the row's error from the fifth time on, if other rows were answered meanwhile. A
   refusal for load counts against no request. If nothing is answered for longer than `patience`, the task fails.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuneyard.api import Endpoint, FailureKind, Generation, JobFailed
from tuneyard.scoring.endpoint.clock import Clock, SystemClock
from tuneyard.scoring.endpoint.pace import Pace
from tuneyard.scoring.endpoint.reply import Answered, Refused, Reply, RowRefused, TryAgain
from tuneyard.scoring.endpoint.request import Form, RequestForm
from tuneyard.scoring.endpoint.sender import Sender, without_key
from tuneyard.scoring.endpoint.trouble import GivenUp, Trouble
from tuneyard.scoring.exchange import Answer, Asked, Evaluate, Generate
from tuneyard.scoring.rows import UNPAID, Paid

_TRIES = 5
_FEW, _LONG_S = 4, 900.0
"""Fewer requests in flight are the last ones, to which no other answer can be compared; they are tried for so long."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_POLL_S = 0.05
"""Time until new requests are looked for while others are in flight."""
_REFUSED_AT_FIRST = 20
"""Requests refused with the same words, without an answer to any, after which the task ends: the form of all requests is wrong."""


@dataclass
class _Try:
    """A request with its failures so far."""

    request: Generate
    since: float
    failures: int = 0
    failing_since: float = 0.0
    failed_at: float = 0.0
    """Time of the last failure."""
    limit_field: str = ""
    """The name of the limit of tokens in the last try."""
    paid: Paid = UNPAID


class EndpointEngine:
    """See `exchange.Engine`."""

    def __init__(
        self,
        endpoint: Endpoint,
        generation: Generation,
        *,
        key: str | None,
        instances: int = 1,
        clock: Clock | None = None,
        form: Form | None = None,
    ) -> None:
        """`key`: the API key. `instances`: processes that share the endpoint's limits evenly. `form`: by default, requests for answers."""
        self._endpoint, self._key = endpoint, key
        self._form: Form = form or RequestForm(endpoint, generation)
        self._clock: Clock = clock or SystemClock()
        self.at_once = max(1, endpoint.at_once // instances)
        self._pace = Pace(_share(endpoint.requests_per_minute, instances), _share(endpoint.tokens_per_minute, instances))
        self._trouble = Trouble(endpoint.patience, self.at_once)
        self._usual_answer = self._form.usual_answer
        self._sending = self._answers = 0
        self._answered_since = -math.inf
        """When the newest of all answered requests was sent."""
        self._refusals = Counter[str]()
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._loop = asyncio.new_event_loop()
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()
        self._sender = Sender(endpoint, key)
        self.paid = UNPAID
        """Tokens that the endpoint has counted, in all replies so far."""

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    def run(self, requests: Iterator[Asked | None]) -> Iterator[Answer]:
        """As `exchange.Engine.run`. Raises JobFailed where the endpoint refuses all requests, or gives no answer for too long."""
        more = True
        try:
            while more or self._tasks:
                while more and len(self._tasks) < self.at_once:
                    request = next(requests, _END)
                    if request is _END:
                        more = False
                    elif request is None:
                        break
                    else:
                        assert isinstance(request, Generate | Evaluate)
                        self._tasks.add(self._loop.create_task(self._answer(request)))
                yield from self._finished()
        finally:
            self._abandon()

    def close(self) -> None:
        """Nothing is left: connections are closed when `run` ends."""

    def _finished(self) -> Iterator[Answer]:
        if not self._tasks:
            return
        done, self._tasks = self._loop.run_until_complete(asyncio.wait(self._tasks, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED))
        broken = [task for task in done if task.exception() is not None]
        for task in done.difference(broken):
            yield task.result()
        for task in broken:
            task.result()  # raises

    def _abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(self._end(list(self._tasks)))
        self._tasks = set()

    async def _end(self, tasks: list[asyncio.Task[Answer]]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sender.close()

    # --- one request ------------------------------------------------------------------------------------------------------------------

    async def _answer(self, request: Asked) -> Answer:
        if isinstance(request, Evaluate):
            return Answer(request.key, 0.0, error="an endpoint gives no likelihood of the reference")
        tried = _Try(request, time.perf_counter())
        while True:
            reply = await self._in_turn(tried)
            tried.paid = tried.paid.plus(_paid(reply))
            match reply:
                case Answered():
                    return self._made(tried, reply)
                case RowRefused(limit_field=True) if self._takes_newer_limit(tried):
                    continue
                case RowRefused():
                    return self._failed(tried, reply.reason)
                case Refused():
                    raise JobFailed(self._hidden(f"{self._name} refuses all requests: {reply.reason}"), self._pointed(reply.next_step))
                case TryAgain(for_load=True):
                    continue
            if self._is_to_blame(tried):
                return self._failed(tried, f"{tried.failures} tries failed; the last one: {reply.reason}")
            await self._clock.sleep(self._pause_s(tried.failures, reply.retry_after_s))

    def _made(self, tried: _Try, answered: Answered) -> Answer:
        return Answer(
            tried.request.key,
            time.perf_counter() - tried.since,
            self._hidden(answered.text),
            answered.finish_reason,
            answered.output_tokens,
            input_tokens=answered.input_tokens,
            paid=tried.paid,
            vectors=answered.vectors,
            by_stop_text=answered.by_stop_text,
            reasoning=self._hidden(answered.reasoning) if answered.reasoning is not None else None,
        )

    def _failed(self, tried: _Try, reason: str) -> Answer:
        return Answer(
            tried.request.key, time.perf_counter() - tried.since, error=self._hidden(f"{self._form.noun}: {reason}"), paid=tried.paid
        )

    def _is_to_blame(self, tried: _Try) -> bool:
        """Count a failure. True if it is the row's: another request, sent after the failure before, was answered, or the row is among the
        last ones and fails for long. Answers to requests that were sent earlier say nothing about an outage that began meanwhile."""
        now = self._clock.now()
        if not tried.failures:
            tried.failing_since = now
        failed_before, tried.failed_at = tried.failed_at, now
        tried.failures += 1
        if tried.failures < _TRIES:
            return False
        long_s = min(_LONG_S, self._endpoint.patience / 2)
        return self._answered_since > failed_before or (len(self._tasks) < _FEW and now - tried.failing_since >= long_s)

    def _takes_newer_limit(self, tried: _Try) -> bool:
        """Whether the request gets another try, in which the limit has the name that the endpoint asks for."""
        self._form = self._form.with_newer_limit()
        return tried.limit_field != self._form.limit_field

    def _pause_s(self, failures: int, retry_after_s: float | None) -> float:
        pause_s = min(_LONGEST_PAUSE_S, math.ldexp(_FIRST_PAUSE_S, failures - 1)) * (1 + random.random() / 4)
        return max(pause_s, min(retry_after_s or 0.0, self._endpoint.patience))

    # --- turns ------------------------------------------------------------------------------------------------------------------------

    async def _in_turn(self, tried: _Try) -> Reply:
        """Send a request when it may be sent, and note what its reply says about the endpoint. Raises JobFailed."""
        while True:
            if self._trouble.since is None:
                if await self._has_room():
                    return await self._noted(tried)
                continue
            async with self._turn:  # in trouble, one request at a time, in the order in which they came
                if self._trouble.since is not None:
                    await self._clock.sleep(self._trouble.wait_s(self._clock.now()))
                    return await self._noted(tried)

    async def _has_room(self) -> bool:
        """Wait for room and for the rate limits. False: the endpoint has come into trouble meanwhile."""
        if self._sending >= int(self._trouble.width):
            self._freed.clear()
            await self._freed.wait()
            return False
        wait_s = self._pace.wait_s(self._clock.now())
        if wait_s > 0:
            await self._clock.sleep(min(wait_s, _LONGEST_PAUSE_S))
            return False
        return True

    async def _noted(self, tried: _Try) -> Reply:
        guessed, sent_at = self._form.guessed_tokens(tried.request.prompt) + self._usual_answer, self._clock.now()
        self._pace.start(sent_at, guessed)
        self._sending += 1
        try:
            tried.limit_field, prompt = self._form.limit_field, tried.request.prompt
            read = partial(self._form.read, prompt)
            reply = await self._sender.send(self._form.path(prompt), self._form.body(prompt, tried.request.seed), read)
        finally:
            self._sending -= 1
            self._freed.set()
        paid = _paid(reply)
        self.paid = self.paid.plus(paid)
        self._pace.correct(paid.input_tokens + paid.output_tokens - guessed)
        self._note(reply, sent_at)
        return reply

    def _note(self, reply: Reply, sent_at: float) -> None:
        if isinstance(reply, TryAgain):
            try:
                self._note_failure(reply, self._clock.now())
            except GivenUp as given_up:
                raise JobFailed(
                    self._hidden(f"{self._name} gives no answers: {given_up}"),
                    self._pointed(
                        "check engine.endpoint.url and its server, or raise engine.endpoint.patience; committed parts are kept, and "
                        "--resume continues after them"
                    ),
                    kind=FailureKind.NETWORK,
                ) from None
            return
        if isinstance(reply, Answered):
            self._answers += 1
            self._answered_since = max(self._answered_since, sent_at)
            self._usual_answer += (reply.output_tokens - self._usual_answer) / min(self._answers, 100)
        if isinstance(reply, Answered | RowRefused):
            self._trouble.answered(self._clock.now())
        if isinstance(reply, RowRefused) and reply.by_status and not reply.limit_field and not self._answers:
            self._refusals[reply.reason] += 1
            if self._refusals[reply.reason] >= _REFUSED_AT_FIRST:
                raise JobFailed(
                    self._hidden(f"{self._name} answers no request, and refused {_REFUSED_AT_FIRST} with: {reply.reason}"),
                    self._pointed("change what it names: a setting of generation, or a field by engine.endpoint.body (null removes one)"),
                )

    def _note_failure(self, reply: TryAgain, now: float) -> None:
        if reply.for_load:
            wait_s = reply.retry_after_s
            self._trouble.refused(now, reply.reason, reached=reply.reached, retry_after_s=wait_s, chance=random.random())
        else:
            self._trouble.failed(now, reply.reason)

    @property
    def _name(self) -> str:
        return f"{self._form.noun} {self._endpoint.url} (model {self._endpoint.model})"

    def _pointed(self, next_step: str) -> str:
        """A next step with the field of this endpoint."""
        return next_step.replace("engine.endpoint", self._form.field)

    def _hidden(self, text: str) -> str:
        return without_key(text.encode(), self._key).decode()


class _End:
    """Marks the end of requests."""


_END: Any = _End()


def _share(limit: float | None, instances: int) -> float | None:
    return None if limit is None else limit / instances


def _paid(reply: Reply) -> Paid:
    return UNPAID if isinstance(reply, Refused) else reply.paid
