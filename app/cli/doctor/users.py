"""Whether trainers can be given users of their own, and how this host is named."""

import pwd
from collections.abc import Iterator
from typing import Final

from app.cli.doctor.findings import Finding, fault, skipped, warning, well
from app.cli.doctor.place import Place

# capabilities(7): what it takes to start a process of another user, hand it a folder, and end it.
_NEEDED: Final = {"CHOWN": 0, "KILL": 5, "SETGID": 6, "SETUID": 7}


def check_trainer_users(place: Place) -> Iterator[Finding]:
    uids = place.settings.trainer_uid_range
    if uids is None:
        yield skipped("trainer_users", "TRAINSHED_TRAINER_UIDS is not set: trainers run as the worker does.")
        return
    told = f"TRAINSHED_TRAINER_UIDS is {place.settings.trainer_uids}"
    taken = sorted(user.pw_name for user in pwd.getpwall() if user.pw_uid in uids)
    if place.uid != 0:
        yield fault("trainer_users", f"{told}, but this is user {place.uid}, not root.", "Start the worker as root.")
    elif taken:
        yield fault("trainer_users", f"{told}, which has the users {', '.join(taken)} of this host.", "Free numbers.")
    elif not _mapped(place, uids):
        yield fault(
            "trainer_users",
            f"{told}, but not all of them exist in this user namespace.",
            "Map more numbers (subuid, userns-remap), or choose a range that is mapped.",
        )
    elif missing := _missing(place):
        yield fault(
            "trainer_users",
            f"{told}, but the capabilities {', '.join(missing)} are missing.",
            "Add them with cap_add, as docker-compose.yml does.",
        )
    else:
        yield well("trainer_users", f"{len(uids)} users are there for trainers.")


def _mapped(place: Place, uids: range) -> bool:
    """`/proc/self/uid_map`: first number inside, first outside, how many."""
    try:
        lines = (place.root / "proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return True
    spans = [(int(first), int(first) + int(count)) for first, _, count in (line.split() for line in lines)]
    return any(first <= uids[0] and uids[-1] < end for first, end in spans)


def _missing(place: Place) -> list[str]:
    try:
        lines = (place.root / "proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    held = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), None)
    return [] if held is None else [name for name, bit in _NEEDED.items() if not held >> bit & 1]


def check_host_id(place: Place) -> Iterator[Finding]:
    """A container's own name changes each time it is made anew, and locks and devices belong to a name."""
    if not place.in_container or place.settings.host_id:
        yield well("host_id", "The host has a name that stays.")
    else:
        yield warning(
            "host_id",
            "Inside a container without TRAINSHED_HOST_ID: the host's name may change with the container.",
            "Set TRAINSHED_HOST_ID to a name of the machine.",
        )
