"""A folder of code as a bundle: what is in it, one archive of it, and its digest."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.archives import UnsafeArchive, pack
from app.cli.errors import CliError, UsageProblem
from app.cli.figures import harmless, size
from app.cli.run.ignoring import Found, code_files

_LARGEST_SHOWN: Final = 5


class TooLarge(CliError):
    """More than the command sends, or the server takes; `lines` name the largest files."""

    code = "too_large"

    def __init__(self, sentence: str, content: "Content") -> None:
        super().__init__(sentence)
        self.content = content

    @property
    def lines(self) -> list[str]:
        largest = [f"{size(count):>10}  {harmless(name)}" for name, count in self.content.largest]
        hint = "Leave files out by a line in .trainshedignore each; data goes by --data name=FILE, which is sent once."
        return [*largest, hint]


@dataclass(frozen=True)
class Content:
    """What a folder has to pack: sizes in bytes by name, and what was left out with the reason."""

    found: Found
    sizes: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    @property
    def largest(self) -> list[tuple[str, int]]:
        return sorted(self.sizes.items(), key=lambda pair: -pair[1])[:_LARGEST_SHOWN]

    @property
    def sentence(self) -> str:
        files = f"{len(self.sizes)} file{'' if len(self.sizes) == 1 else 's'}, {size(self.total)}"
        return f"{files} ({len(self.found.left_out)} left out)" if self.found.left_out else files

    @property
    def document(self) -> dict[str, Any]:
        """The same for programs."""
        files = [{"name": name, "size_bytes": count} for name, count in self.sizes.items()]
        left_out = [{"name": name, "reason": reason} for name, reason in self.found.left_out.items()]
        return {"files": files, "unpacked_bytes": self.total, "left_out": left_out}


@dataclass(frozen=True)
class Packed:
    """An archive on disk; `digest` is the SHA-256 of its bytes, which the server knows a bundle by."""

    path: Path
    digest: str
    size_bytes: int


def look_into(folder: Path, limit: int) -> Content:
    """What would be packed.

    Raises:
        UsageProblem: it is no folder, or has no file to pack.
        TooLarge: the files have more than `limit` bytes together.
    """
    if not folder.is_dir():
        raise UsageProblem(f"{folder} is not a folder; --folder names the one with your code.")
    found = code_files(folder)
    sizes = {name: path.stat().st_size for name, path in found.files.items()}
    content = Content(found, sizes)
    if not sizes:
        raise UsageProblem(
            f"{folder} has no file to send (ignore files leave out the rest); --folder names the one with your code, "
            "and --no-bundle runs what the worker has."
        )
    if content.total > limit:
        raise TooLarge(
            f"{folder} has {content.sentence}, more than {size(limit)}; --max-size raises that, as far as the server "
            "takes it. The largest:",
            content,
        )
    return content


@contextlib.contextmanager
def packed(content: Content) -> Iterator[Packed]:
    """The archive, in the folder for temporary files, until the block ends.

    Raises:
        UsageProblem: a name cannot be packed, or a file cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="trainshed-run-") as folder:
        path = Path(folder, "bundle.zip")
        try:
            size_bytes = pack(content.found.files.items(), path)
        except UnsafeArchive as error:
            raise UsageProblem(f"{error.entry} {error.reason}; rename it, or name it in .trainshedignore.") from error
        except OSError as error:
            name = os.fsdecode(error.filename) if error.filename else "The folder"
            raise UsageProblem(f"{name} cannot be packed: {error.strerror or error}.") from error
        with path.open("rb") as file:
            yield Packed(path, hashlib.file_digest(file, "sha256").hexdigest(), size_bytes)
