"""How far retention has come with each attempt, and an index to the attempts that it has not looked at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("retention", sa.Integer, nullable=False, server_default="0"))
    op.create_index("attempts_by_retention", "attempts", ["retention", "ended_at"])


def downgrade() -> None:
    op.drop_index("attempts_by_retention", "attempts")
    with op.batch_alter_table("attempts") as batch:
        batch.drop_column("retention")
