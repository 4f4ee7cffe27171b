"""Traces of a hub's jobs: sends the spans of `tuneyard.tracing.job_spans` once they have ended.

Importing this room loads nothing of OpenTelemetry: a hub without an endpoint does without.
"""

from tuneyard_operators.tracing.metrics import TracingMetrics
from tuneyard_operators.tracing.sender import TraceSender

__all__ = ["TraceSender", "TracingMetrics"]
