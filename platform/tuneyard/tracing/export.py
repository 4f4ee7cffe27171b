"""Export of spans over OTLP/HTTP, by OpenTelemetry's own exporter and its standard variables.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/: endpoint, headers, certificates, compression and timeout are
`OTEL_EXPORTER_OTLP_*`; the sampler is `OTEL_TRACES_SAMPLER`; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` describe the sender.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from queue import Empty, SimpleQueue
from threading import Thread, local
from typing import Any

from tuneyard.extras import need
from tuneyard.tracing.answers import answer_check
from tuneyard.tracing.spans import Span, bounded

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
BATCH = 256
"""Spans of one request: some 150 kB; collectors take 4 MB and more."""
_TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
_TIMEOUT_S, _LONGEST_TIMEOUT_S = 10.0, 3600.0
_MOST_LEFT = 4
"""Requests that may go on after their limit. While so many do, no other is begun."""


def is_on(environment: Mapping[str, str]) -> bool:
    """Whether an endpoint is set, and nothing switches traces off."""
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(environment.get(name) for name in _ENDPOINTS)


def exporter_from(environment: Mapping[str, str], service: str) -> Exporter | None:
    """The exporter that the process's variables ask for; None: traces are off. Raises BadInput where the extra [otel] is missing.

    `service`: the name of this service, unless OTEL_SERVICE_NAME names another.
    """
    if not is_on(environment):
        return None
    need("otel", "a trace")
    return Exporter(environment.get("OTEL_SERVICE_NAME") or service)


class Exporter:
    """Sends spans; a call waits for the whole answer, at most for `OTEL_EXPORTER_OTLP_TIMEOUT` (10 s), however slowly it comes.

    Only a status of 2xx, with an answer that ends within that time and within 64 KiB, says that the spans are taken. Redirects are not
    followed. A request that the limit ends goes on in a thread of its own until its connection ends.
    """

    def __init__(self, service: str) -> None:
        import requests
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._reasons = _LastReason()
        for name in ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.exporter.otlp.common.http"):
            noisy = logging.getLogger(name)
            noisy.addHandler(self._reasons)
            noisy.propagate = False  # the caller says once what is wrong, and goes on
        self._limit_s = _timeout_s(os.environ)
        session = requests.Session()
        session.hooks["response"].append(answer_check(self._limit_s))
        self._exporter = OTLPSpanExporter(session=session, timeout=self._limit_s)
        self._requests: list[Thread] = []
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._resource = Resource.create({"service.name": service, "service.version": _version()})
        self._scope = InstrumentationScope("tuneyard", _version())
        self._sampler = TracerProvider(resource=self._resource, shutdown_on_exit=False).sampler

    def send(self, spans: Sequence[Span]) -> str:
        """Send the spans that have ended, and that the sampler takes. Returns why they were not taken; empty if they were."""
        found = [self._readable(span) for span in spans if span.end is not None and self._takes(span)]
        if not found:
            return ""
        self._requests = [each for each in self._requests if each.is_alive()]
        if len(self._requests) >= _MOST_LEFT:
            return f"the receiver has not ended {_MOST_LEFT} requests before this one"
        answers: SimpleQueue[str] = SimpleQueue()
        self._answers = answers
        # A daemon: neither the caller nor the end of the process waits for a receiver that hangs.
        self._requests.append(Thread(target=self._request, args=(found, answers), name="tuneyard-traces-request", daemon=True))
        self._requests[-1].start()
        try:
            return answers.get(timeout=self._limit_s)
        except Empty:
            return f"the receiver gave no whole answer within {self._limit_s:g} s"

    def close(self) -> None:
        """End the wait for a request under way: it is not tried again."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        self._answers.put("the exporter is closed")

    def _request(self, found: Sequence[Any], answers: SimpleQueue[str]) -> None:
        """Send the spans, and put the reason why they were not taken; empty if they were."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            self._reasons.text = ""
            taken = self._exporter.export(found) is SpanExportResult.SUCCESS
            answers.put("" if taken else self._reasons.text or "the receiver did not take the spans")
        except Exception as error:  # noqa: BLE001 - it is the caller's
            answers.put(bounded(f"{type(error).__name__}: {error}"))

    def _takes(self, span: Span) -> bool:
        """The sampler's decision, which is one for a whole trace: of the parent's flag, or of the trace's id."""
        from opentelemetry import trace
        from opentelemetry.sdk.trace.sampling import Decision

        parent = None
        if not span.context.sampled:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(_context(span.context.trace_id, span.id, sampled=False)))
        decision = self._sampler.should_sample(parent, span.context.trace_id, "job").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def _readable(self, span: Span) -> Any:
        from opentelemetry.sdk.trace import Event as SdkEvent
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        trace_id = span.context.trace_id
        assert span.end is not None
        return ReadableSpan(
            name=span.name,
            context=_context(trace_id, span.id),
            parent=_context(trace_id, span.parent_id) if span.parent_id is not None else None,
            resource=self._resource,
            attributes=dict(span.attributes),
            events=[SdkEvent(event.name, dict(event.attributes), _ns(event.at)) for event in span.events],
            links=[Link(_context(trace_id, link)) for link in span.links],
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=_ns(span.start),
            end_time=_ns(span.end),
            instrumentation_scope=self._scope,
        )


class _LastReason(logging.Handler):
    """Keeps the last message of the exporter, which returns none: one for each thread, since a request may outlive its limit."""

    def __init__(self) -> None:
        super().__init__()
        self._last = local()

    @property
    def text(self) -> str:
        return getattr(self._last, "text", "")

    @text.setter
    def text(self, text: str) -> None:
        self._last.text = text

    def emit(self, record: logging.LogRecord) -> None:
        self.text = bounded(record.getMessage())


def _timeout_s(environment: Mapping[str, str]) -> float:
    """The limit of a request in seconds. What is no number, or none that makes sense, is the default."""
    try:
        found = float(next(filter(None, map(environment.get, _TIMEOUTS)), _TIMEOUT_S))
    except ValueError:
        return _TIMEOUT_S
    return found if math.isfinite(found) and 0 < found <= _LONGEST_TIMEOUT_S else _TIMEOUT_S


def _context(trace_id: int, span_id: int, *, sampled: bool = True) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(int(sampled)))


def _ns(moment: datetime) -> int:
    """Nanoseconds since 1970, exact: a float has too few digits."""
    whole = int(moment.replace(microsecond=0).timestamp())
    return (whole * 1_000_000 + moment.microsecond) * 1000


def _version() -> str:
    try:
        return version("tuneyard")
    except PackageNotFoundError:
        return "0"
