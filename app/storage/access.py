"""Where an S3 storage is, and how to get at it."""

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from app.storage.errors import UnsupportedStorage
from app.storage.keys import is_segment

# The rules for names of buckets. Source: Amazon S3 User Guide, "General purpose bucket naming rules".
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class S3Place:
    """A bucket, and the folder in it below which all keys lie ("" for none)."""

    bucket: str
    prefix: str = ""


@dataclass(frozen=True)
class S3Access:
    """The server and the credentials; what is empty is taken from the environment as AWS' own tools do (AWS_*, roles).

    `endpoint` is the address of a server that is not Amazon's, for example https://minio.example.org:9000.
    """

    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise UnsupportedStorage(
                "TRAINSHED_S3_ACCESS_KEY_ID and TRAINSHED_S3_SECRET_ACCESS_KEY belong together: set both, or none."
            )
        for text in (self.region, self.access_key_id, self.secret_access_key):
            # They become parts of headers; the library ends the process' thread over one that cannot.
            if not text.isascii() or not text.isprintable():
                raise UnsupportedStorage(
                    "TRAINSHED_S3_REGION, TRAINSHED_S3_ACCESS_KEY_ID and TRAINSHED_S3_SECRET_ACCESS_KEY are ASCII text "
                    "of one line, for example eu-central-1"
                )
        parts = urlsplit(self.endpoint)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query
        if self.endpoint and wrong:
            raise UnsupportedStorage(
                "TRAINSHED_S3_ENDPOINT must be the address of a server without credentials in it, "
                "for example https://minio.example.org:9000"
            )

    @property
    def encrypted(self) -> bool:
        return not self.endpoint.startswith("http://")


def parse_place(url: str) -> S3Place:
    """Take `s3://bucket/prefix` apart.

    Raises:
        UnsupportedStorage: it is not of that form; the message does not repeat it, since it may hold credentials.
    """
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    prefix = prefix.removesuffix("/")
    if not _BUCKET.fullmatch(bucket) or (prefix and not all(map(is_segment, prefix.split("/")))):
        raise UnsupportedStorage(
            "TRAINSHED_STORAGE_URL must be s3:// with the name of a bucket, and perhaps a folder in it, "
            "for example s3://models/trainshed; credentials are settings of their own"
        )
    return S3Place(bucket, prefix)
