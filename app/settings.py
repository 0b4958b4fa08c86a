"""All settings, read once from `TRAINSHED_*` at a composition root; lower layers get values, never this object.

Every setting can also come from a file named by `TRAINSHED_<NAME>_FILE` (secrets of a compose deployment). An unknown
`TRAINSHED_` variable is an error, so that a misspelt one is not silently ignored.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from app.errors import TrainshedError

PREFIX = "TRAINSHED_"
# Read by tools beside the server: the client's address and key.
CLIENT_VARIABLES = frozenset({"TRAINSHED_URL", "TRAINSHED_KEY"})
# Where a test wants a worker or a trainer to be killed (workers.fault_points).
_ROOT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
TEST_VARIABLES = frozenset({"TRAINSHED_FAULT_POINT"})

# Display servers and desktops, by the name that the kernel keeps of a process (15 characters).
DISPLAYS = (
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "kwin_x11",
    "kwin_wayland",
    "plasmashell",
    "sway",
    "weston",
    "mutter",
    "cinnamon",
    "gdm-x-session",
    "sddm-greeter",
)


class InvalidSettings(TrainshedError):
    """The environment asks for something impossible; the process must not start."""

    code = "invalid_settings"


class Settings(BaseModel):
    """One field per `TRAINSHED_*` variable; durations are seconds, sizes are bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    home: Path = Field(default_factory=lambda: Path.home() / ".trainshed")
    database_url: str = ""
    broker_url: str = ""
    storage_url: str = ""
    run_dir: Path | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]", "::1")

    host_id: str = ""
    devices: Literal["auto", "cuda", "cpu"] = "auto"
    simulated_inventory: Path | None = None
    cpu_slots: int | None = Field(default=None, ge=0, le=1024)
    interpreters: dict[str, Path] = Field(default_factory=dict)

    heartbeat_s: float = Field(default=5.0, gt=0)
    lease_s: float = Field(default=60.0, gt=0)
    lease_margin_s: float = Field(default=10.0, gt=0)
    claim_s: float = Field(default=15.0, gt=0)
    stop_grace_s: float = Field(default=15.0, gt=0)
    control_idle_s: float = Field(default=1.0, gt=0)
    reconcile_s: float = Field(default=3.0, gt=0)
    report_interval_s: float = Field(default=0.5, gt=0)
    telemetry_s: float = Field(default=10.0, ge=0, le=86_400)
    predict_deadline_s: float = Field(default=600.0, gt=0)

    predict_slots: int = Field(default=1, ge=1, le=64)
    max_predict_rows: int = Field(default=10_000, gt=0)
    max_predict_bytes: int = Field(default=8 * 1024 * 1024, gt=0)
    max_queued_predictions: int = Field(default=100, gt=0)
    max_upload_bytes: int = Field(default=256 * 1024 * 1024, gt=0)
    max_body_bytes: int = Field(default=1024 * 1024, gt=0)
    max_log_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    max_queued_jobs: int = Field(default=10_000, gt=0)
    sqlite_synchronous: Literal["full", "normal"] = "full"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    revision: str = ""

    metrics_port: int = Field(default=0, ge=0, le=65535)
    metrics_address: str = "127.0.0.1"

    inventory_s: float = Field(default=15.0, gt=0, le=3600)
    ignored_processes: tuple[str, ...] = DISPLAYS
    foreign_memory_bytes: int = Field(default=1024 * 1024 * 1024, ge=0)
    self_test: Literal["auto", "on", "off"] = "auto"
    trainer_uids: str = Field(default="", pattern=r"^(\d{1,9}-\d{1,9})?$")
    blind_exit_s: float = Field(default=0.0, ge=0)
    idle_after_s: float = Field(default=600.0, ge=0)
    max_hold_s: float = Field(default=7 * 86_400.0, gt=0)
    data_roots: dict[str, Path] = Field(default_factory=dict)

    s3_endpoint: str = ""
    s3_region: str = ""
    s3_access_key_id: str = ""
    s3_secret_access_key: str = ""

    code_network: Literal["off", "on"] = "off"
    code_max_file_bytes: int = Field(default=64 * 1024**3, gt=0)
    code_max_processes: int = Field(default=1024, ge=16)
    max_bundle_bytes: int = Field(default=256 * 1024 * 1024, gt=0)
    max_bundle_unpacked_bytes: int = Field(default=1024**3, gt=0)
    max_bundle_files: int = Field(default=10_000, gt=0)
    max_artifact_bytes: int = Field(default=20 * 1024**3, gt=0)

    pip_index_url: str = ""
    pip_extra_index_urls: tuple[str, ...] = ()
    pip_find_links: str = ""
    pip_source_builds: Literal["off", "on"] = "off"
    environment_timeout_s: float = Field(default=1800.0, gt=0)
    max_environment_bytes: int = Field(default=20 * 1024**3, gt=0)
    environments_bytes: int = Field(default=50 * 1024**3, gt=0)
    keep_environments_days: float = Field(default=14.0, gt=0)

    disk_reserve_bytes: int = Field(default=1024 * 1024 * 1024, ge=0)
    keep_jobs_days: float | None = Field(default=None, gt=0)
    keep_checkpoints_days: float | None = Field(default=None, gt=0)
    schema_wait_s: float = Field(default=300.0, gt=0)

    @field_validator("allowed_hosts", "ignored_processes", "pip_extra_index_urls", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("interpreters", mode="before")
    @classmethod
    def _decode_interpreters(cls, value: object) -> object:
        try:
            return json.loads(value) if isinstance(value, str) else value
        except ValueError as error:
            raise ValueError('must be JSON, for example {"torch": "/opt/torch/bin/python"}') from error

    @field_validator("data_roots", mode="before")
    @classmethod
    def _split_roots(cls, value: object) -> object:
        """`name=/path:ro, other=/path2`; `:ro` may be left out, since nothing is ever written there."""
        if not isinstance(value, str):
            return value
        roots: dict[str, str] = {}
        for part in filter(None, (entry.strip() for entry in value.split(","))):
            name, equals, path = part.partition("=")
            path = path.removesuffix(":ro")
            if not equals or not _ROOT_NAME.fullmatch(name) or not path.startswith("/") or path.endswith(":rw"):
                raise ValueError(f"'{part}' is not name=/absolute/path:ro, for example scans=/mnt/scans:ro")
            if name in roots:
                raise ValueError(f"'{name}' is named twice")
            roots[name] = path
        return roots

    @model_validator(mode="after")
    def _uids_are_a_range(self) -> Self:
        uids = self.trainer_uid_range
        if self.trainer_uids and (not uids or min(uids) < 1):
            raise ValueError("TRAINSHED_TRAINER_UIDS must be a range of user ids, for example 20000-20255")
        return self

    @model_validator(mode="after")
    def _times_fit_together(self) -> Self:
        if self.heartbeat_s * 3 > self.lease_s - self.lease_margin_s:
            raise ValueError(
                "TRAINSHED_LEASE_S less TRAINSHED_LEASE_MARGIN_S must be at least three times TRAINSHED_HEARTBEAT_S, "
                "for example TRAINSHED_LEASE_S=60, TRAINSHED_LEASE_MARGIN_S=10, TRAINSHED_HEARTBEAT_S=5"
            )
        if self.heartbeat_s > self.claim_s:
            raise ValueError("TRAINSHED_CLAIM_S must be at least TRAINSHED_HEARTBEAT_S, which carries lost placements")
        return self

    @property
    def effective_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'trainshed.db'}"

    @property
    def effective_storage_url(self) -> str:
        return self.storage_url or f"file://{self.home / 'storage'}"

    @property
    def trainer_uid_range(self) -> range | None:
        """User ids that trainers may be given; None: a trainer runs as its worker does."""
        if not self.trainer_uids:
            return None
        first, _, last = self.trainer_uids.partition("-")
        return range(int(first), int(last) + 1)

    @property
    def effective_run_dir(self) -> Path:
        """Locks, sockets and work folders: local disk, shared by everything that runs on this host."""
        return self.run_dir or self.home / "run"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read and check the environment.

    Raises:
        InvalidSettings: names each variable, what is wrong with it, and what is known.
    """
    source = dict(os.environ if environ is None else environ)
    known = {f"{PREFIX}{name.upper()}": name for name in Settings.model_fields}
    values: dict[str, object] = {}
    for variable, text in source.items():
        if not variable.startswith(PREFIX) or variable in CLIENT_VARIABLES | TEST_VARIABLES:
            continue
        name = known.get(variable.removesuffix("_FILE") if variable not in known else variable)
        if name is None:
            raise InvalidSettings(f"{variable} is not a setting. Known: {', '.join(sorted(known))}.")
        values[name] = _read_secret(variable, text) if variable not in known else text
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = [_sentence(problem["loc"], problem["msg"]) for problem in error.errors()]
        raise InvalidSettings("The settings are not valid. " + "; ".join(lines)) from error


def _sentence(location: tuple[int | str, ...], message: str) -> str:
    """A rule between settings names them itself, so it has no location."""
    text = message.removeprefix("Value error, ")
    return f"{PREFIX}{'_'.join(str(part) for part in location).upper()}: {text}" if location else text


def _read_secret(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidSettings(f"{variable} names a file that cannot be read: {error.strerror}.") from error
