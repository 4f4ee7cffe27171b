"""Summaries of the steps of an attempt, and an index for pages of training runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("summary", sa.JSON))
    op.create_index("attempts_by_kind", "attempts", ["kind", "started_at"])


def downgrade() -> None:
    op.drop_index("attempts_by_kind", "attempts")
    op.drop_column("attempts", "summary")
