"""All checks, in the order in which a person would go."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from app.cli.doctor.code import check_code
from app.cli.doctor.driver import check_driver, check_toolkit
from app.cli.doctor.environments import check_environments
from app.cli.doctor.findings import Check, Finding, Status, fault, run_check, well
from app.cli.doctor.folders import (
    check_disk,
    check_local,
    check_locks,
    check_roots,
    check_shared_memory,
    check_temporary,
    check_writable,
)
from app.cli.doctor.frameworks import check_frameworks, check_versions
from app.cli.doctor.place import Place
from app.cli.doctor.services import (
    check_broker,
    check_clock,
    check_database,
    check_port,
    check_server,
    check_storage,
)
from app.cli.doctor.users import check_host_id, check_trainer_users
from app.settings import InvalidSettings, Settings, load_settings

CHECKS: Final[Sequence[tuple[str, Check]]] = (
    ("versions", check_versions),
    ("folders", check_writable),
    ("disks", check_local),
    ("locks", check_locks),
    ("space", check_disk),
    ("temporary", check_temporary),
    ("shared_memory", check_shared_memory),
    ("data_roots", check_roots),
    ("trainer_users", check_trainer_users),
    ("code", check_code),
    ("host_id", check_host_id),
    ("clock", check_clock),
    ("database", check_database),
    ("broker", check_broker),
    ("storage", check_storage),
    ("port", check_port),
    ("driver", check_driver),
    ("toolkit", check_toolkit),
    ("frameworks", check_frameworks),
    ("environments", check_environments),
    ("server", check_server),
)


def at_this_place(settings: Settings, environ: Mapping[str, str]) -> Place:
    return Place(settings, environ)


def examine(
    environ: Mapping[str, str] | None = None,
    place_of: Callable[[Settings, Mapping[str, str]], Place] = at_this_place,
) -> Iterable[Finding]:
    """Yield what is found, check by check. Settings that cannot be read end it: nothing else could be looked at."""
    environ = dict(os.environ) if environ is None else environ
    try:
        settings = load_settings(environ)
    except InvalidSettings as error:
        yield fault("settings", str(error), "docs/settings.md has all of them.")
        return
    yield well("settings", "They can be read.")
    place = place_of(settings, environ)
    for name, check in CHECKS:
        yield from run_check(name, check, place)


def worst(findings: Iterable[Finding]) -> Status:
    """How it is on the whole; what was skipped is no news."""
    order = [Status.SKIPPED, Status.OK, Status.WARNING, Status.FAULT]
    return max((finding.status for finding in findings), key=order.index, default=Status.OK)
