"""Opening a stream for a request: how many a key may hold, and how long it may."""

from collections.abc import AsyncGenerator

from fastapi import Request, Response

from app.api.auth import SECRET, principal_of
from app.api.services import Services
from app.api.sse import OpenResponse, StillAllowed


def open_stream(request: Request, services: Services, chunks: AsyncGenerator[bytes, None], media_type: str) -> Response:
    """The answer that sends `chunks` as they come.

    Raises:
        TooManyStreams: the key holds as many as it may.
    """
    key_id = principal_of(request.scope).key_id
    services.streams.check(key_id)
    return OpenResponse(chunks, media_type, held=services.streams.held(key_id))


def still_allowed(request: Request, services: Services) -> StillAllowed:
    """Whether the request's key still works, asked every few seconds."""
    secret = str(request.scope[SECRET])

    async def ask() -> bool:
        return await services.authenticator.principal(secret) is not None

    return StillAllowed(ask)
