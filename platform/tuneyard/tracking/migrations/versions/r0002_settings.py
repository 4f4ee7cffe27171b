"""What a predictor reads of a run: the settings of an attempt as they were when it started."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("settings", sa.JSON))


def downgrade() -> None:
    op.drop_column("attempts", "settings")
