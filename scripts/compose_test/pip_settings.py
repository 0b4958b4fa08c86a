"""How pip reaches packages on this host, for builds: its index, its certificates, its folders of wheels."""

import ast
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.compose_test.commands import Shell

CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
WHEELS: Final = "/srv/wheels"
_TAKEN: Final = frozenset(
    {"cert", "default-timeout", "extra-index-url", "find-links", "index-url", "timeout", "trusted-host"}
)


def of_this_host(shell: Shell) -> dict[str, str]:
    """Its settings by name, from files and environment; the environment wins, as with pip itself."""
    return parse(shell.run(sys.executable, "-m", "pip", "config", "list"))


def parse(listed: str) -> dict[str, str]:
    """`pip config list`: lines like `global.cert='/etc/ca.crt'` and, for the environment, `:env:.cert='…'`."""
    found: dict[str, str] = {}
    from_environment: dict[str, str] = {}
    for line in listed.splitlines():
        key, equals, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if equals and name in _TAKEN:
            (from_environment if section == ":env:" else found)[name] = str(ast.literal_eval(value))
    return found | from_environment


def write(context: Path, settings: Mapping[str, str]) -> None:
    """pip.conf, certificates.crt and wheels/ for a build's context, with paths as they are inside the image."""
    inside = dict(settings)
    certificates = Path(settings.get("cert", CERTIFICATES))
    (context / "certificates.crt").write_bytes(certificates.read_bytes() if certificates.is_file() else b"")
    if "cert" in inside:
        inside["cert"] = CERTIFICATES
    wheels = context / "wheels"
    wheels.mkdir()
    if "find-links" in inside:
        inside["find-links"] = " ".join(_inside(place, wheels) for place in inside["find-links"].split())
    # An index in a folder of this host is not there inside.
    reachable = {name: " ".join(_addresses(value)) for name, value in inside.items()}
    lines = [f"{name} = {value}" for name, value in sorted(reachable.items()) if value]
    (context / "pip.conf").write_text("\n".join(["[global]", *lines, ""]), encoding="utf-8")


def _addresses(value: str) -> list[str]:
    return [part for part in value.split() if not part.startswith("file:")]


def _inside(place: str, wheels: Path) -> str:
    """A folder's files go along; anything else is an address, which holds inside too."""
    folder = Path(place)
    if not folder.is_dir():
        return place
    for file in sorted(folder.glob("*.whl")):
        shutil.copy(file, wheels / file.name)
    return WHEELS
