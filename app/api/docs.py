"""Swagger UI with its own assets, since GPU hosts are often offline, and a page that explains every error code."""

import importlib.util
from html import escape
from pathlib import Path
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from app.api.auth import PUBLIC_FOLDER
from app.api.errors import RouteNotFound
from app.api.problems import PROBLEMS
from app.api.routing import ApiRoute

_OWN: Final = Path(__file__).parent / "static"
_ASSETS: Final = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
    "start.js": "text/javascript",
}
# Swagger UI sets style attributes and loads its icons from data: addresses; nothing comes from elsewhere.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"Content-Security-Policy": _POLICY}
_HEAD: Final = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
_PAGE: Final = (
    _HEAD.format(title="Trainshed API")
    + '<meta name="viewport" content="width=device-width, initial-scale=1">'
    + f'<link rel="stylesheet" href="{PUBLIC_FOLDER}swagger-ui.css">'
    + f'<link rel="icon" href="{PUBLIC_FOLDER}favicon.png"></head><body><div id="swagger-ui"></div>'
    + f'<script src="{PUBLIC_FOLDER}swagger-ui-bundle.js"></script>'
    + f'<script src="{PUBLIC_FOLDER}start.js"></script></body></html>'
)

router = APIRouter(route_class=ApiRoute, include_in_schema=False)


def assets_folder() -> Path:
    """The static folder of the package fastapi-offline, found without importing it: only its files are wanted."""
    found = importlib.util.find_spec("fastapi_offline")
    if found is None or found.origin is None:
        raise FileNotFoundError("the package fastapi-offline, which holds the files of Swagger UI, is not installed")
    return Path(found.origin).parent / "static"


@router.get("/")
async def root() -> Response:
    return RedirectResponse("/docs")


@router.get("/docs")
async def docs() -> Response:
    return HTMLResponse(_PAGE, headers=_HEADERS)


@router.get("/docs/errors")
async def explain_errors() -> Response:
    rows = "".join(
        f'<tr id="{code}"><td><code>{code}</code></td><td>{kind.status}</td><td>{escape(kind.title)}</td></tr>'
        for code, kind in PROBLEMS.items()
    )
    page = _HEAD.format(title="Trainshed errors") + (
        "</head><body><h1>Errors</h1><p>Every error is a problem document; <code>code</code> never changes its "
        f"meaning.</p><table><tr><th>code</th><th>status</th><th>meaning</th></tr>{rows}</table></body></html>"
    )
    return HTMLResponse(page, headers=_HEADERS)


@router.get("/docs/assets/{name}")
async def asset(name: Annotated[str, PathParameter()]) -> Response:
    media_type = _ASSETS.get(name)
    if media_type is None:
        raise RouteNotFound
    own = _OWN / name
    path = own if own.is_file() else assets_folder() / name
    return FileResponse(path, media_type=media_type, headers={"Cache-Control": "public, max-age=3600"})


@router.get("/openapi.json")
async def openapi_json(request: Request) -> Response:
    return Response(orjson.dumps(request.app.openapi()), media_type="application/json")
