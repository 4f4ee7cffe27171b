"""OpenTelemetry traces of jobs: spans as pure functions of what is known of a job, their text, and their export over OTLP.

A hub's job: `job_spans`, from its JobSpec alone. A run on one machine: `tuneyard.tracking` makes the same spans from its events. Importing
this room loads nothing of OpenTelemetry; `Exporter` does, where an endpoint is set.
"""

from tuneyard.tracing.export import Exporter, exporter_from, is_on
from tuneyard.tracing.jobs import SUBMITTED, TRACEPARENT, attempt_context, context_of, is_over, job_spans
from tuneyard.tracing.spans import Context, Mark, Span, SpanEvent, bounded, cut, id_of, phases, told, trace_id_of
from tuneyard.tracing.stages import CHECKPOINT, stage_spans
from tuneyard.tracing.timeline import duration, span_facts, timeline

__all__ = [
    "CHECKPOINT",
    "SUBMITTED",
    "TRACEPARENT",
    "Context",
    "Exporter",
    "Mark",
    "Span",
    "SpanEvent",
    "attempt_context",
    "bounded",
    "context_of",
    "cut",
    "duration",
    "exporter_from",
    "id_of",
    "is_on",
    "is_over",
    "job_spans",
    "phases",
    "span_facts",
    "stage_spans",
    "timeline",
    "told",
    "trace_id_of",
]
