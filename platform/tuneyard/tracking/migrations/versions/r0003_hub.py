"""What a hub knows of its jobs: origin, submitter, placement, price, scores, cost."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def _text(name: str, length: int, default: str = "") -> sa.Column[Any]:
    return sa.Column(name, sa.String(length), nullable=False, server_default=default)


def _number(name: str, kind: Any = sa.Integer) -> sa.Column[Any]:
    return sa.Column(name, kind(), nullable=False, server_default="0")


def _of_jobs() -> list[sa.Column[Any]]:
    texts = [_text("origin", 16, "local"), _text("hub", 64), _text("uid", 64), _text("submitted_by", 253)]
    return [
        *texts,
        sa.Column("placed_at", _MOMENT),
        _number("version", sa.BigInteger),
        _text("mark", 32),
        sa.Column("recorded_at", _MOMENT),
    ]


def _of_attempts() -> list[sa.Column[Any]]:
    place = [_text("cluster", 253), _number("gpus"), _number("price_per_gpu_hour", sa.Float), sa.Column("placement", sa.JSON)]
    steps = [_number(name) for name in ("resumed_from", "last_step", "checkpoint_step")]
    return [*place, sa.Column("placed_at", _MOMENT), *steps]


def upgrade() -> None:
    for table, columns in (("jobs", _of_jobs()), ("attempts", _of_attempts()), ("usage", [_number("cost", sa.Float)])):
        for column in columns:
            op.add_column(table, column)
    op.create_table(
        "scores",
        sa.Column("attempt_id", sa.String(32), sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("metric", sa.String(100), primary_key=True),
        sa.Column("value", sa.Float, nullable=False),
    )
    op.create_index("jobs_by_namespace", "jobs", ["hub", "namespace", "started_at"])
    op.create_index("attempts_by_end", "attempts", ["ended_at"])
    op.execute("UPDATE jobs SET origin = 'imported' WHERE namespace = 'imported'")
    # As local runs count: a worker is a GPU, except on processors.
    op.execute("UPDATE attempts SET gpus = workers WHERE sku NOT IN ('', 'cpu')")


def downgrade() -> None:
    op.drop_index("attempts_by_end", "attempts")
    op.drop_index("jobs_by_namespace", "jobs")
    op.drop_table("scores")
    for table, columns in (("jobs", _of_jobs()), ("attempts", _of_attempts()), ("usage", [_number("cost", sa.Float)])):
        with op.batch_alter_table(table) as batch:
            for column in columns:
                batch.drop_column(column.name)
