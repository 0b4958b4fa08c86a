"""`trainshed health`: whether a process of this host is well, for the health check of a container.

Exit code 0 and a sentence when it is; 1 and a sentence that says why when it is not; 2 when asked wrongly. It asks
neither the database nor the broker: that those are down restarts nobody.
"""

import argparse
import http.client
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from app.beacon import AT, CONTROL_BEACON, WORKER_BEACON, age_s, read_beacon
from app.clock import Clock, SystemClock
from app.errors import TrainshedError
from app.settings import Settings, load_settings

WELL: Final = 0
ILL: Final = 1
ASKED_WRONGLY: Final = 2

ANSWER_WITHIN_S: Final = 4.0
API_URL: Final = "api.url"
LATE_BEATS: Final = 3
LEAST_PATIENCE_S: Final = 30.0
"""A beat may wait for a database that does not answer, so a short interval alone says too little."""


@dataclass(frozen=True)
class Health:
    well: bool
    message: str


def worker(settings: Settings, clock: Clock) -> Health:
    """Well when the worker beats, is registered, and its last look at the devices ended well and not long ago."""
    facts = read_beacon(settings.effective_run_dir / WORKER_BEACON)
    late = _late("worker", facts, settings.heartbeat_s, clock)
    if facts is None or late is not None:
        return Health(well=False, message=late or "")
    if not facts.get("registered"):
        return Health(well=False, message="The worker is not registered yet: it waits for the database or its schema.")
    reason = facts.get("reason")
    if facts.get("inventory_ok") is False:
        return Health(well=False, message=f"The worker cannot list its devices: {reason or 'no reason is known'}")
    looked = facts.get("inventory_at_boot_ns")
    age = age_s(looked, clock.boot_ns()) if isinstance(looked, int) else None
    if age is not None and age > _patience(settings.inventory_s):
        return Health(
            well=False, message=f"The driver has not answered for {age:.0f} s: the look at the devices hangs."
        )
    return Health(well=True, message="The worker beats and sees its devices.")


def control(settings: Settings, clock: Clock) -> Health:
    """Well when the control loop goes round."""
    facts = read_beacon(settings.effective_run_dir / CONTROL_BEACON)
    late = _late("control loop", facts, max(settings.control_idle_s, settings.reconcile_s), clock)
    if late is not None:
        return Health(well=False, message=late)
    return Health(well=True, message="The control loop goes round.")


def api(settings: Settings, _clock: Clock) -> Health:
    """Well when `/livez` answers 200 on this host; asked under a name that the API accepts."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - compared, not bound
    port = settings.port or _chosen_port(settings.effective_run_dir / API_URL)
    if port is None:
        return Health(well=False, message="The API has not said yet where it listens.")
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_WITHIN_S)
    try:
        connection.request("GET", "/livez", headers={"Host": next(iter(settings.allowed_hosts), host)})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return Health(
            well=False, message=f"The API does not answer on {host}:{port}: {str(error) or type(error).__name__}."
        )
    finally:
        connection.close()
    if status != http.client.OK:
        return Health(well=False, message=f"The API answers {status} on {host}:{port}, not 200.")
    return Health(well=True, message="The API answers.")


CHECKS: Final[Mapping[str, Callable[[Settings, Clock], Health]]] = {"worker": worker, "control": control, "api": api}


def _chosen_port(file: Path) -> int | None:
    """The port that an API without a fixed one wrote down."""
    try:
        return urlsplit(file.read_text(encoding="utf-8")).port
    except (OSError, ValueError):
        return None


def _late(who: str, facts: Mapping[str, Any] | None, interval_s: float, clock: Clock) -> str | None:
    """What is wrong with the time of a beacon, or None."""
    if facts is None:
        return f"The {who} has not said anything yet."
    age = age_s(facts[AT], clock.boot_ns())
    if age is None:
        return f"The {who} has not said anything since this machine started."
    if age > _patience(interval_s):
        return f"The {who} was last heard {age:.0f} s ago."
    return None


def _patience(interval_s: float) -> float:
    return max(LATE_BEATS * interval_s, LEAST_PATIENCE_S)


def main(arguments: Sequence[str] | None = None, clock: Clock | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="trainshed health", description="Say whether a process of this host is well; exit code 0 or 1."
    )
    parser.add_argument("process", choices=list(CHECKS))
    parser.add_argument("--json", action="store_true", dest="as_json", help="Print JSON for programs.")
    options = parser.parse_args(arguments)
    try:
        health = CHECKS[options.process](load_settings(), clock or SystemClock())
    except TrainshedError as error:
        print(f"error: {error}", file=sys.stderr)
        return ASKED_WRONGLY
    if options.as_json:
        print(json.dumps({"process": options.process, "well": health.well, "message": health.message}))
    else:
        print(health.message)
    return WELL if health.well else ILL


if __name__ == "__main__":
    sys.exit(main())
