"""The table of uploaded data sets; built-in ones need no row."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from app.accounts.models import Project
from app.db import Base, JsonText, UtcDateTime


class Dataset(Base):
    """A table of a project: its file, and the schema found when it was checked.

    `storage_key` names an upload's file in the storage; a file that is read in place has the key "" and its `uri`,
    `root://name/path`; `modified_at` is when that file was last written, as it said when it was registered.
    """

    __tablename__ = "datasets"
    __table_args__ = (Index("ix_datasets_project_id_id", "project_id", "id"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    project_id: Mapped[str] = mapped_column(String(32), ForeignKey(Project.id))
    name: Mapped[str] = mapped_column(String(255))
    format: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16), default="ready")
    rows: Mapped[int] = mapped_column(Integer)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    storage_key: Mapped[str] = mapped_column(String(255))
    uri: Mapped[str | None] = mapped_column(String(1024))
    modified_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    table: Mapped[dict[str, Any]] = mapped_column(JsonText)
    created_by: Mapped[str] = mapped_column(String(120))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
