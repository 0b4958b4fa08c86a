"""The images that ours are built from: those named, those of a registry, or stand-ins made of Debian's packages."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.compose_test import pip_settings
from scripts.compose_test.commands import CommandFailed, Shell
from scripts.compose_test.engine import Skipped

RECIPES: Final = Path(__file__).parent / "images"
REPOSITORY: Final = "trainshed-compose-test"
# The variables of docker-compose.yml, in the order in which the stand-ins are made of each other.
VARIABLES: Final = ("PYTHON_IMAGE", "BUILD_IMAGE", "POSTGRES_IMAGE", "REDIS_IMAGE", "CADDY_IMAGE")
# Build arguments that docker-compose.yml takes from the environment.
PIP_VARIABLES: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
SYSTEM_PATH: Final = "/usr/sbin:/sbin"
PACKAGES: Final = "python3,python3-venv,ca-certificates"
_PULL_S: Final = 600.0
_MAKE_S: Final = 1200.0
# What no program in a container needs: the packages' archives, and the kernel's own file systems.
_LEFT_OUT: Final = ("./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*", "./proc/*", "./sys/*", "./dev/*")


@dataclass(frozen=True)
class Debian:
    """Where stand-ins come from; `tree` is one that debootstrap has already made."""

    suite: str = "bookworm"
    mirror: str | None = None  # None: debootstrap's own
    tree: Path | None = None


@dataclass(frozen=True)
class BaseImages:
    """Values for the compose files' variables, and where they came from."""

    names: Mapping[str, str]
    how: str


def choose(shell: Shell, root: Path, debian: Debian, *, uid: int) -> BaseImages:
    """Base images by what is given and what can be reached.

    Raises:
        Skipped: no registry can be reached, and no stand-ins can be made.
    """
    given = {name: shell.environ[name] for name in VARIABLES if shell.environ.get(name)}
    if given:
        return BaseImages(given, "as named")
    wanted = default_names(root)
    refused = _fetch(shell, wanted)
    if refused is None:
        return BaseImages(wanted, "of a registry")
    if _debootstrap(shell) is None and debian.tree is None:
        raise Skipped(
            f"no base images: {refused} Name some with --base-image, or install debootstrap to make stand-ins"
        )
    if uid != 0:
        raise Skipped(f"no base images: {refused} Name some with --base-image; to make stand-ins takes root")
    return BaseImages(make(shell, debian), f"made of Debian {debian.suite}")


def default_names(root: Path) -> dict[str, str]:
    """What the Dockerfile and docker-compose.yml name when nobody says otherwise."""
    compose = (root / "docker-compose.yml").read_text(encoding="utf-8")
    found = {}
    for name in VARIABLES:
        match = re.search(rf"\$\{{{name}:-(\S+?)\}}", compose)
        if match:
            found[name] = match[1]
    return found


def _fetch(shell: Shell, names: Mapping[str, str]) -> str | None:
    """Why an image cannot be had; None when all are there."""
    for name in names.values():
        if shell.succeeds("docker", "image", "inspect", name):
            continue
        try:
            shell.run("docker", "pull", "--quiet", name, limit_s=_PULL_S)
        except CommandFailed as failure:
            last = failure.said.strip().splitlines()[-1:] or ["no answer"]
            return f"{name} cannot be pulled ({last[0][:120]})."
    return None


def make(shell: Shell, debian: Debian) -> dict[str, str]:
    """Stand-ins for all base images, by Compose's variable; what an earlier run left is used again."""
    raw = f"{REPOSITORY}/debian:{debian.suite}"
    if not shell.succeeds("docker", "image", "inspect", raw):
        _import(shell, debian, raw)
    names = {variable: _tag(variable.partition("_")[0].lower(), debian) for variable in VARIABLES}
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shutil.copytree(RECIPES, context, dirs_exist_ok=True)
        settings = pip_settings.of_this_host(shell)
        pip_settings.write(context, settings)
        _build(shell, context, "python", names["PYTHON_IMAGE"], f"RAW_IMAGE={raw}")
        for variable in VARIABLES[1:]:
            recipe = variable.partition("_")[0].lower()
            _build(shell, context, recipe, names[variable], f"PYTHON_IMAGE={names['PYTHON_IMAGE']}")
    # The build image knows this host's settings; its environment has paths that are not there inside. Who has wheels of
    # their own has torch's CPU wheel among them; its public index may be out of reach.
    taken = (*PIP_VARIABLES, "TORCH_INDEX_URL") if "find-links" in settings else PIP_VARIABLES
    return names | dict.fromkeys(taken, "")


def _tag(recipe: str, debian: Debian) -> str:
    return f"{REPOSITORY}/{recipe}:{debian.suite}"


def _import(shell: Shell, debian: Debian, name: str) -> None:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tree = debian.tree
        if tree is None:
            tree = scratch / "tree"
            made = ["--variant=minbase", f"--include={PACKAGES}", debian.suite, str(tree)]
            made += [debian.mirror] if debian.mirror else []
            shell.run(_debootstrap(shell) or "debootstrap", *made, limit_s=_MAKE_S)
        archive = scratch / "tree.tar"
        left_out = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
        shell.run("tar", "-C", str(tree), *left_out, "-cf", str(archive), ".", limit_s=_MAKE_S)
        shell.run("docker", "import", str(archive), name, limit_s=_MAKE_S)


def _build(shell: Shell, context: Path, recipe: str, name: str, argument: str) -> None:
    # The host's own network: an engine without a bridge has no other way out.
    options = ("--network", "host", "--build-arg", argument, "--tag", name, "--file", f"{context}/{recipe}.Dockerfile")
    shell.run("docker", "build", *options, str(context), limit_s=_MAKE_S)


def _debootstrap(shell: Shell) -> str | None:
    """Debian keeps it where only root's PATH looks."""
    return shutil.which("debootstrap", path=f"{shell.environ.get('PATH', '')}:{SYSTEM_PATH}")
