"""What a storage raises, whichever it is.

TrainshedError
 +- MissingObject, which is a FileNotFoundError too
 +- UnsupportedStorage
"""

from typing import ClassVar

from app.errors import TrainshedError


class MissingObject(TrainshedError, FileNotFoundError):
    """There is no stored file under this key: the row that names it has outlived it."""

    code: ClassVar[str] = "not_found"

    def __init__(self, key: str) -> None:
        super().__init__(f"The storage has no file '{key}'.")
        self.key = key


class UnsupportedStorage(TrainshedError):
    """A fault of the settings; the process must not start. It says nothing of an address but its scheme."""

    code: ClassVar[str] = "invalid_settings"
