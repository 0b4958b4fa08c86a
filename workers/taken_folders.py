"""The folders of checkpoints that a trainer has announced, out of its reach: what was checked is what gets stored.

A trainer goes on while its checkpoints are stored, and may be hostile. So an announced folder is first moved out of its
work folder, to one beside it that is the worker's alone.
"""

import itertools
from pathlib import Path
from typing import Final

from workers.checkpoints import UnreadableCheckpoint
from workers.ownership import ForeignFolder, remove_tree, take_folder
from workers.protocol import Checkpoint

SUFFIX: Final = ".taken"


class TakenFolders:
    """For one attempt, and one thread."""

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir
        self._folder = work_dir.with_name(work_dir.name + SUFFIX)
        self._taken: list[tuple[Checkpoint, Path]] = []
        self._numbers = itertools.count()

    def folder_of(self, checkpoint: Checkpoint) -> Path:
        """Where the checkpoint's files are, plain files all of them.

        Raises:
            UnreadableCheckpoint: it is not a folder of plain files inside the work folder.
        """
        for known, folder in self._taken:
            if known is checkpoint:
                return folder
        destination = self._folder / f"{Path(checkpoint.path).name}-{next(self._numbers)}"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            take_folder(self._work_dir, checkpoint.path, destination)
        except OSError as error:
            remove_tree(destination)
            reason = str(error) if isinstance(error, ForeignFolder) else "it is not a folder inside the work directory"
            raise UnreadableCheckpoint(Path(checkpoint.path), f"{reason}.") from error
        self._taken.append((checkpoint, destination))
        return destination

    def remove(self, checkpoint: Checkpoint) -> None:
        """Remove the checkpoint's folder, taken or not; harmless when there is none."""
        try:
            folder = self.folder_of(checkpoint)
        except UnreadableCheckpoint:
            return
        self._taken = [(known, path) for known, path in self._taken if known is not checkpoint]
        remove_tree(folder)

    def close(self) -> None:
        """Remove all that was taken."""
        self._taken = []
        remove_tree(self._folder)
