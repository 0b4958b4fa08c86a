"""The table of bundles: somebody's code, as a ZIP or a wheel."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from app.accounts.models import Project
from app.db import Base, UtcDateTime


class Bundle(Base):
    """A bundle of a project; `digest` is the SHA-256 of its bytes, of which a project has each only once.

    `files` and `unpacked_bytes` are what was found in it when it was checked.
    """

    __tablename__ = "bundles"
    __table_args__ = (
        Index("ix_bundles_project_id_id", "project_id", "id"),
        Index("uq_bundles_project_id_digest", "project_id", "digest", unique=True),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    project_id: Mapped[str] = mapped_column(String(32), ForeignKey(Project.id))
    digest: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(255))
    format: Mapped[str] = mapped_column(String(16))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    unpacked_bytes: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int] = mapped_column(Integer)
    storage_key: Mapped[str] = mapped_column(String(255))
    created_by: Mapped[str] = mapped_column(String(120))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
