"""Make the virtual environments of the images, in two steps, with the standard library and this interpreter's own pip.

`dependencies` installs what pyproject.toml names for each environment; `product` installs Trainshed itself once and
lets every environment see it. So a new version of Trainshed changes one small layer of an image, not gigabytes.

One framework per environment: torch's wheels bring CUDA 13 and TensorFlow's CUDA 12 with the same cuDNN and NCCL file
names. The environments of frameworks have no pip of their own, and all lose what nothing at run time reads: test
suites and C++ headers.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

EXTRAS: Final[Mapping[str, Mapping[str, str]]] = {
    "torch": {"cuda": "torch", "cpu": "torch"},
    "tensorflow": {"cuda": "tensorflow-gpu", "cpu": "tensorflow"},
}
UNUSED: Final = ("torch/include", "torch/test", "tensorflow/include", "onnx/backend/test", "clang")
"""Folders of site-packages beside the test suites; relative, whole."""
LINK: Final = "trainshed.pth"

Command = list[str]


def requirements(project: Mapping[str, Any], extra: str) -> list[str]:
    """What `pip install .[extra]` would install beside the project itself."""
    table = project["project"]
    return [*table["dependencies"], *table["optional-dependencies"][extra]]


def environment(folder: Path, wanted: Sequence[str], index: str = "") -> list[Command]:
    """The commands that make one environment and fill it; `index` is asked beside pip's own, when it is not empty."""
    more = ["--extra-index-url", index] if index else []
    return [
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [*_pip(folder), "install", "--no-cache-dir", "--constraint", "constraints.txt", *more, *wanted],
    ]


def plan(
    frameworks: Sequence[str], accelerator: str, folder: Path, project: Mapping[str, Any], torch_index: str = ""
) -> list[Command]:
    """The commands for all frameworks, in order: an environment, one installation into it, and proof that it loads."""
    commands = []
    for framework in frameworks:
        wanted = requirements(project, EXTRAS[framework][accelerator])
        place = folder / framework
        # torch's own index has its CPU-only wheels; nothing but torch is ever looked for there.
        commands += environment(place, wanted, torch_index if framework == "torch" else "")
    return commands


def product(environments: Sequence[Path], folder: Path) -> list[Command]:
    """The commands that install this project without its dependencies into `folder`, for the first environment."""
    return [[*_pip(environments[0]), "install", "--no-cache-dir", "--no-deps", "--target", str(folder), "."]]


def _pip(environment: Path) -> Command:
    return [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]


def packages(environment: Path) -> Path:
    """The environment's site-packages."""
    (found,) = environment.glob("lib/python3.*/site-packages")
    return found


def link(environments: Sequence[Path], folder: Path) -> None:
    """Let each environment import what is in `folder`."""
    for environment in environments:
        (packages(environment) / LINK).write_text(f"{folder}\n", encoding="utf-8")


def unused(site: Path) -> Iterator[Path]:
    """Folders of an environment that nothing reads at run time."""
    yield from (site / name for name in UNUSED if (site / name).is_dir())
    yield from (path for path in site.rglob("tests") if path.is_dir() and (path / "__init__.py").is_file())


def prune(site: Path) -> None:
    for path in list(unused(site)):
        shutil.rmtree(path, ignore_errors=True)


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
    options = _parser().parse_args(arguments)
    if options.step == "product":
        _run(product(options.environments, options.folder))
        link(options.environments, options.folder)
        return 0
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    if options.step == "service":
        _run(environment(options.folder, requirements(project, options.extra)))
        prune(packages(options.folder))
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    _run(plan(options.frameworks, options.accelerator, options.folder, project, options.torch_index))
    chosen = interpreters(options.frameworks, options.folder)
    for framework, interpreter in chosen.items():
        prune(packages(options.folder / framework))
        _run([[interpreter, "-c", f"import {framework}"]])
    (options.folder / "interpreters.json").write_text(json.dumps(chosen), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Make the virtual environments of the images.")
    steps = parser.add_subparsers(dest="step", required=True)
    service = steps.add_parser("service", help="what the service's own processes need")
    service.add_argument("--extra", choices=["api", "worker"], required=True)
    service.add_argument("folder", type=Path)
    frameworks = steps.add_parser("frameworks", help="one environment per framework, and interpreters.json")
    frameworks.add_argument("--frameworks", type=framework_list, required=True)
    frameworks.add_argument("--accelerator", choices=["cuda", "cpu"], required=True)
    frameworks.add_argument("--torch-index", default="", help="a second package index for torch alone")
    frameworks.add_argument("folder", type=Path)
    installed = steps.add_parser("product", help="Trainshed itself, seen by the environments named")
    installed.add_argument("folder", type=Path)
    installed.add_argument("environments", type=Path, nargs="+")
    return parser


def _run(commands: Sequence[Command]) -> None:
    for command in commands:
        subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
