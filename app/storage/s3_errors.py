"""What a user may read of an error of S3: the server's status and its code, never an address, a key or a signature."""

import errno
import re
from typing import Final

from obstore.exceptions import InvalidPathError, PermissionDeniedError, UnauthenticatedError

_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
# Refusals that have another status than 403. Source: Amazon S3 API Reference, "Error responses".
_REFUSED: Final = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed")
# What the library says where there is no status.
_UNTRUSTED: Final = "InvalidCertificate"
_REDIRECT: Final = "redirect without LOCATION"
_NETWORK: Final = "HTTP error"


def code_of(error: Exception) -> str | None:
    """The code in the server's answer; a head has none."""
    found = _CODE.search(str(error))
    return found[1] if found else None


def explained(error: Exception, bucket: str) -> OSError:
    """The same in a sentence of ours. To be raised `from None`: the library's own has addresses in it."""
    code, status = code_of(error), _STATUS.search(str(error))
    if code == "NoSuchBucket" or (code is None and isinstance(error, FileNotFoundError)):
        return OSError(errno.EIO, f"the S3 storage has no bucket '{bucket}'")
    refused = isinstance(error, PermissionDeniedError | UnauthenticatedError) or code in _REFUSED
    if refused or (status and status[1] in ("401", "403")):
        return PermissionError(errno.EACCES, f"the S3 storage refuses access ({code or 'no reason is given'})")
    if status is not None:
        return OSError(errno.EIO, f"the S3 storage fails with status {status[1]}{f' ({code})' if code else ''}")
    return OSError(errno.EIO, _without_status(error))


def _without_status(error: Exception) -> str:
    """What happened when there is no answer, or none that the library takes for one."""
    text = str(error)
    if _UNTRUSTED in text:
        return "the certificate of the S3 storage is not trusted by this system"
    if _REDIRECT in text:
        return "the S3 storage sends elsewhere: TRAINSHED_S3_REGION or TRAINSHED_S3_ENDPOINT is not the bucket's"
    if isinstance(error, InvalidPathError):
        return "the S3 storage has an object in the storage's folder whose key has empty or odd parts; remove it"
    if _NETWORK in text:
        return "the S3 storage does not answer"
    return "the S3 storage gives an answer that is none of S3's"
