"""Each framework in its own Python: whether it imports, fits this version, and sees the cards."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from app import __version__
from app.cli.doctor.findings import Finding, fault, skipped, warning, well
from app.cli.doctor.place import Place
from app.settings import InvalidSettings

# The first import on a slow disk reads gigabytes.
LIMIT_S: Final = 180.0
_OURS: Final = "trainshed"
_LAST: Final = 300
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
# Run by the framework's interpreter; the last line of its output is the answer.
_QUESTION: Final = """
import json, sys
from importlib import metadata
try:
    ours = metadata.version("trainshed")
except metadata.PackageNotFoundError:
    ours = None
if sys.argv[1] == "torch":
    import torch
    version, cuda, error = torch.__version__, torch.version.cuda, None
    devices = torch.cuda.device_count()
    try:
        if cuda and devices:
            torch.cuda.init()
    except Exception as problem:
        error = str(problem)
else:
    import tensorflow
    version, cuda, error = tensorflow.__version__, tensorflow.sysconfig.get_build_info().get("cuda_version"), None
    devices = len(tensorflow.config.list_physical_devices("GPU"))
print(json.dumps({"ours": ours, "version": version, "cuda": cuda, "devices": devices, "error": error}))
"""


@dataclass(frozen=True)
class Answer:
    """`ours`: which Trainshed is installed beside the framework; `cuda`: what the framework was built for, if so."""

    ours: str | None
    version: str
    cuda: str | None
    devices: int
    error: str | None = None


class NoAnswer(Exception):
    """The interpreter did not say; the text has the last line of why."""


def ask(framework: str, interpreter: Path, environ: dict[str, str], limit_s: float = LIMIT_S) -> Answer:
    """Ask a framework's interpreter about itself, in a child of its own.

    Raises:
        NoAnswer: it cannot be started, does not know the framework, or says nothing within `limit_s`.
    """
    command = [str(interpreter), "-P", "-c", _QUESTION, framework]
    environment = {**environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"no answer within {limit_s:g} s") from error
    except OSError as error:
        raise NoAnswer(error.strerror or str(error)) from error
    lines = done.stdout.strip().splitlines()
    try:
        return Answer(**json.loads(lines[-1]))
    except (IndexError, ValueError, TypeError) as error:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NoAnswer(said[-1][:_LAST]) from error


def check_frameworks(place: Place) -> Iterator[Finding]:
    if not place.works:
        yield skipped("frameworks", "No worker is installed here (extra `worker`).")
        return
    try:
        interpreters = place.interpreters
    except InvalidSettings as error:
        yield fault("frameworks", str(error), "Correct TRAINSHED_INTERPRETERS.")
        return
    if not interpreters:
        yield fault(
            "frameworks",
            "No framework is installed here.",
            "Install trainshed[torch] or trainshed[tensorflow], or name their Pythons in TRAINSHED_INTERPRETERS.",
        )
    environ = {name: place.environ[name] for name in _PASSED_ON if name in place.environ}
    for name, interpreter in interpreters.items():
        try:
            answer = ask(name, interpreter.path, environ)
        except NoAnswer as error:
            yield fault(
                f"framework.{name}",
                f"{interpreter.path} cannot use {name}: {error}.",
                f"Install trainshed[{name}] into that environment again; see docs/deployment.md.",
            )
            continue
        yield _version(name, interpreter.path, answer)
        yield from _cuda(name, answer, place)


def _version(name: str, path: Path, answer: Answer) -> Finding:
    if answer.ours != __version__:
        return fault(
            f"framework.{name}",
            f"{path} has Trainshed {answer.ours or 'not at all'}, this is {__version__}: worker and trainer differ.",
            f"Install this version there: {path} -m pip install 'trainshed[{name}]=={__version__}'",
        )
    wanted = _required(name)
    if wanted is not None and not _satisfies(answer.version, wanted):
        return fault(
            f"framework.{name}",
            f"{name} {answer.version} is installed; this version of Trainshed needs {wanted.specifier}.",
            f"{path} -m pip install 'trainshed[{name}]'",
        )
    return well(f"framework.{name}", f"{name} {answer.version} in {path}.")


def _cuda(name: str, answer: Answer, place: Place) -> Iterator[Finding]:
    """Whether the framework sees the cards that the driver lists."""
    listed = len(place.cards.devices)
    if not listed or place.settings.devices == "cpu":
        return
    told = f"cuda.{name}"
    driver = place.cards.driver
    if answer.cuda is None:
        yield fault(
            told,
            f"{name} {answer.version} was built for the CPU alone, and this host has {listed} devices.",
            "Build the worker's image with ACCELERATOR=cuda, or install the wheel with CUDA.",
        )
    elif driver is not None and driver.cuda and _major(answer.cuda) > _major(driver.cuda):
        yield fault(
            told,
            f"{name} was built for CUDA {answer.cuda}, and driver {driver.version} goes up to CUDA {driver.cuda}.",
            "Update the driver, or install a build for the older CUDA.",
        )
    elif not answer.devices or answer.error:
        hidden = place.environ.get("CUDA_VISIBLE_DEVICES")
        because = f" CUDA_VISIBLE_DEVICES is {hidden!r}." if hidden is not None else ""
        yield fault(
            told,
            f"The driver lists {listed} devices, {name} sees none.{because} {answer.error or ''}".strip(),
            "Unset CUDA_VISIBLE_DEVICES." if because else "Restart the container or the host; then look at `dmesg`.",
        )
    elif answer.devices < listed and not any("MIG" in device.id for device in place.cards.devices):
        yield warning(told, f"{name} sees {answer.devices} of {listed} devices.", "Unset CUDA_VISIBLE_DEVICES.")
    else:
        yield well(told, f"{name} sees {answer.devices} devices, built for CUDA {answer.cuda}.")


def check_versions(place: Place) -> Iterator[Finding]:
    """Whether the packages beside this one are those that it needs."""
    del place
    wrong = [
        f"{requirement.name} {installed} (needs {requirement.specifier})"
        for requirement in map(Requirement, metadata.requires(_OURS) or [])
        if (installed := _installed(requirement.name)) is not None and not _satisfies(installed, requirement)
    ]
    if wrong:
        yield fault("versions", f"Packages do not fit: {', '.join(wrong)}.", "Install with constraints.txt.")
    else:
        yield well("versions", f"Trainshed {__version__}; its packages fit.")


def _required(name: str) -> Requirement | None:
    found = (Requirement(text) for text in metadata.requires(_OURS) or [])
    return next((requirement for requirement in found if requirement.name == name), None)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _satisfies(version: str, requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(Version(version).base_version, prereleases=True)
    except InvalidVersion:
        return True


def _major(version: str) -> int:
    digits = version.partition(".")[0]
    return int(digits) if digits.isdigit() else 0
