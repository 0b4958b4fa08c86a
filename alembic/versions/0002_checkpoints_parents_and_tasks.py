"""checkpoints, parents and model tasks

Revision: 0002
Follows: 0001
"""

import sqlalchemy as sa

from alembic import op
from app.db import JsonText, UtcDateTime


revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=False),
        sa.Column("best", sa.Boolean(), nullable=False),
        sa.Column("metrics", JsonText(), nullable=False),
        sa.Column("files", JsonText(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("storage_prefix", sa.String(length=255), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "step", name=op.f("pk_checkpoints")),
    )
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.create_index("ix_checkpoints_job_id_created_at", ["job_id", "created_at"], unique=False)

    op.create_table(
        "model_tasks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=120), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", JsonText(), nullable=True),
        sa.Column("claim", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=True),
        sa.Column("instance", sa.String(length=32), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("deadline", UtcDateTime(), nullable=False),
        sa.Column("claimed_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_model_tasks_job_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_model_tasks_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_tasks")),
    )
    with op.batch_alter_table("model_tasks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_model_tasks_job_id"), ["job_id"], unique=False)
        batch_op.create_index("ix_model_tasks_project_id_id", ["project_id", "id"], unique=False)
        batch_op.create_index("ix_model_tasks_state_id", ["state", "id"], unique=False)

    # Not as a batch: that would rebuild the table of jobs on SQLite, and dropping the old one takes what refers to it.
    op.add_column("jobs", sa.Column("parent_job_id", sa.String(length=32), nullable=True))
    op.add_column("jobs", sa.Column("parent_how", sa.String(length=16), nullable=True))
    op.add_column("jobs", sa.Column("parent_step", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "parent_step")
    op.drop_column("jobs", "parent_how")
    op.drop_column("jobs", "parent_job_id")

    with op.batch_alter_table("model_tasks", schema=None) as batch_op:
        batch_op.drop_index("ix_model_tasks_state_id")
        batch_op.drop_index("ix_model_tasks_project_id_id")
        batch_op.drop_index(batch_op.f("ix_model_tasks_job_id"))

    op.drop_table("model_tasks")
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.drop_index("ix_checkpoints_job_id_created_at")

    op.drop_table("checkpoints")
