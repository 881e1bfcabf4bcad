"""Start the server, tell its address, and stop it when what is under way is done."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

from geopatch.engines.place import Place
from geopatch.errors import ConfigError, MissingExtraError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.server.settings import Settings

KEEP_ALIVE_S, BACKLOG = 75, 2048
# Threads that wait for Python's lock (one brings the searches and their answers, another writes) get it this soon from
# the one that reads requests; the usual 5 ms would be added to every batch.
SWITCH_S = 1e-4


def serve(place: Place, model: GeoPatch | None, settings: Settings, *, started: Callable[[str], None]) -> None:
    """Serve a gallery until SIGTERM or SIGINT; `started` gets the address when requests are taken."""
    check_installed()
    import uvicorn
    from threadpoolctl import threadpool_limits

    from geopatch.server.app import create_app
    from geopatch.server.patience import patient
    from geopatch.server.worker import Worker, collect_seldom

    gallery = Gallery.open(place, model=model, read_only=True)
    writing = Gallery.open(place, model=model) if settings.write_token is not None else None
    workers = [Worker(place, model) for _ in range(settings.workers)]
    app = create_app(gallery, settings, writing_to=writing, searchers=workers)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        http=patient(settings.limits.head_s),
        proxy_headers=False,  # whoever connects is who asks: a header must not say otherwise
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
        # What is accepted inherits it. Without, the body of an answer may wait 40 ms until its head is confirmed.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sys.setswitchinterval(SWITCH_S)
        collect_seldom()
        _end_on_sigterm()
        listening.listen(BACKLOG)  # who comes from now on waits until the first request is taken
        started(replace(settings, port=listening.getsockname()[1]).url)
        uvicorn.Server(config).run(sockets=[listening])


def _end_on_sigterm() -> None:
    """uvicorn sends itself the signal again when all is done: that is a good end, with exit code 0."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(0)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def check_installed() -> None:
    """Refuse before the work, not after it, to serve without the libraries that do it."""
    for library in ("fastapi", "uvicorn", "httptools", "prometheus_client", "multipart"):
        try:
            __import__(library)
        except ImportError as error:
            raise MissingExtraError(library, "serve", "serving a gallery") from error
