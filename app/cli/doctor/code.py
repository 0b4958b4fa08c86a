"""What code of users could reach on this host, and what keeps it in."""

from collections.abc import Iterator

from app.cli.doctor.findings import Finding, skipped, warning, well
from app.cli.doctor.place import Place
from workers.sandbox_probe import lacking


def check_code(place: Place) -> Iterator[Finding]:
    if not place.works:
        yield skipped("code", "No worker is installed here (extra `worker`).")
        return
    uids = place.settings.trainer_uid_range
    means = place.isolation(uids[-1] if uids is not None and place.uid == 0 else None)
    lacks = lacking(means)
    if lacks is None:
        yield well("code.network", f"Code of users is kept from the network by a {means} of its own.")
    else:
        yield warning("code.network", lacks, "Let the worker make namespaces, or run such jobs elsewhere.")
    yield well("code.users", _whose(place.uid, own=uids is not None))


def _whose(uid: int, *, own: bool) -> str:
    if own:
        return "Code of users runs as users of its own (TRAINSHED_TRAINER_UIDS)."
    if uid == 0:
        return "Code of users runs as root, like the worker: without capabilities, but with all that root can read."
    return "Code of users runs as the worker's own user, and can read what that can."
