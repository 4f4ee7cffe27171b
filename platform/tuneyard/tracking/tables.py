"""The tables of run history. Changed only together with a new file in migrations/versions.

Local runs and hubs write the same tables. Programs of an earlier version may write while a newer one has migrated: a new column is
nullable or has a server default, and no column is renamed or removed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)

LOCAL, ON_HUB, IMPORTED = "local", "hub", "imported"
"""Values of `jobs.origin`: run by `tuneyard run`, recorded by a hub, or a run of others."""

CHARGED = "charged"
"""Value of `scores.metric`: what endpoints have charged for an attempt."""

WHOLE, THINNED, REMOVED = range(3)
"""Values of `attempts.retention`: how far `tuneyard.tracking.retention` has come with the attempt."""


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
    Column("started_at", UtcDateTime, nullable=False),  # on a hub: when it was submitted; it never changes, and lists are in its order
    Column("ended_at", UtcDateTime),
    Column("origin", String(16), nullable=False, server_default=LOCAL),
    Column("hub", String(64), nullable=False, server_default=""),  # which hub recorded it: uid of that cluster's namespace kube-system
    Column("uid", String(64), nullable=False, server_default=""),  # of the JobSpec
    Column("submitted_by", String(253), nullable=False, server_default=""),
    Column("placed_at", UtcDateTime),  # on a hub: when the first attempt was placed
    Column(
        "version", BigInteger, nullable=False, server_default="0"
    ),  # of the JobSpec that the row was made from: lower ones write nothing
    Column("mark", String(32), nullable=False, server_default=""),  # digest of all rows of the job
    Column("recorded_at", UtcDateTime),  # when the hub last wrote the job
    Index("jobs_by_start", "started_at"),
    Index("jobs_by_namespace", "hub", "namespace", "started_at"),
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
    Column("summary", JSON),  # of its steps: number, mean rates, peak memory
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("cluster", String(253), nullable=False, server_default=""),
    Column("gpus", Integer, nullable=False, server_default="0"),  # held from `placed_at` to `ended_at`; worker slots on cpu
    Column("price_per_gpu_hour", Float, nullable=False, server_default="0"),
    Column("placement", JSON),  # pods, and GPUs by node
    Column("placed_at", UtcDateTime),
    Column("resumed_from", Integer, nullable=False, server_default="0"),
    Column("last_step", Integer, nullable=False, server_default="0"),
    Column("checkpoint_step", Integer, nullable=False, server_default="0"),
    Column("retention", Integer, nullable=False, server_default="0"),  # state of its steps: WHOLE, THINNED or REMOVED
    Index("attempts_by_job", "job_id"),
    Index("attempts_by_end", "ended_at"),
    Index("attempts_by_kind", "kind", "started_at"),
    Index("attempts_by_retention", "retention", "ended_at"),
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

scores = Table(
    "scores",
    metadata,
    Column("attempt_id", String(32), ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("metric", String(100), primary_key=True),
    Column("value", Float, nullable=False),
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
    Column("cost", Float, nullable=False, server_default="0"),
    Index("usage_by_team", "team"),
)
