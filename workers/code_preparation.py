"""What a user's own code needs before it can be launched: its bundle, its packages, and the limits that it gets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol

from app.archives import read_member
from app.errors import TrainshedError
from app.jobs.claims import Claim, ClaimedBundle
from app.spec import Code, EffectiveScriptSpec
from app.storage import MissingObject, Storage
from workers.code_terms import CodeTerms
from workers.protocol import ArchiveLimits
from workers.sandbox import Sandbox
from workers.uploads import digest_of

BUNDLE: Final = "bundle.zip"
"""The archive's name in a work folder; a wheel is a ZIP too."""
MOST_REQUIREMENTS_BYTES: Final = 1024 * 1024

Say = Callable[[str, str], None]


class BundleUnusable(TrainshedError):
    """The stored bundle is not there any more, or is not what was uploaded."""

    code: ClassVar[str] = "invalid_data"

    def __init__(self, bundle_id: str, reason: str) -> None:
        super().__init__(f"The bundle {bundle_id} {reason}. Upload it again and submit the job with its new id.")


class NetworkNotGiven(TrainshedError):
    """The job asks for the network, and this host gives it to none."""

    code: ClassVar[str] = "environment_failed"

    def __init__(self) -> None:
        super().__init__(
            "The job asks for the network, which this worker does not give: TRAINSHED_CODE_NETWORK is off there. Set "
            "it on, or submit the job with 'network': false."
        )


class Packages(Protocol):
    """Where environments of packages come from: `workers.environments.environments.Environments`."""

    def obtain(
        self,
        framework: str,
        requirements: str | Sequence[str],
        say: Say,
        cancelled: Callable[[], bool],
        *,
        holder: str,
        log: Callable[[str], None],
        runs_trainer: bool = False,
    ) -> Path: ...

    def release(self, holder: str) -> None: ...


@dataclass(frozen=True)
class Asking:
    """Who prepares: `say` and `log` go to the job's journal, `cancelled` tells that nobody wants it any more."""

    say: Say
    log: Callable[[str], None]
    cancelled: Callable[[], bool]
    holder: str


def fetch_bundle(bundle: ClaimedBundle, work_dir: Path, storage: Storage) -> Path:
    """The bundle's archive in the work folder, byte for byte what was uploaded; it stays packed.

    Raises:
        BundleUnusable: it is gone, or was changed in the storage.
        OSError: the storage does not answer now.
    """
    path = work_dir / BUNDLE
    try:
        storage.get(bundle.storage_key, path)
    except MissingObject as error:
        raise BundleUnusable(bundle.id, "is not in the storage any more") from error
    if digest_of(path) != bundle.digest:
        raise BundleUnusable(bundle.id, "is not what was uploaded: the bytes in the storage have changed")
    return path


def packages_of(
    code: Code, framework: str, base: Path, archive: Path | None, packages: Packages | None, asking: Asking
) -> Path:
    """The interpreter with the packages that the code asks for; `base` when it asks for none. Blocks while it installs.

    Raises:
        EnvironmentFailed, EnvironmentCancelled: see workers.environments.
        NoSuchMember: the requirements file is not in the bundle.
    """
    requirements = code.environment.requirements
    if requirements is None or packages is None:
        return base
    if isinstance(requirements, str):
        content = b"" if archive is None else read_member(archive, requirements, MOST_REQUIREMENTS_BYTES)
        requirements = content.decode(errors="replace")
    return packages.obtain(
        framework,
        requirements,
        asking.say,
        asking.cancelled,
        holder=asking.holder,
        log=asking.log,
        runs_trainer=code.place == "model",
    )


def sandbox_of(code: Code, claim: Claim, terms: CodeTerms) -> Sandbox:
    """The limits of an attempt with code of a user's own.

    Raises:
        NetworkNotGiven: it asks for what this host does not give.
    """
    if code.network and not terms.network:
        raise NetworkNotGiven
    if isinstance(claim.spec, EffectiveScriptSpec):
        several = claim.spec.script.processes == "per_device"
    else:
        several = len(claim.devices) > 1
    return Sandbox(
        network=code.network,
        needs_loopback=several,
        max_file_bytes=terms.max_file_bytes,
        max_processes=terms.max_processes,
    )


def archive_limits(terms: CodeTerms) -> ArchiveLimits:
    limits = terms.archive
    return ArchiveLimits(
        entries=limits.entries, total_bytes=limits.total_bytes, file_bytes=limits.file_bytes, ratio=limits.ratio
    )
