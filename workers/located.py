"""Where a trainer finds its table: a file in its work directory, or one that is read where it lies."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from app.errors import TrainshedError
from app.tables.in_place import RootUnavailable, open_below
from workers.protocol import DataSource


@contextlib.contextmanager
def located(source: DataSource) -> Iterator[Path | None]:
    """The path of the table while the block runs; None for a built-in one.

    A file in a data root is opened once and read through that: it is the file whose digest was checked, whatever
    becomes of its name.

    Raises:
        UnusableFile: it is not there, may not be read, is not what was registered, or changed under the block.
        RootUnavailable: its file system failed, also under the block.
    """
    if source.path is None:
        yield None
    elif source.root is None:
        yield Path(source.path)
    else:
        uri = source.uri or source.path
        try:
            with open_below(Path(source.root), source.path, uri) as file:
                file.require(source.digest or "")
                yield file.path
                file.require_unchanged()
        except OSError as error:
            if isinstance(error, TrainshedError):
                raise
            raise RootUnavailable(uri, error.strerror or "its file system failed") from None
