"""Check the compose files: by Compose itself where it is installed, and always against mistakes people really made.

The second part reads the files as data. Its rules come from the compose specification (deploy.md and
04-version-and-name.md) and from reports of stacks that did not start.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
BASE: Final = "docker-compose.yml"
GPU: Final = "docker-compose.gpu.yml"

Document = Mapping[str, Any]


def problems(document: Document) -> Iterator[str]:
    """What Compose or an engine would refuse or misread in one file; empty when there is nothing."""
    if "version" in document:
        yield "'version' at the top is obsolete and warns: delete it"
    for name, service in document.get("services", {}).items():
        for reason in _service_problems(service):
            yield f"service '{name}': {reason}"


def _service_problems(service: Document) -> Iterator[str]:
    if "runtime" in service:
        yield "'runtime' needs a daemon that is set up for it: reserve a device instead"
    resources = service.get("deploy", {}).get("resources", {})
    if "devices" in resources.get("limits", {}):
        yield "'devices' stands under 'limits': it belongs under 'reservations'"
    for device in resources.get("reservations", {}).get("devices", []):
        yield from _device_problems(device)


def _device_problems(device: Document) -> Iterator[str]:
    if "gpu" not in device.get("capabilities", []):
        yield "a reserved device needs 'capabilities: [gpu]'"
    if ("count" in device) == ("device_ids" in device):
        yield "a reserved device needs exactly one of 'count' and 'device_ids'"


def compose_command() -> list[str] | None:
    """How Compose is called on this machine, if it is there at all."""
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        return [docker, "compose"]
    standalone = shutil.which("docker-compose")
    return [standalone] if standalone else None


def compose_config(command: Sequence[str], files: Sequence[str], *, root: Path = ROOT) -> str | None:
    """What Compose says against the merged files, or None when it accepts them."""
    chosen = [part for file in files for part in ("-f", file)]
    done = subprocess.run([*command, *chosen, "config"], cwd=root, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr


def main(root: Path = ROOT) -> int:
    found = [
        f"{name}: {reason}"
        for name in (BASE, GPU)
        for reason in problems(yaml.safe_load((root / name).read_text(encoding="utf-8")))
    ]
    command = compose_command()
    if command is None:
        print("Compose is not installed: checked the structure only.")
    else:
        for files in ([BASE], [BASE, GPU]):
            refused = compose_config(command, files, root=root)
            found += [f"{' + '.join(files)}: {refused}"] if refused else []
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
