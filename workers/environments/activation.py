"""Makes the packages of an environment those of this very process, which its base interpreter runs.

For a trainer and a predictor, whose own code must run before any of a user: an environment's interpreter itself runs
the `.pth` files of its packages at its start, so the launcher, which may still do what the worker may, must never be
started by it. Standard library only.
"""

import os
import site
import sys
from typing import Final

_ENDINGS: Final = ("site-packages", "dist-packages")


def packages_of(interpreter: str) -> str:
    """The folder with the packages of the environment that has this interpreter."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return os.path.join(os.path.dirname(os.path.dirname(interpreter)), "lib", version, "site-packages")  # noqa: PTH118, PTH120 - the trainer imports little before it has given up its rights


def activate(interpreter: str) -> None:
    """Find the packages of this environment from now on, before those of the base and behind the standard library.

    To be called as the user that the packages may act as: their `.pth` files run here. What was imported before stays.
    The interpreter must have the version of this one; it does where its base is this one.

    Raises:
        FileNotFoundError: it is no interpreter of such an environment.
    """
    folder = packages_of(interpreter)
    os.stat(folder)  # noqa: PTH116 - as above
    known = list(sys.path)
    site.addsitedir(folder)
    new = [path for path in sys.path if path not in known]
    place = next((index for index, path in enumerate(known) if path.endswith(_ENDINGS)), len(known))
    sys.path[:] = [*known[:place], *new, *known[place:]]
