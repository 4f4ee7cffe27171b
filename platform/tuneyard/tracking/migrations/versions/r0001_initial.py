"""Jobs, attempts, steps, evaluations, usage."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _attempt_id() -> sa.Column[str]:
    return sa.Column("attempt_id", sa.String(32), sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("namespace", sa.String(63), nullable=False),
        sa.Column("team", sa.String(63), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("output", sa.Text, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("ended_at", moment),
    )
    op.create_index("jobs_by_start", "jobs", ["started_at"])
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("job_id", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("task", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("failure", sa.String(32), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("sku", sa.String(63), nullable=False),
        sa.Column("workers", sa.Integer, nullable=False),
        sa.Column("plan", sa.JSON),
        sa.Column("result", sa.JSON),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("ended_at", moment),
    )
    op.create_index("attempts_by_job", "attempts", ["job_id"])
    measured = ["loss", "learning_rate", "step_s", "tokens_per_s", "mfu", "grad_norm", "memory_gb"]
    measured += ["data_s", "forward_s", "backward_s", "optimizer_s", "checkpoint_s", "other_s"]
    op.create_table(
        "steps",
        _attempt_id(),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("tokens", sa.Integer),
        *[sa.Column(name, sa.Float) for name in measured],
    )
    op.create_table("evaluations", _attempt_id(), sa.Column("step", sa.Integer, primary_key=True), sa.Column("loss", sa.Float))
    op.create_table(
        "usage",
        _attempt_id(),
        sa.Column("team", sa.String(63), nullable=False),
        sa.Column("sku", sa.String(63), nullable=False),
        sa.Column("workers", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("gpu_hours", sa.Float, nullable=False),
    )
    op.create_index("usage_by_team", "usage", ["team"])


def downgrade() -> None:
    for table in ("usage", "evaluations", "steps", "attempts", "jobs"):
        op.drop_table(table)
