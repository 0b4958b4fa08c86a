"""What an attempt starts from: its job's newest checkpoint that can be read, or the weights of another job's."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import structlog

from app.checkpoints.repository import CheckpointFacts, prefixes
from app.db import Database, DatabaseDown
from app.errors import TrainshedError
from app.jobs.claims import Claim
from app.jobs.resumption import Resumption, resumption_at, without_journal
from app.spec import EffectiveScriptSpec
from app.storage import MissingObject, Storage
from app.storage.keys import checkpoints_of
from workers.checkpoints import MANIFEST_NAME, UnreadableCheckpoint, verify
from workers.uploads import digest_of

log = structlog.get_logger("worker")

RESUME: Final = "resume"
INITIALIZE: Final = "initialize"

Say = Callable[[str, str], None]
"""Takes the code and the sentence of a notice to the user."""


class NothingToInitializeFrom(TrainshedError):
    """The checkpoint that the spec names was there when the job was submitted, and is not any more."""

    code: ClassVar[str] = "invalid_data"

    def __init__(self, job_id: str, checkpoint: object, reason: str) -> None:
        super().__init__(
            f"initialize_from names checkpoint {checkpoint!r} of {job_id}, which cannot be used: {reason} "
            "Name another one, for example 'last', or leave initialize_from out."
        )


@dataclass(frozen=True)
class Beginning:
    """Folders inside the work directory, as the trainer is told; `checkpoint` is the one in `resume`."""

    resume: Path | None = None
    initialize: Path | None = None
    checkpoint: CheckpointFacts | None = None


def fetch_beginning(claim: Claim, work_dir: Path, storage: Storage, say: Say) -> Beginning:
    """Fetch the newest checkpoint that is whole; what is passed over, and what is taken, is said.

    Raises:
        NothingToInitializeFrom: the job would start from weights that are gone.
        OSError: the storage does not answer now. That is no reason to start anew.
    """
    for facts in claim.resume:
        try:
            folder = _fetch(facts, work_dir / RESUME, storage)
        except UnreadableCheckpoint as error:
            say("checkpoint_unreadable", f"The checkpoint of step {facts.step} cannot be used: {error.reason}")
            continue
        whose = "" if facts.job_id == claim.job_id else f" of {facts.job_id}"
        say("resumed", f"Goes on from the checkpoint of step {facts.step}, epoch {facts.epoch}{whose}.")
        return Beginning(resume=folder, checkpoint=facts)
    if claim.resume:
        say("started_anew", "None of the job's checkpoints can be read, so the training starts from the beginning.")
    return Beginning(initialize=_initial(claim, work_dir, storage, say))


def resumption_of(beginning: Beginning, database: Database) -> Resumption | None:
    """What the job shows from the start of the trainer to its first report."""
    if beginning.checkpoint is None:
        return None
    try:
        with database.read() as session:
            return resumption_at(session, beginning.checkpoint)
    except DatabaseDown:
        return without_journal(beginning.checkpoint)


def remove_left_overs(claim: Claim, database: Database, storage: Storage) -> None:
    """Delete what earlier attempts stored and did not come to record: they were killed in between.

    Before this attempt stores anything itself, and with its claim as the proof that the earlier ones are over.
    """
    try:
        with database.read() as session:
            named = prefixes(session, claim.job_id)
        for key in storage.list(checkpoints_of(claim.job_id)):
            if key.rpartition("/")[0] not in named:
                storage.delete(key)
    except (OSError, TrainshedError):
        log.warning("left_overs_not_removed", job_id=claim.job_id, exc_info=True)


def _initial(claim: Claim, work_dir: Path, storage: Storage, say: Say) -> Path | None:
    wanted = None if isinstance(claim.spec, EffectiveScriptSpec) else claim.spec.initialize_from
    if wanted is None:
        return None
    if claim.initialize is None:
        raise NothingToInitializeFrom(wanted.job, wanted.checkpoint, "it is not there any more.")
    try:
        folder = _fetch(claim.initialize, work_dir / INITIALIZE, storage)
    except UnreadableCheckpoint as error:
        raise NothingToInitializeFrom(wanted.job, wanted.checkpoint, error.reason) from error
    say("initialized", f"Starts from the weights of {wanted.job}, checkpoint of step {claim.initialize.step}.")
    return folder


def _fetch(facts: CheckpointFacts, folder: Path, storage: Storage) -> Path:
    """The checkpoint in a folder of its own, checked by its row's digests and by its manifest."""
    folder.mkdir(mode=0o700)
    try:
        for file in facts.files:
            storage.get(f"{facts.storage_prefix}/{file.name}", folder / file.name)
        _check(facts, folder)
    except MissingObject as error:
        shutil.rmtree(folder)
        raise UnreadableCheckpoint(folder, "a file of it is missing.") from error
    except UnreadableCheckpoint:
        shutil.rmtree(folder)
        raise
    return folder


def _check(facts: CheckpointFacts, folder: Path) -> None:
    """The manifest by its row, all others by the manifest: each byte is read once."""
    for file in facts.files:
        if file.name == MANIFEST_NAME and digest_of(folder / file.name) != file.digest:
            raise UnreadableCheckpoint(folder, f"'{file.name}' is not what was stored.")
    verify(folder)
