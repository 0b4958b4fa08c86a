"""The media type of an artifact, by the end of its name: never by its content, and nothing that a browser would run."""

from typing import Final

UNKNOWN: Final = "application/octet-stream"
_TYPES: Final = {
    "csv": "text/csv",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "log": "text/plain",
    "md": "text/markdown",
    "pdf": "application/pdf",
    "png": "image/png",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "webp": "image/webp",
    "yaml": "text/plain",
    "yml": "text/plain",
    "zip": "application/zip",
}


def media_type(name: str) -> str:
    """The media type that an artifact of this name is served with."""
    return _TYPES.get(name.rpartition(".")[2].lower(), UNKNOWN)
