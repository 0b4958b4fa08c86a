"""How much of a disk a folder takes. Standard library only."""

import contextlib
import os

_BLOCK = 512


def disk_bytes(folder: str) -> int:
    """Bytes on the disk of all that is in the folder; what cannot be looked at counts nothing, links are not followed.

    A file with several names in the folder counts once.
    """
    total, waiting = 0, [folder]
    seen: set[tuple[int, int]] = set()
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    if facts.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        if (facts.st_dev, facts.st_ino) in seen:
                            continue
                        seen.add((facts.st_dev, facts.st_ino))
                    total += facts.st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total
