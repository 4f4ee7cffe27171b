"""The tables of run history. Changed only together with a new file in migrations/versions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Column, DateTime, Dialect, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text, TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with time zone; SQLite, which has none, keeps it in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)


metadata = MetaData()

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(253), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("team", String(63), nullable=False),
    Column("status", String(32), nullable=False),
    Column("message", Text, nullable=False, default=""),
    Column("output", Text, nullable=False, default=""),
    Column("spec", JSON, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Index("jobs_by_start", "started_at"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("job_id", String(32), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("task", String(63), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("number", Integer, nullable=False),
    Column("status", String(32), nullable=False),
    Column("failure", String(32), nullable=False, default=""),
    Column("message", Text, nullable=False, default=""),
    Column("sku", String(63), nullable=False, default=""),
    Column("workers", Integer, nullable=False, default=1),
    Column("plan", JSON),
    Column("result", JSON),
    Column("settings", JSON),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Index("attempts_by_job", "job_id"),
)

steps = Table(
    "steps",
    metadata,
    Column("attempt_id", String(32), ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("loss", Float),
    Column("learning_rate", Float),
    Column("tokens", Integer),
    Column("step_s", Float),
    Column("tokens_per_s", Float),
    Column("mfu", Float),
    Column("grad_norm", Float),
    Column("memory_gb", Float),
    Column("data_s", Float),
    Column("forward_s", Float),
    Column("backward_s", Float),
    Column("optimizer_s", Float),
    Column("checkpoint_s", Float),
    Column("other_s", Float),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("attempt_id", String(32), ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("loss", Float),
)

usage = Table(
    "usage",
    metadata,
    Column("attempt_id", String(32), ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("team", String(63), nullable=False),
    Column("sku", String(63), nullable=False),
    Column("workers", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("gpu_hours", Float, nullable=False),
    Index("usage_by_team", "team"),
)
