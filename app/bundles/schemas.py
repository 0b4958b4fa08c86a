"""A bundle on the wire."""

from typing import Any, Final

from app.archives import Contents
from app.bundles.models import Bundle
from app.clock import to_rfc3339

MOST_FILES: Final = 1000
"""How many files the answer about one bundle lists; the content has all of them."""


def bundle_json(bundle: Bundle) -> dict[str, Any]:
    return {
        "id": bundle.id,
        "object": "bundle",
        "name": bundle.name,
        "format": bundle.format,
        "digest": bundle.digest,
        "size_bytes": bundle.size_bytes,
        "unpacked_bytes": bundle.unpacked_bytes,
        "files": bundle.files,
        "created_by": bundle.created_by,
        "created_at": to_rfc3339(bundle.created_at),
    }


def bundle_with_files(bundle: Bundle, contents: Contents) -> dict[str, Any]:
    """A bundle with the names and sizes of its files in the order of their names, the first `MOST_FILES` of them."""
    members = sorted(contents.files, key=lambda member: member.name)
    return {
        **bundle_json(bundle),
        "file_list": [{"name": member.name, "size_bytes": member.size} for member in members[:MOST_FILES]],
        "file_list_complete": len(members) <= MOST_FILES,
    }
