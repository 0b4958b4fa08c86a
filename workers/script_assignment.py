"""From the claim of a script job to what its host is told: its code, its files, and where it goes on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.datasets.roots import DataRoots
from app.jobs.claims import Claim, ClaimedInput
from app.spec import EffectiveScriptSpec
from app.storage import Storage
from workers.assignments import device_of, threads_of
from workers.beginning import Beginning
from workers.code_preparation import archive_limits
from workers.code_terms import CodeTerms
from workers.protocol import ScriptAssignment, ScriptLimits, ScriptMonitor
from workers.uploads import MOST

DATA: Final = "data"
"""The folder of data files in a work folder."""


@dataclass(frozen=True)
class Sources:
    """What a script is made of on this host: the job's own Python, its code and files, and where it goes on."""

    interpreter: Path
    bundle: Path | None
    inputs: dict[str, str]
    beginning: Beginning


def make_script_assignment(
    claim: Claim, spec: EffectiveScriptSpec, work_dir: Path, *, sources: Sources, terms: CodeTerms
) -> ScriptAssignment:
    """Write down what to run, on what, from where on."""
    script, beginning = spec.script, sources.beginning
    monitor = script.monitor
    return ScriptAssignment(
        job_id=claim.job_id,
        attempt=claim.attempt,
        framework=spec.framework,
        interpreter=str(sources.interpreter),
        command=list(script.command),
        processes=script.processes,
        variables=dict(script.environment.variables),
        devices=[device_of(device) for device in claim.devices],
        threads=threads_of(claim.devices),
        work_dir=str(work_dir),
        seed=script.seed,
        bundle=None if sources.bundle is None else str(sources.bundle),
        bundle_format=None if claim.bundle is None else claim.bundle.format,
        inputs=sources.inputs,
        digests={found.name: found.digest for found in claim.inputs if found.uri is not None},
        resume=None if beginning.resume is None else str(beginning.resume),
        resume_step=None if beginning.checkpoint is None else beginning.checkpoint.step,
        monitor=None if monitor is None else ScriptMonitor(metric=monitor.metric, mode=monitor.mode),
        success=script.success,
        limits=ScriptLimits(
            archive=archive_limits(terms), max_output_bytes=terms.max_artifact_bytes, max_output_files=MOST
        ),
        timeout_s=claim.remaining_s,
    )


def fetch_inputs(claim: Claim, work_dir: Path, storage: Storage, roots: DataRoots) -> dict[str, str]:
    """Where the script finds each of its data files: fetched into the work folder, or in place.

    Raises:
        UnknownRoot: a file lies where this host cannot read.
        MissingObject: an uploaded file is gone.
        OSError: an uploaded file could not be fetched.
    """
    folder = work_dir / DATA
    folder.mkdir(mode=0o700, exist_ok=True)
    return {found.name: _place(found, folder, storage, roots) for found in claim.inputs}


def _place(found: ClaimedInput, folder: Path, storage: Storage, roots: DataRoots) -> str:
    if found.uri is not None:
        root, below = roots.folder_of(found.uri)
        return str(root / below)
    path = folder / f"{found.name}.{found.format}"
    storage.get(found.storage_key, path)
    return str(path)
