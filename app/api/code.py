"""Checks what a spec says of the user's own code before a job is accepted: who may, the bundle, its files, the data."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.accounts.service import CODE, CodeNotAllowed, Principal
from app.api.errors import StorageUnavailable
from app.api.services import Services
from app.archives import ArchiveTooLarge
from app.bundles.models import Bundle
from app.bundles.repository import get_bundle, list_bundles
from app.bundles.service import bundle_contents, bundle_file
from app.datasets.models import Dataset
from app.datasets.roots import root_of
from app.errors import NotFound
from app.jobs.inputs import Needed
from app.spec import AnySpec, Code, InvalidSpec, JobSpec, NotEnabled, PythonModel, ScriptSpec, SpecProblem, code_of
from app.spec.files import check_script, has_module, missing_requirements, nearest_file, shell_words
from app.spec.problems import pointer
from app.spec.requirements import MOST_BYTES, InvalidRequirements, parse_requirements
from app.storage import MissingObject

log = structlog.get_logger("trainshed.api")

_MOST_KEPT: Final = 64
"""Bundles whose file names are kept in memory; they never change."""


@dataclass(frozen=True)
class Found:
    """What the code of a job needs, found: rows to keep, what the user should know, and the data root to be read.

    `dataset_id`: the data set that says on which host a script can run, the first one that is read in place; else the
    first of all.
    """

    inputs: tuple[Needed, ...] = ()
    warnings: tuple[str, ...] = ()
    dataset_id: str | None = None
    root: str | None = None


def check_code(services: Services, principal: Principal, spec: AnySpec) -> Found:
    """Look up what the spec names; nothing for one without code of the user's.

    Raises:
        CodeNotAllowed: the key may not bring code along.
        NotEnabled: it asks for the network, which no job here may reach.
        InvalidSpec: every other problem.
        StorageUnavailable: the bundle cannot be looked at now.
    """
    code = code_of(spec)
    if code is None:
        return Found()
    if not principal.may(CODE):
        raise CodeNotAllowed(principal.key_id)
    if code.network and not services.limits.code_network:
        sentence = (
            "Jobs may not reach the network here (TRAINSHED_CODE_NETWORK is off): put what the code needs into its "
            "bundle, its requirements or an uploaded data set."
        )
        raise NotEnabled([SpecProblem(f"/{code.place}/network", sentence, "false")])
    bundle = _bundle(services, principal, code)
    names = None if bundle is None else _names(services, bundle, code)
    found = _of_script(services, principal, spec) if isinstance(spec, ScriptSpec) else Found()
    problems = [*_requirements(services, bundle, names, code)]
    if isinstance(spec, ScriptSpec):
        problems += check_script(spec.script.command, names)
    if problems:
        raise InvalidSpec(problems)
    warnings = _shell(spec) if isinstance(spec, ScriptSpec) else _entrypoint(spec, names)
    if bundle is None:
        return replace(found, warnings=tuple(warnings))
    inputs = (Needed(bundle.id, f"/{code.place}/bundle"), *found.inputs)
    return replace(found, inputs=inputs, warnings=tuple(warnings))


def _bundle(services: Services, principal: Principal, code: Code) -> Bundle | None:
    if code.bundle is None:
        return None
    with services.database.read() as session:
        try:
            return get_bundle(session, principal.project_id, code.bundle)
        except NotFound:
            newest = list_bundles(session, principal.project_id, limit=1)
    said = f"There is no bundle '{code.bundle}' in this project; "
    advice = f"the newest is '{newest[0].id}' ({newest[0].name})." if newest else "upload one with POST /v1/bundles."
    raise InvalidSpec([SpecProblem(f"/{code.place}/bundle", said + advice, newest[0].id if newest else None)])


def _names(services: Services, bundle: Bundle, code: Code) -> frozenset[str]:
    """The names of a bundle's files, kept: bundles never change."""
    known = services.bundle_names.get(bundle.id)
    if known is not None:
        return known
    with _storage(bundle, code):
        names = bundle_contents(services.storage, bundle).names
    if len(services.bundle_names) >= _MOST_KEPT:
        services.bundle_names.clear()
    services.bundle_names[bundle.id] = names
    return names


def _requirements(
    services: Services, bundle: Bundle | None, names: frozenset[str] | None, code: Code
) -> Iterator[SpecProblem]:
    wanted = code.environment.requirements
    where = f"/{code.place}/environment/requirements"
    if isinstance(wanted, list):
        yield from _unparsed(wanted, where)
    elif wanted is not None and (bundle is None or names is None or wanted not in names):
        yield missing_requirements(where, wanted, names)
    elif wanted is not None and bundle is not None:
        with _storage(bundle, code):
            try:
                text = bundle_file(services.storage, bundle, wanted, MOST_BYTES).decode()
            except (ArchiveTooLarge, UnicodeDecodeError):
                sentence = f"'{wanted}' is no requirements file: it must be UTF-8 text of at most {MOST_BYTES} bytes."
                yield SpecProblem(where, sentence)
                return
        yield from _unparsed(text, where)


def _unparsed(wanted: str | list[str], where: str) -> Iterator[SpecProblem]:
    try:
        parse_requirements(wanted)
    except InvalidRequirements as error:
        yield SpecProblem(where if isinstance(wanted, str) else f"{where}/{error.line - 1}", str(error), error.example)


@contextmanager
def _storage(bundle: Bundle, code: Code) -> Iterator[None]:
    try:
        yield
    except MissingObject:
        sentence = f"The file of bundle '{bundle.id}' is not in the storage any more; upload it again."
        raise InvalidSpec([SpecProblem(f"/{code.place}/bundle", sentence)]) from None
    except OSError as error:
        log.exception("storage failed", bundle_id=bundle.id)
        raise StorageUnavailable from error


def _shell(spec: ScriptSpec) -> list[str]:
    words = shell_words(spec.script.command)
    if not words:
        return []
    return [f"'{words[0]}' is given to the program as it is: no shell reads the command, unless it begins with one."]


def _entrypoint(spec: JobSpec, names: frozenset[str] | None) -> list[str]:
    if names is None or not isinstance(spec.model, PythonModel):
        return []
    module = spec.model.entrypoint.partition(":")[0]
    if has_module(module, names):
        return []
    nearest = nearest_file(f"{module.replace('.', '/')}.py", names)
    meant = f" Did you mean {nearest}?" if nearest else ""
    return [f"The bundle has no module '{module}'; the job works only if the worker's environment has it.{meant}"]


def _of_script(services: Services, principal: Principal, spec: ScriptSpec) -> Found:
    """The data sets of a script. Of those that are read in place all must be readable on one host.

    Raises:
        InvalidSpec: names each that is not there.
    """
    wanted = spec.script.data
    if not wanted:
        return Found()
    with services.database.read() as session:
        query = select(Dataset.id, Dataset.uri).where(
            Dataset.project_id == principal.project_id, Dataset.id.in_(sorted(set(wanted.values())))
        )
        known = {row.id: root_of(row.uri) for row in session.execute(query)}
        problems = [
            _unknown_data(session, principal.project_id, name, source)
            for name, source in wanted.items()
            if source not in known
        ]
    if problems:
        raise InvalidSpec(problems)
    in_place = {source: root for source, root in known.items() if root is not None}
    roots = sorted(set(in_place.values()))
    if len(roots) > 1:
        sentence = f"The data sets are read in place in {' and '.join(roots)}; those of one script must be in one root."
        raise InvalidSpec([SpecProblem("/script/data", sentence)])
    inputs = tuple(Needed(source, pointer(("script", "data", name))) for name, source in wanted.items())
    return Found(inputs, (), next(iter(in_place or known)), roots[0] if roots else None)


def _unknown_data(session: Session, project_id: str, name: str, source: str) -> SpecProblem:
    newest = session.scalar(
        select(Dataset.id).where(Dataset.project_id == project_id).order_by(Dataset.id.desc()).limit(1)
    )
    advice = f"the newest is '{newest}'." if newest else "upload one with POST /v1/datasets."
    return SpecProblem(
        pointer(("script", "data", name)), f"There is no data set '{source}' in this project; {advice}", newest
    )
