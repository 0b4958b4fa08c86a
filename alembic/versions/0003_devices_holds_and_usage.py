"""state of devices, holds, usage, data in place

Revision: 0003
Follows: 0002
"""

import sqlalchemy as sa

from alembic import op
from app.db import JsonText, UtcDateTime


revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Plain ADD COLUMN everywhere: a batch would rebuild the table on SQLite, and dropping the old one takes what refers to it.
_ADDED = (
    ("workers", "drain_requested_at", UtcDateTime()),
    ("workers", "condition", JsonText()),
    ("devices", "health_at", UtcDateTime()),
    ("devices", "quarantined_at", UtcDateTime()),
    ("devices", "quarantine_reason", sa.Text()),
    ("devices", "processes", JsonText()),
    ("devices", "readings", JsonText()),
    ("devices", "readings_at", UtcDateTime()),
    ("devices", "idle_since", UtcDateTime()),
    ("attempts", "device_s", sa.Float()),
    ("attempts", "energy_j", sa.Float()),
    ("attempts", "utilization", sa.Float()),
    ("attempts", "verdict", sa.String(length=16)),
    ("datasets", "uri", sa.String(length=1024)),
    ("datasets", "modified_at", UtcDateTime()),
)


def upgrade() -> None:
    op.create_table(
        "holds",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=120), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=False),
        sa.Column("devices", JsonText(), nullable=False),
        sa.Column("stop_when_idle_s", sa.Float(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("until", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("ended_why", sa.String(length=16), nullable=True),
        sa.Column("energy_j", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_holds_project_id")),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_holds_worker_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_holds")),
    )
    op.create_index("ix_holds_project_id_id", "holds", ["project_id", "id"], unique=False)
    op.create_index("ix_holds_ended_at_until", "holds", ["ended_at", "until"], unique=False)
    for table, name, kind in _ADDED:
        op.add_column(table, sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for table, name, _ in reversed(_ADDED):
        op.drop_column(table, name)
    op.drop_index("ix_holds_ended_at_until", table_name="holds")
    op.drop_index("ix_holds_project_id_id", table_name="holds")
    op.drop_table("holds")
