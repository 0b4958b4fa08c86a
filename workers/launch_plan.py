"""From a claim to what is launched: an attempt of our own trainer, or of a user's script."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.archives import ArchiveTooLarge, NoSuchMember, NotAnArchive, UnsafeArchive
from app.errors import Cause, TrainshedError
from app.jobs.claims import Claim
from app.jobs.endings import Ending
from app.spec import Code, EffectiveScriptSpec, code_of
from app.storage import MissingObject
from workers.assignments import make_assignment
from workers.beginning import Beginning, NothingToInitializeFrom, fetch_beginning
from workers.code_preparation import (
    Asking,
    BundleUnusable,
    NetworkNotGiven,
    archive_limits,
    fetch_bundle,
    packages_of,
    sandbox_of,
)
from workers.environments.errors import EnvironmentFailed
from workers.equipment import Equipment
from workers.interpreters import HOST_FRAMEWORK
from workers.launch_port import SCRIPT_HOST, TRAINER
from workers.outcome import Proof, failed, reason_of
from workers.protocol import Assignment, ScriptAssignment
from workers.sandbox import Sandbox
from workers.script_assignment import Sources, fetch_inputs, make_script_assignment

CODE: Final = "code"
"""The folder in a work folder where a bundle is unpacked."""


class NoInterpreter(TrainshedError):
    """This worker does not run the framework (any more)."""

    code = "worker_lost"

    def __init__(self, framework: str) -> None:
        super().__init__(f"This worker has no interpreter for {framework}.")


_CAUSES: Final[Mapping[tuple[type[TrainshedError], ...], Cause]] = {
    (MissingObject, NothingToInitializeFrom, BundleUnusable): Cause.INVALID_DATA,
    (NetworkNotGiven, NoSuchMember, NotAnArchive, UnsafeArchive, ArchiveTooLarge): Cause.ENVIRONMENT_FAILED,
    (NoInterpreter,): Cause.WORKER_LOST,
}


@dataclass(frozen=True)
class LaunchPlan:
    """What to launch. `interpreter` runs the launcher, which is the worker's own code in every case."""

    assignment: Assignment | ScriptAssignment
    interpreter: Path
    beginning: Beginning
    entry: str = TRAINER
    sandbox: Sandbox | None = None
    proof: Proof = Proof.MODEL


def plan_launch(claim: Claim, work_dir: Path, equipment: Equipment, asking: Asking) -> LaunchPlan:
    """Fetch all that the attempt starts from, and say what to launch; blocks, while packages are installed for minutes.

    Raises:
        NoInterpreter, NetworkNotGiven, BundleUnusable, EnvironmentFailed, EnvironmentCancelled: it cannot be launched.
        MissingObject, NothingToInitializeFrom: what it starts from is gone.
        OSError: the storage does not answer now.
    """
    code = code_of(claim.spec)
    prepared = _Prepared(_interpreter(equipment, claim.spec.framework))
    if code is not None:
        prepared = _prepare_code(claim, code, work_dir, equipment, asking)
    beginning = fetch_beginning(claim, work_dir, equipment.storage, asking.say)
    if isinstance(claim.spec, EffectiveScriptSpec):
        return _plan_script(claim, claim.spec, prepared, beginning, work_dir, equipment)
    assignment = make_assignment(claim, claim.spec, work_dir, equipment.storage, beginning, equipment.roots)
    if code is not None:
        assignment = assignment.model_copy(update=_user_code(code, prepared, work_dir, equipment))
    # Never the interpreter of an environment: it runs what its packages bring while it may still do what we may.
    return LaunchPlan(assignment, prepared.base, beginning, sandbox=prepared.sandbox)


def why_not_launched(error: OSError | TrainshedError) -> Ending:
    """The end of an attempt that `plan_launch` could not prepare."""
    if isinstance(error, EnvironmentFailed):
        return failed(error.cause, "\n".join((str(error), *error.detail)))
    for kinds, cause in _CAUSES.items():
        if isinstance(error, kinds):
            return failed(cause, str(error))
    return failed(Cause.WORKER_LOST, f"The data could not be fetched: {reason_of(error)}.")


@dataclass(frozen=True)
class _Prepared:
    """`base`: the framework's interpreter; `packages`: the one with the packages that the code asks for."""

    base: Path
    packages: Path | None = None
    bundle: Path | None = None
    sandbox: Sandbox | None = None


def _prepare_code(claim: Claim, code: Code, work_dir: Path, equipment: Equipment, asking: Asking) -> _Prepared:
    base = _interpreter(equipment, claim.spec.framework)
    sandbox = sandbox_of(code, claim, equipment.code)
    bundle = None if claim.bundle is None else fetch_bundle(claim.bundle, work_dir, equipment.storage)
    packages = packages_of(code, claim.spec.framework, base, bundle, equipment.environments, asking)
    return _Prepared(base, packages, bundle, sandbox)


def _plan_script(
    claim: Claim,
    spec: EffectiveScriptSpec,
    prepared: _Prepared,
    beginning: Beginning,
    work_dir: Path,
    equipment: Equipment,
) -> LaunchPlan:
    assignment = make_script_assignment(
        claim,
        spec,
        work_dir,
        sources=Sources(
            interpreter=prepared.packages or prepared.base,
            bundle=prepared.bundle,
            inputs=fetch_inputs(claim, work_dir, equipment.storage, equipment.roots),
            beginning=beginning,
        ),
        terms=equipment.code,
    )
    return LaunchPlan(
        assignment,
        _interpreter(equipment, HOST_FRAMEWORK),
        beginning,
        entry=SCRIPT_HOST,
        sandbox=prepared.sandbox,
        proof=Proof.OUTPUT if spec.script.success == "files" else Proof.EXIT,
    )


def _user_code(code: Code, prepared: _Prepared, work_dir: Path, equipment: Equipment) -> dict[str, object]:
    """What the assignment of a model job says about the user's own code."""
    packages = prepared.packages
    return {
        "bundle": None if prepared.bundle is None else str(prepared.bundle),
        "archive": archive_limits(equipment.code),
        "code": None if prepared.bundle is None else str(work_dir / CODE),
        "packages": None if packages in (None, prepared.base) else str(packages),
        "variables": dict(code.environment.variables),
    }


def _interpreter(equipment: Equipment, framework: str) -> Path:
    found = equipment.interpreters.get(framework)
    if found is None:
        raise NoInterpreter(framework)
    return found
