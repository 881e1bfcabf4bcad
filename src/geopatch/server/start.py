"""Start a server, report its address, and stop it when open requests are answered."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from geopatch.errors import ConfigError, MissingExtraError
from geopatch.server.settings import Settings

if TYPE_CHECKING:  # the flags of `geopatch serve` are shown without any of these
    from types import FrameType

    import uvicorn

    from geopatch.engines.place import Place
    from geopatch.estimator import GeoPatch
    from geopatch.server.guard import Guard

KEEP_ALIVE_S, BACKLOG = 75, 2048
# How soon a thread that waits for Python's lock (one brings searches and their answers, another writes) gets it from
# the one that reads requests; the default of 5 ms would be added to every batch.
SWITCH_S = 1e-4


def serve(
    place: Place,
    model: GeoPatch | None,
    settings: Settings,
    *,
    started: Callable[[str], None],
    device: str = "auto",
) -> None:
    """Serve a gallery until SIGTERM or SIGINT.

    Parameters
    ----------
    place : str, Path or URL
        Where the gallery is.
    model : GeoPatch or None
        The model it was made with, where the gallery does not hold it; without any, only stored windows and records
        can be searched by.
    settings : Settings
        Where to listen and who may use it.
    started : callable
        Called with the address when requests are taken.
    device : str, default="auto"
        Where the model that the gallery holds encodes.

    Raises
    ------
    ConfigError
        When the address cannot be listened on.
    MissingExtraError
        When the libraries of the extra `serve` are not installed.
    """
    check_installed()
    import uvicorn
    from threadpoolctl import threadpool_limits

    from geopatch.gallery import Gallery
    from geopatch.server.app import create_app
    from geopatch.server.connections import limited_protocol
    from geopatch.server.worker import Worker, collect_rarely

    gallery = Gallery.open(place, model=model, read_only=True, device=device)
    writable = Gallery.open(place, model=model, device=device) if settings.write_token is not None else None
    workers = [Worker(place, model, device=device) for _ in range(settings.workers)]
    app = create_app(gallery, settings, writable=writable, searchers=workers)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        http=limited_protocol(settings.limits, app.metrics),
        ws="none",
        proxy_headers=False,  # the client is who connects: a header must not say otherwise
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.limits.drain_s,
        backlog=BACKLOG,
    )
    with threadpool_limits(1):
        try:
            listening = config.bind_socket()
        except SystemExit as error:  # uvicorn has logged why
            raise ConfigError(f"cannot listen on {settings.host}:{settings.port}; give another --port") from error
        # Accepted connections inherit it. Without, the body of an answer may wait 40 ms until its head is confirmed.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sys.setswitchinterval(SWITCH_S)
        collect_rarely()
        _end_on_sigterm()
        listening.listen(BACKLOG)  # from now on connections wait until the first request is taken
        started(replace(settings, port=listening.getsockname()[1]).url)
        server = uvicorn.Server(config)
        _let_followers_go(server, app)
        server.run(sockets=[listening])


def _let_followers_go(server: uvicorn.Server, app: Guard) -> None:
    """Who follows events is let go when the server is to stop: uvicorn waits until open requests are answered."""
    handle_exit = server.handle_exit

    def stop(number: int, frame: FrameType | None) -> None:
        app.stop_following()
        handle_exit(number, frame)

    server.handle_exit = stop  # type: ignore[method-assign, assignment]


def _end_on_sigterm() -> None:
    """uvicorn sends itself the signal again when all is done: that is a good end, with exit code 0."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(0)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def check_installed() -> None:
    """Refuse to serve without the libraries that do it, before the gallery is opened or a model trained."""
    for library in ("fastapi", "uvicorn", "httptools", "prometheus_client", "multipart"):
        try:
            __import__(library)
        except ImportError as error:
            raise MissingExtraError(library, "serve", "serving a gallery") from error
