"""What the options of `trainshed run` ask for, as a spec."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.cli.errors import UsageProblem
from app.cli.quantities import seconds
from app.cli.values import with_changes

_DATA_SET: Final = "ds_"


@dataclass(frozen=True)
class Labels:
    """How people find the job; `tags` are `key:value`."""

    name: str | None
    tags: tuple[str, ...]

    @property
    def spec(self) -> dict[str, Any]:
        return given({"name": self.name, "tags": _pairs("--tag", self.tags, ":", "team:birds")})


@dataclass(frozen=True)
class Place:
    """Where and how long; `timeout` is a length of time as people type it."""

    devices: int
    device_type: str | None
    timeout: str | None
    retries: int | None

    @property
    def spec(self) -> dict[str, Any]:
        return given(
            {
                "device_count": self.devices,
                "device_type": self.device_type,
                "timeout_s": None if self.timeout is None else max(1, round(seconds(self.timeout))),
                "retry": None if self.retries is None else {"failures": self.retries},
            }
        )


@dataclass(frozen=True)
class How:
    """What is run, and how it is judged; `monitor` is METRIC, METRIC:min or METRIC:max."""

    command: tuple[str, ...]
    processes: str | None
    success: str | None
    monitor: str | None
    seed: int | None
    network: bool

    @property
    def script(self) -> dict[str, Any]:
        metric, _, mode = (self.monitor or "").partition(":")
        return {
            "command": list(self.command),
            **given(
                {
                    "processes": self.processes,
                    "success": self.success,
                    "monitor": given({"metric": metric, "mode": mode or None}) if self.monitor else None,
                    "seed": self.seed,
                    "network": self.network or None,
                }
            ),
        }


def variables_of(texts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """`NAME=value`, or `NAME` alone for what this shell has.

    Raises:
        UsageProblem: it is neither.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not (equals or name in environ):
            raise UsageProblem(
                f"'{text}' is neither NAME=value nor a variable here, for example --env WANDB_MODE=offline"
            )
        found[name] = value if equals else environ[name]
    return found


def data_of(texts: Iterable[str]) -> dict[str, str]:
    """Sources by name; files must be there.

    Raises:
        UsageProblem: a part is missing, or there is no such file.
    """
    found = _pairs("--data", texts, "=", "train=penguins.csv, or train=ds_…") or {}
    for name, source in found.items():
        if not source.startswith(_DATA_SET) and "://" not in source and not Path(source).is_file():
            raise UsageProblem(f"--data {name}: {source} is neither a file here nor the id of a data set (ds_…).")
    return found


def requirements_of(file: Path | None, folder: Path | None, names: Iterable[str]) -> str | list[str] | None:
    """The requirements file's name in the bundle, else its lines.

    Raises:
        UsageProblem: it cannot be read, or has nothing in it.
    """
    if file is None:
        return None
    places = [file] if folder is None or file.is_absolute() else [file, folder / file]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageProblem(f"--requirements {file}: there is no such file.")
    if folder is not None and found.resolve().is_relative_to(folder.resolve()):
        inside = found.resolve().relative_to(folder.resolve()).as_posix()
        if inside in set(names):
            return inside
    try:
        lines = found.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(f"--requirements {file} cannot be read as UTF-8 text.") from error
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not kept:
        raise UsageProblem(f"--requirements {file} names no package, for example rich==14.1.0")
    return kept


def spec_of(
    labels: Labels, place: Place, framework: str, script: Mapping[str, Any], changes: Iterable[str]
) -> dict[str, Any]:
    """The whole spec, with `--set` written into it last."""
    spec = {**labels.spec, "framework": framework, "script": dict(script), **place.spec}
    changed: dict[str, Any] = with_changes(spec, changes)
    return changed


def body_of(spec: Mapping[str, Any], bundle: str | None, data: Mapping[str, str]) -> bytes:
    """The spec as it is posted, with what the server called the code and the data."""
    script = {**spec["script"], **given({"bundle": bundle, "data": dict(data) or None})}
    return json.dumps({**spec, "script": script}).encode()


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what nobody asked for: the server fills in its own defaults."""
    return {name: value for name, value in values.items() if value is not None}


def _pairs(option: str, texts: Iterable[str], sign: str, example: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for text in texts:
        name, between, value = text.partition(sign)
        if not between or not name or not value:
            raise UsageProblem(f"{option} {text} must be NAME{sign}VALUE, for example {option} {example}")
        if name in found:
            raise UsageProblem(f"{option} {name} is given twice.")
        found[name] = value
    return found or None
