"""Make one virtual environment per framework, and write down their interpreters for `TRAINSHED_INTERPRETERS_FILE`.

One framework per environment: torch's wheels bring CUDA 13 and TensorFlow's CUDA 12 with the same cuDNN and NCCL file
names. Runs in an image build with the standard library alone.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

EXTRAS: Final[Mapping[str, Mapping[str, str]]] = {
    "torch": {"cuda": "torch", "cpu": "torch"},
    "tensorflow": {"cuda": "tensorflow-gpu", "cpu": "tensorflow"},
}


def plan(frameworks: Sequence[str], accelerator: str, folder: Path) -> list[list[str]]:
    """The commands to run, in order: for each framework an environment, and one installation into it."""
    commands = []
    for framework in frameworks:
        environment = folder / framework
        requirement = f".[{EXTRAS[framework][accelerator]}]"
        commands.append([sys.executable, "-m", "venv", str(environment)])
        pip = [str(environment / "bin" / "pip"), "install", "--no-cache-dir", "--constraint", "constraints.txt"]
        commands.append([*pip, requirement])
    return commands


def interpreters(frameworks: Sequence[str], folder: Path) -> dict[str, str]:
    """The setting that tells a worker which interpreter has which framework."""
    return {framework: str(folder / framework / "bin" / "python") for framework in frameworks}


def framework_list(text: str) -> list[str]:
    """`"torch tensorflow"` as a list without repeats; raises when it is empty or names anything else."""
    names = list(dict.fromkeys(text.split()))
    if not names or not set(names) <= set(EXTRAS):
        raise argparse.ArgumentTypeError(f"'{text}' must name one or more of: {', '.join(EXTRAS)}")
    return names


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Make one virtual environment per framework.")
    parser.add_argument("--frameworks", type=framework_list, required=True)
    parser.add_argument("--accelerator", choices=["cuda", "cpu"], required=True)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for command in plan(options.frameworks, options.accelerator, options.folder):
        subprocess.run(command, check=True)
    chosen = interpreters(options.frameworks, options.folder)
    (options.folder / "interpreters.json").write_text(json.dumps(chosen), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
