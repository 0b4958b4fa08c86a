"""A script that is not among the files: said before anything is sent."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from app.cli.errors import UsageProblem


def require_script(command: Sequence[str], files: Mapping[str, Path], folder: Path) -> None:
    """Check the FILE of `python FILE`, when it is a relative path.

    Raises:
        UsageProblem: it is not sent along; says whether an ignore file is why, or which name is near.
    """
    if PurePosixPath(command[0]).name not in ("python", "python3") or len(command) == 1:
        return
    script = command[1]
    name = script.removeprefix("./")
    if not script.endswith(".py") or PurePosixPath(name).is_absolute() or name in files:
        return
    if ".." in PurePosixPath(name).parts:
        raise UsageProblem(f"{script} is outside of {folder}, which is what is sent; --folder names a folder above it.")
    if (folder / name).exists():
        raise UsageProblem(f"{script} is in {folder}, but an ignore file leaves it out; see --dry-run.")
    near = difflib.get_close_matches(name, list(files), n=1) or [file for file in files if file.endswith(f"/{name}")]
    hint = f"did you mean {near[0]}?" if near else "see --dry-run for what is."
    raise UsageProblem(f"{script} is not in {folder}; {hint}")
