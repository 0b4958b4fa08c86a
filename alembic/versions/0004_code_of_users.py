"""bundles, what jobs need, permissions of keys

Revision: 0004
Follows: 0003
"""

import sqlalchemy as sa

from alembic import op
from app.db import JsonText, UtcDateTime


revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bundles",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("unpacked_bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("storage_key", sa.String(length=255), nullable=False),
        sa.Column("created_by", sa.String(length=120), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_bundles_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bundles")),
    )
    op.create_index("ix_bundles_project_id_id", "bundles", ["project_id", "id"], unique=False)
    op.create_index("uq_bundles_project_id_digest", "bundles", ["project_id", "digest"], unique=True)
    op.create_table(
        "job_inputs",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("resource_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_inputs_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "resource_id", name=op.f("pk_job_inputs")),
    )
    op.create_index(op.f("ix_job_inputs_resource_id"), "job_inputs", ["resource_id"], unique=False)
    # Plain ADD COLUMN, as in 0003: a batch would rebuild the table on SQLite.
    op.add_column("api_keys", sa.Column("permissions", JsonText(), nullable=False, server_default="[]"))
    op.add_column("jobs", sa.Column("kind", sa.String(length=16), nullable=False, server_default="model"))
    op.add_column("model_tasks", sa.Column("framework", sa.String(length=16), nullable=True))


def downgrade() -> None:
    op.drop_column("model_tasks", "framework")
    op.drop_column("jobs", "kind")
    op.drop_column("api_keys", "permissions")
    op.drop_table("job_inputs")
    op.drop_table("bundles")
