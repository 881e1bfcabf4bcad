"""The application: its routes and page, how errors are answered, and what happens at start and stop."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from geopatch.errors import GeoPatchError
from geopatch.gallery import Gallery
from geopatch.server import routes
from geopatch.server.answers import REFUSALS, StateOut
from geopatch.server.guard import Guard
from geopatch.server.overview import overview
from geopatch.server.refusal import FAILED, as_refusal, one_line
from geopatch.server.routes import service_of
from geopatch.server.schema import StrictRoute
from geopatch.server.searcher import Searcher
from geopatch.server.service import SearchService
from geopatch.server.settings import Settings
from geopatch.server.watches import watching
from geopatch.server.worker import Worker
from geopatch.version import __version__

DESCRIPTION = """Search a gallery of time series by example.

Where the server was started with a token, send it as `Authorization: Bearer TOKEN`; requests that write need the write
token. Every refusal is JSON with one line, `detail`. Unknown names in JSON, forms and addresses are refused."""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


def create_app(
    gallery: Gallery,
    settings: Settings | None = None,
    *,
    writable: Gallery | None = None,
    searchers: Sequence[Searcher | Worker] = (),
) -> Guard:
    """An ASGI application over a gallery that is open for reading, and a second opening of it to write to.

    Without `searchers`, one searches in this process. The application closes all of them when it ends.
    """
    settings = settings or Settings()
    service = SearchService(gallery, settings, writable if settings.write_token else None, searchers)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            service.close()

    app = FastAPI(
        title="GeoPatch",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.router.route_class = StrictRoute
    app.include_router(routes.reading)
    app.include_router(overview)
    if service.writable:
        app.include_router(routes.writing)
        app.include_router(watching)
    _add_states(app)
    _add_page(app)
    _add_errors(app, service)
    return Guard(app, settings, service.metrics, service.stop_following)


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: REFUSALS[status] for status in statuses}


def _add_states(app: FastAPI) -> None:
    @app.get("/health", response_model=StateOut, tags=["state"], responses=_refusals(403, 422, 503))
    async def health() -> Any:
        """The process answers."""
        return JSONResponse({"status": "up"})

    @app.get("/ready", response_model=StateOut, tags=["state"], responses=_refusals(403, 422, 503))
    async def ready(request: Request) -> Any:
        """200 when the gallery is loaded and can be searched, 503 until then."""
        if service_of(request).ready:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"detail": "the gallery is being loaded"}, 503, {"Retry-After": "1"})

    text = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics."}
    answered = {200: text, **_refusals(401, 403, 422, 429, 503)}

    @app.get("/metrics", response_class=Response, tags=["state"], responses=answered)
    def metrics(request: Request) -> Response:
        """Counters and times in the format of Prometheus."""
        return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/api/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(app.openapi())


@dataclass(frozen=True)
class PageFile:
    content: bytes
    kind: str
    digest: str


def page_files() -> dict[str, PageFile]:
    """The files of the page by their names, read once: the name in a request is looked up here, never opened."""
    page = {}
    for item in (files("geopatch.server") / "page").iterdir():
        ending = f".{item.name.rpartition('.')[2]}"
        if item.is_file() and ending in KINDS:
            content = item.read_bytes()
            page[item.name] = PageFile(content, KINDS[ending], hashlib.sha256(content).hexdigest()[:16])
    return page


def _add_page(app: FastAPI) -> None:
    page = page_files()

    def send(request: Request, name: str) -> Response:
        file = page.get(name)
        if file is None:
            raise HTTPException(404, "no such file of the page")
        headers = {"ETag": f'"{file.digest}"', "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.kind, headers=headers)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return send(request, "index.html")

    @app.get("/api", include_in_schema=False)
    async def reference(request: Request) -> Response:
        return send(request, "reference.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        return send(request, name)


def _add_errors(app: FastAPI, service: SearchService) -> None:
    @app.exception_handler(GeoPatchError)
    async def refused(request: Request, error: GeoPatchError) -> Response:
        refusal = as_refusal(error, service.place)
        return JSONResponse({"detail": str(refusal)}, refusal.status, refusal.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"detail": one_line(f"{where}: {first['msg']}"[:500])}, 422)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        return JSONResponse({"detail": one_line(str(error.detail))}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": FAILED}, 500)
