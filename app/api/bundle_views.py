"""The shapes of bundles on the wire."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.api.views import View


class BundleView(View):
    """A bundle; sizes are bytes, `files` is how many it unpacks to."""

    id: str
    object: Literal["bundle"]
    name: str
    format: Literal["zip", "wheel"]
    digest: str = Field(description="SHA-256 of the uploaded bytes, in hex.")
    size_bytes: int
    unpacked_bytes: int
    files: int
    created_by: str
    created_at: datetime


class BundleFile(View):
    name: str
    size_bytes: int


class BundleDetail(BundleView):
    file_list: list[BundleFile] = Field(description="By name, the first 1000.")
    file_list_complete: bool
