"""Summaries of the steps of an attempt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("summary", sa.JSON))


def downgrade() -> None:
    op.drop_column("attempts", "summary")
