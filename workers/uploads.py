"""Takes the files that a trainer handed over from its work directory into the storage."""

import contextlib
import hashlib
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from app.artifacts.repository import ArtifactFacts, valid_name
from app.errors import TrainshedError
from app.storage import Storage
from app.storage.keys import artifact_key
from workers.protocol import Artifact

MOST: Final = 100
_BLOCK: Final = 1024 * 1024


class UnusableArtifact(TrainshedError):
    """A file that the trainer announced is not one that may be stored."""

    code = "artifact_unreadable"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The artifact {name[:120]!r} {reason}. An artifact is a regular file inside the work directory with a "
            "name of one path segment, for example model.safetensors."
        )
        self.name = name


def store_artifacts(
    storage: Storage,
    artifacts: Iterable[Artifact],
    work_dir: Path,
    job_id: str,
    attempt: int,
    most_bytes: int | None = None,
) -> list[ArtifactFacts]:
    """Store the files and say what they are; the last one wins where a name was announced twice.

    `most_bytes`: how many all of them may have together; None: as many as there are.

    To be called when no process of the attempt is left, so that a file cannot change under the check.

    Raises:
        UnusableArtifact: a name or a file is not acceptable; nothing was stored.
        OSError: the storage could not take a file; of the others nothing is left in it.
    """
    announced = {artifact.name: artifact for artifact in artifacts}
    if len(announced) > MOST:
        raise UnusableArtifact(next(iter(announced)), f"is one of {len(announced)}; at most {MOST} are stored")
    files = [(artifact, checked_path(artifact, work_dir)) for artifact in announced.values()]
    if most_bytes is not None:
        _check_sizes(files, most_bytes)
    try:
        return [_store(storage, artifact, path, job_id, attempt) for artifact, path in files]
    except OSError:
        # A part of the files would only fill a storage that is full already.
        for artifact, _ in files:
            with contextlib.suppress(OSError):
                storage.delete(artifact_key(job_id, attempt, artifact.name))
        raise


def _check_sizes(files: Sequence[tuple[Artifact, Path]], most_bytes: int) -> None:
    sizes = [path.stat().st_size for _, path in files]
    if sum(sizes) > most_bytes:
        artifact, _ = files[sizes.index(max(sizes))]
        raise UnusableArtifact(
            artifact.name,
            f"has {max(sizes)} bytes, and all files of the job together {sum(sizes)}, more than the {most_bytes} that "
            "TRAINSHED_MAX_ARTIFACT_BYTES allows",
        )


def checked_path(artifact: Artifact, work_dir: Path) -> Path:
    """The artifact's file, which lies inside the work directory without any link on the way to it."""
    if not valid_name(artifact.name):
        raise UnusableArtifact(artifact.name, "has a name that is not allowed")
    try:
        path = inside(work_dir, artifact.path)
        if path is None:
            raise UnusableArtifact(artifact.name, "is not inside the work directory, or is reached through a link")
        if not stat.S_ISREG(path.lstat().st_mode):
            raise UnusableArtifact(artifact.name, "is not a regular file")
    except (OSError, ValueError) as error:
        raise UnusableArtifact(artifact.name, "is not there") from error
    return path


def inside(work_dir: Path, relative: str) -> Path | None:
    """What lies at a path that a trainer named; None when that leads out of the work directory, or over a link.

    Raises:
        OSError, ValueError: there is nothing, or it is no path.
    """
    root = work_dir.resolve(strict=True)
    path = root / relative
    return path if path.resolve(strict=True) == path and root in path.parents else None


def discard(storage: Storage, facts: Sequence[ArtifactFacts]) -> None:
    """Remove stored files again: their attempt turned out not to be the one that counts."""
    for fact in facts:
        storage.delete(fact.storage_key)


def _store(storage: Storage, artifact: Artifact, path: Path, job_id: str, attempt: int) -> ArtifactFacts:
    key = artifact_key(job_id, attempt, artifact.name)
    storage.put(key, path)
    return ArtifactFacts(
        job_id=job_id,
        name=artifact.name,
        attempt=attempt,
        kind=artifact.kind,
        media_type=artifact.media_type,
        size_bytes=path.stat().st_size,
        digest=digest_of(path),
        storage_key=key,
    )


def digest_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
