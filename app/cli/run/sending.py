"""Code and data to the server, each once: what it has already is not sent again."""

import hashlib
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from app.cli.client import Client
from app.cli.errors import Refused
from app.cli.figures import size
from app.cli.files import add_table, is_address
from app.cli.run.packing import Content, TooLarge, packed

_LOOKED_THROUGH: Final = 200


def send_code(client: Client, content: Content, name: str) -> tuple[dict[str, Any], str]:
    """The bundle with this content, new or not, and a sentence about it.

    Raises:
        TooLarge: the server does not take so much.
        UsageProblem, Refused, Unreachable: it cannot be packed, or sent.
    """
    with packed(content) as archive:
        there = client.get("/v1/bundles", {"digest": archive.digest})["data"]
        if there:
            return there[0], f"{there[0]['id']}: {content.sentence}; the server has it already"
        try:
            made: dict[str, Any] = client.upload("/v1/bundles", archive.path, {"name": name}, media="application/zip")
        except Refused as error:
            if error.content.get("status") != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            raise TooLarge(f"{error} The largest files:", content) from error
    return made, f"{made['id']}: {content.sentence}; sent {size(archive.size_bytes)}"


def send_data(client: Client, source: str) -> tuple[str, str]:
    """The id of a data set, and a sentence: of one that is there, or of a file that is sent unless its bytes are there.

    Raises:
        Refused, Unreachable: the file cannot be sent.
    """
    if source.startswith("ds_"):
        return source, source
    if not is_address(source):
        digest = _digest(Path(source))
        known = client.pages("/v1/datasets", _LOOKED_THROUGH)["data"]
        same = next((item for item in known if item.get("digest") == digest and item.get("state") == "ready"), None)
        if same is not None:
            return str(same["id"]), f"{same['id']}: {source}; the server has it already"
    found = add_table(client, source)
    return str(found["id"]), f"{found['id']}: {source}; sent {size(found['size_bytes'])}"


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
