"""Errors that only an HTTP request can have; everything else comes from the domain.

TrainshedError
 +- Unauthenticated
 +- Forbidden
 +- HostNotAllowed
 +- RouteNotFound
 +- MethodNotAllowed
 +- NoSuchArtifact
 +- BodyTooLarge
 +- TooManyRows
 +- UnsupportedMediaType
 +- MalformedHttp
 +- HeadTooLarge
 +- MalformedJson
 +- MalformedUpload
 +- InvalidRequest
 +- RangeNotSatisfiable
 +- SchemaNotReady
 +- StorageUnavailable
 +- InvalidEventId
 +- TooManyStreams
 +- InternalError
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.errors import TrainshedError, Unavailable


class Unauthenticated(TrainshedError):
    """No key, or one that does not work; why is not said, so that nothing can be learned from it."""

    code = "unauthenticated"

    def __init__(self) -> None:
        super().__init__("This request needs a working API key: send the header 'Authorization: Bearer ts_…'.")


class Forbidden(TrainshedError):
    """The key works, but its role is too low for the operation."""

    code = "forbidden"

    def __init__(self, role: str, required: str) -> None:
        super().__init__(f"This needs a key with the role '{required}'; yours has the role '{role}'.")
        self.role = role
        self.required = required


class HostNotAllowed(TrainshedError):
    """The Host header is not on the allow-list: a web page may be using somebody's browser to get in."""

    code = "host_not_allowed"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"The host name '{host[:255]}' is not one of TRAINSHED_ALLOWED_HOSTS; "
            "add it there, for example TRAINSHED_ALLOWED_HOSTS=127.0.0.1,localhost,trainshed.example.org"
        )


class RouteNotFound(TrainshedError):
    code = "not_found"

    def __init__(self) -> None:
        super().__init__("There is nothing at this address; /docs lists every route.")


class MethodNotAllowed(TrainshedError):
    code = "method_not_allowed"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method} is not possible here; this address takes {allowed}.")
        self.headers = {"Allow": allowed}


class NoSuchArtifact(TrainshedError):
    """One sentence for every name, so that nothing about files outside can be learned by asking."""

    code = "not_found"

    def __init__(self) -> None:
        super().__init__("This job has no file of that name; GET /v1/jobs/{id}/artifacts lists those it has.")


class BodyTooLarge(TrainshedError):
    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit} bytes, the limit of this route.")
        self.limit = limit


class TooManyRows(TrainshedError):
    code = "too_many_rows"

    def __init__(self, rows: int, limit: int) -> None:
        super().__init__(f"{rows} rows are more than one request may have; send at most {limit} at a time.")
        self.limit = limit


class UnsupportedMediaType(TrainshedError):
    code = "unsupported_media_type"

    def __init__(self, sent: str, accepted: Sequence[str]) -> None:
        said = f"not '{sent[:120]}'" if sent else "and must be named in the header Content-Type"
        super().__init__(f"The body must be {' or '.join(accepted)}, {said}.")


class MalformedHttp(TrainshedError):
    """What came is no HTTP request, so there is nothing that could be looked at; its connection is closed."""

    code = "malformed_http"

    def __init__(self) -> None:
        super().__init__("This is not an HTTP/1.1 request; the connection is closed.")


class HeadTooLarge(TrainshedError):
    code = "head_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The first line and the headers of a request have at most {limit} bytes together.")
        self.limit = limit


class MalformedJson(TrainshedError):
    code = "malformed_json"


class MalformedUpload(TrainshedError):
    """The multipart body is broken, or has no file; says what is missing."""

    code = "malformed_upload"


class RangeNotSatisfiable(TrainshedError):
    code = "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(f"The file has {size} bytes, numbered from 0; the range asks for others.")
        self.headers = {"Content-Range": f"bytes */{size}"}


class SchemaNotReady(Unavailable):
    """The database answers, but its schema is not the one that this version needs; `why` is a sentence."""

    code = "schema_not_ready"

    def __init__(self, why: str) -> None:
        super().__init__(why, retry_after_s=2)


class StorageUnavailable(Unavailable):
    """The storage itself failed: full, gone, or not ours to write to. Its log has the reason."""

    code = "storage_unavailable"

    def __init__(self, message: str = "The storage cannot be used now; try again, or look at /readyz?verbose.") -> None:
        super().__init__(message, retry_after_s=5)


Place = Literal["body", "query", "path", "header"]


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """One problem of a request: where (`place`, and an RFC 6901 pointer in it), what is wrong, and what instead."""

    pointer: str
    message: str
    suggestion: str | None = None
    place: Place = "body"


class InvalidRequest(TrainshedError):
    code = "invalid_request"

    def __init__(self, problems: Sequence[RequestProblem]) -> None:
        self.problems = list(problems)
        lines = [f"{problem.place} {problem.pointer}: {problem.message}" for problem in self.problems]
        super().__init__("The request is not valid. " + " ".join(lines))


class InvalidEventId(TrainshedError):
    """A position in a job's journal that does not exist, so nothing can follow it without a gap."""

    code = "invalid_event_id"

    def __init__(self, text: str, last: int | None = None) -> None:
        known = "" if last is None else f" This job's events are numbered 1 to {last}."
        super().__init__(
            f"'{text[:64]}' is not the number of an event.{known} "
            "Send the id of the last event you have, or nothing to get all."
        )


class TooManyStreams(TrainshedError):
    code = "too_many_streams"

    def __init__(self, limit: int) -> None:
        super().__init__(f"This key already follows {limit} streams; close one first, or read pages instead.")
        self.retry_after_s = 5


class InternalError(TrainshedError):
    """A fault of the server. What happened is in its log under the request id, never in the answer."""

    code = "internal"

    def __init__(self) -> None:
        super().__init__("The server failed on this request. Its log has the reason under this request id.")
