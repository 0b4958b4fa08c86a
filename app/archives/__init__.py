"""ZIP archives of strangers: looked through, unpacked into a fresh folder, and packed; the standard library alone.

Used by the API, which accepts bundles of code, and by the process of a script job, which unpacks them as its own user.
An archive inside an archive is a file like any other: nothing here ever opens it.

TrainshedError
 +- NotAnArchive
 +- UnsafeArchive
 +- ArchiveTooLarge
 +- NoSuchMember
"""

from app.archives.contents import Contents, Limits, Member
from app.archives.errors import ArchiveTooLarge, NoSuchMember, NotAnArchive, UnsafeArchive
from app.archives.extraction import extract
from app.archives.packing import pack
from app.archives.reading import check, contents, read_member

__all__ = [
    "ArchiveTooLarge",
    "Contents",
    "Limits",
    "Member",
    "NoSuchMember",
    "NotAnArchive",
    "UnsafeArchive",
    "check",
    "contents",
    "extract",
    "pack",
    "read_member",
]
