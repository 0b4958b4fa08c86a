"""Check the compose files: by Compose itself where it is installed, and always by the rules of `compose_rules`.

`python scripts/compose_check.py [FILE…]`: without files the shipped ones, alone and merged.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.compose_rules import merged, spec_problems, weaknesses

ROOT: Final = Path(__file__).resolve().parents[1]
BASE: Final = "docker-compose.yml"
GPU: Final = "docker-compose.gpu.yml"
PROFILES: Final = ("edge", "monitoring")


def compose_command() -> list[str] | None:
    """How Compose is called on this machine, if it is there at all."""
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        return [docker, "compose"]
    standalone = shutil.which("docker-compose")
    return [standalone] if standalone else None


def compose_config(command: Sequence[str], files: Sequence[str], *, root: Path = ROOT) -> str | None:
    """What Compose says against the merged files, a warning too, or None when it accepts them in silence."""
    chosen = [part for file in files for part in ("-f", file)]
    profiles = [part for profile in PROFILES for part in ("--profile", profile)]
    done = subprocess.run(
        [*command, *chosen, *profiles, "config"], cwd=root, capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 and not done.stderr.strip() else done.stderr


def shipped(root: Path) -> list[str]:
    """What is wrong with the shipped files, by the rules."""
    base, gpu = (_read(root / name) for name in (BASE, GPU))
    both = f"{BASE} + {GPU}"
    alone = {reason: f"{BASE}: {reason}" for reason in (*spec_problems(base), *weaknesses(base))}
    found = list(alone.values()) + [f"{GPU}: {reason}" for reason in spec_problems(gpu)]
    return found + [f"{both}: {reason}" for reason in weaknesses(merged(base, gpu)) if reason not in alone]


def named(files: Sequence[Path]) -> list[str]:
    """What is wrong with these files, each for itself."""
    documents = {file: _read(file) for file in files}
    return [
        f"{file}: {reason}"
        for file, document in documents.items()
        for reason in (*spec_problems(document), *weaknesses(document))
    ]


def main(root: Path = ROOT, files: Sequence[Path] = ()) -> int:
    if files:
        found = named(files)
    else:
        found = shipped(root)
        command = compose_command()
        if command is None:
            print("Compose is not installed: checked by our own rules only.")
        else:
            for chosen in ([BASE], [BASE, GPU]):
                refused = compose_config(command, chosen, root=root)
                found += [f"{' + '.join(chosen)}: {refused}"] if refused is not None else []
    print("\n".join(found))
    return 1 if found else 0


def _read(path: Path) -> Any:  # noqa: ANN401 - YAML holds anything
    return yaml.safe_load(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(files=[Path(name) for name in sys.argv[1:]]))
