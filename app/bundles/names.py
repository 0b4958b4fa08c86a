"""What kind of bundle an archive is, told by what is in it, and what the bundle is called."""

import re
from typing import ClassVar, Final, Literal

from app.archives import Contents
from app.datasets.names import clean_name
from app.errors import TrainshedError

BundleFormat = Literal["zip", "wheel"]

# What makes an archive a wheel. Source: the binary distribution format, "The .dist-info directory".
_WHEEL: Final = re.compile(r"[^/]+\.dist-info/WHEEL")
_ENDING: Final = ".whl"


class InvalidBundle(TrainshedError):
    """The archive is whole and safe, but no code that could be run."""

    code: ClassVar[str] = "invalid_bundle"


def format_of(contents: Contents, name: str) -> BundleFormat:
    """`wheel` when the archive says so in itself, else `zip`.

    Raises:
        InvalidBundle: there is no file in it, or it is called a wheel and is none.
    """
    if not contents.files:
        raise InvalidBundle("The archive has no file; pack the folder that has your code, for example train.py.")
    if any(_WHEEL.fullmatch(file) for file in contents.names):
        return "wheel"
    if name.lower().endswith(_ENDING):
        raise InvalidBundle(
            "The file is called .whl, but has no *.dist-info/WHEEL, so it is no wheel; build it with `python -m build "
            "--wheel`, or call it .zip."
        )
    return "zip"


def bundle_name(name: str, bundle_format: BundleFormat) -> str:
    """The client's name made harmless, or `bundle.zip` or `bundle.whl`. For people; no path is ever built from it."""
    return clean_name(name, "bundle.whl" if bundle_format == "wheel" else "bundle.zip")
