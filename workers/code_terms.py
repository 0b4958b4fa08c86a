"""What this host allows the code of users, by its settings."""

from dataclasses import dataclass, field
from typing import Final

from app.archives import Limits
from app.settings import Settings

GIB: Final = 1024**3


@dataclass(frozen=True)
class CodeTerms:
    """Sizes in bytes. `network`: a job may have the network if it asks for it."""

    network: bool = False
    max_file_bytes: int = 64 * GIB
    max_processes: int = 1024
    max_artifact_bytes: int = 20 * GIB
    archive: Limits = field(default_factory=Limits)

    @classmethod
    def of(cls, settings: Settings) -> "CodeTerms":
        return cls(
            network=settings.code_network == "on",
            max_file_bytes=settings.code_max_file_bytes,
            max_processes=settings.code_max_processes,
            max_artifact_bytes=settings.max_artifact_bytes,
            archive=Limits(
                entries=settings.max_bundle_files,
                total_bytes=settings.max_bundle_unpacked_bytes,
                file_bytes=settings.max_bundle_unpacked_bytes,
            ),
        )
