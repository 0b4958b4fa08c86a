"""Environments of packages for users' code: what is kept, whether pip is there, and where packages come from."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.cli.doctor.findings import Finding, fault, skipped, warning, well
from app.cli.doctor.place import Place
from app.cli.figures import size
from workers.environments.plan import NO_INDEX
from workers.environments.shelf import FOLDER, kept

_READABLE: Final = 0o004


def check_environments(place: Place) -> Iterator[Finding]:
    if not place.works:
        yield skipped("environments", "No worker runs here.")
        return
    settings = place.settings
    folder = settings.effective_run_dir.absolute() / FOLDER
    found, most = kept(folder), settings.environments_bytes
    told = f"{found.count} in {folder}, {size(found.bytes)} of at most {size(most)}."
    yield well("environments", told if found.count else f"None in {folder} yet; at most {size(most)}.")
    if importlib.util.find_spec("pip") is None:
        yield fault(
            "environments.pip",
            "This Python has no pip, so jobs that require packages fail here.",
            "Install Trainshed with its extra `worker`, which brings it.",
        )
    yield from _sources(place)


def _sources(place: Place) -> Iterator[Finding]:
    """Where packages come from, as far as that can be told without asking for one."""
    settings, name = place.settings, "environments.sources"
    links = settings.pip_find_links
    if links.startswith("/"):
        try:
            readable = bool(Path(links).stat().st_mode & _READABLE) or not settings.trainer_uids
        except OSError as error:
            yield fault(
                name,
                f"TRAINSHED_PIP_FIND_LINKS names {links}, which cannot be looked at: {error.strerror}.",
                "Make the folder, mount it here, or correct the setting.",
            )
            return
        if not readable:
            yield warning(
                name,
                f"{links} (TRAINSHED_PIP_FIND_LINKS) is not readable by everybody, and packages are installed as a "
                "trainer's user.",
                f"chmod -R o+rX {links}",
            )
            return
    if settings.pip_index_url == NO_INDEX and not links:
        yield warning(
            name,
            "TRAINSHED_PIP_INDEX_URL is none and TRAINSHED_PIP_FIND_LINKS is not set: no package can be installed.",
            "Set one of them; see docs/environments.md.",
        )
        return
    index = {"": "what pip is configured to on this host", NO_INDEX: "no index"}.get(settings.pip_index_url)
    places = [index or settings.pip_index_url, *settings.pip_extra_index_urls, *([links] if links else [])]
    yield well(name, f"Packages come from {', '.join(places)}.")
