"""geopatch serve"""

from __future__ import annotations

from pathlib import Path

import click

from geopatch.server.settings import Settings, default_workers, read_token
from geopatch.server.start import check_installed, serve


@click.command("serve", short_help="Serve a gallery: a REST API and a page to search it on.")
@click.argument("gallery")
@click.option("--model", type=click.Path(path_type=Path), help="Its model, where the gallery does not hold it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a token.")
@click.option("--port", default=8000, show_default=True, help="Port to listen on; 0 takes a free one.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token that every request must bring. Without it only this machine is answered.",
)
@click.option(
    "--write-token-file",
    type=click.Path(path_type=Path),
    help="File with the token for requests that add and remove. Without it nothing can be written.",
)
@click.option(
    "--workers", type=int, default=default_workers, show_default="2", help="Processes that search at the same time."
)
@click.option(
    "--watch-file",
    type=click.Path(path_type=Path),
    help="Where watches and their events are kept. By default in the folder of the gallery.",
)
@click.option(
    "--webhook-host",
    "webhook_hosts",
    multiple=True,
    help="A machine that events may be posted to; may be given again. Without, only this one.",
)
@click.option("--device", default="auto", show_default=True, help="Where to encode queries: auto, cpu, cuda or cuda:N.")
def command(
    gallery: str,
    model: Path | None,
    host: str,
    port: int,
    token_file: Path | None,
    write_token_file: Path | None,
    workers: int,
    watch_file: Path | None,
    webhook_hosts: tuple[str, ...],
    device: str,
) -> None:
    """Serve GALLERY: the page at /, the REST API below /api, health, readiness and metrics.

    A gallery that has no model can only be searched by its windows and records. When it is refitted, the server goes on
    with the new model by itself. SIGTERM ends it when what is under way is done.
    """
    settings = Settings(
        host,
        port,
        read_token(token_file),
        read_token(write_token_file),
        workers=workers,
        watch_file=watch_file,
        webhook_hosts=webhook_hosts,
    )
    check_installed()
    from geopatch.estimator import GeoPatch

    estimator = None if model is None else GeoPatch.load(model, device=device)
    serve(gallery, estimator, settings, device=device, started=lambda url: click.echo(f"serving {gallery} on {url}"))
