"""The application: routes, how errors are told, and what happens at start and stop."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from geopatch.errors import GeoPatchError
from geopatch.gallery import Gallery
from geopatch.server import answers, reading, writing
from geopatch.server.desk import Desk
from geopatch.server.guard import Guard
from geopatch.server.page import page_files
from geopatch.server.reading import REFUSALS, desk_of
from geopatch.server.refusal import as_refusal, is_storage_failure, one_line
from geopatch.server.searcher import Searcher
from geopatch.server.settings import Settings
from geopatch.server.worker import Worker
from geopatch.version import __version__

TOLD = """Search a gallery of time series by example.

Where the server was started with a token, send it as `Authorization: Bearer TOKEN`; requests that write need the write
token. Every refusal is JSON with one line, `detail`."""

log = logging.getLogger(__name__)


def create_app(
    gallery: Gallery,
    settings: Settings | None = None,
    *,
    writing_to: Gallery | None = None,
    searchers: Sequence[Searcher | Worker] = (),
) -> Guard:
    """An ASGI application over a gallery that is open for reading, and a second opening of it to write to.

    Without `searchers`, one searches in this process. The application closes all of them when it ends.
    """
    settings = settings or Settings()
    if writing_to is None or settings.write_token is None:
        writing_to = None
    desk = Desk(gallery, settings, writing_to, searchers)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            desk.close()

    app = FastAPI(
        title="GeoPatch",
        version=__version__,
        description=TOLD,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
    )
    app.state.desk = desk
    app.include_router(reading.router)
    if desk.writer is not None:
        app.include_router(writing.router)
    _add_states(app)
    _add_page(app)
    _add_errors(app, desk)
    return Guard(app, settings, desk.metrics)


def _add_states(app: FastAPI) -> None:
    @app.get("/health", response_model=answers.State, tags=["state"], responses={403: REFUSALS[403]})
    async def health() -> Any:
        """The process answers."""
        return JSONResponse({"status": "up"})

    told: dict[int | str, dict[str, Any]] = {403: REFUSALS[403], 503: REFUSALS[503]}

    @app.get("/ready", response_model=answers.State, tags=["state"], responses=told)
    async def ready(request: Request) -> Any:
        """The gallery is loaded and can be searched."""
        if desk_of(request).ready:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"detail": "the gallery is being loaded"}, 503, {"Retry-After": "1"})

    @app.get("/metrics", response_class=Response, tags=["state"], responses=_metrics_answers())
    def metrics(request: Request) -> Response:
        """Counters and times in the format of Prometheus."""
        return Response(desk_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _metrics_answers() -> dict[int | str, dict[str, Any]]:
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics."}
    return {200: text, 401: REFUSALS[401], 403: REFUSALS[403], 503: REFUSALS[503]}


def _add_page(app: FastAPI) -> None:
    found = page_files()

    def send(request: Request, name: str) -> Response:
        file = found.get(name)
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


def _add_errors(app: FastAPI, desk: Desk) -> None:
    @app.exception_handler(GeoPatchError)
    async def refused(request: Request, error: GeoPatchError) -> Response:
        if is_storage_failure(error):
            log.error("the gallery failed", exc_info=error)
        refusal = as_refusal(error, desk.place)
        return JSONResponse({"detail": str(refusal)}, refusal.status, refusal.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"detail": one_line(f"{where}: {first['msg']}"[:500])}, 422)

    @app.exception_handler(HTTPException)
    async def missing(request: Request, error: HTTPException) -> Response:
        return JSONResponse({"detail": one_line(str(error.detail))}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "the server failed; its log says why"}, 500)
