"""geopatch encode"""

from __future__ import annotations

import json
from pathlib import Path

import click

from geopatch.cli import options


@click.command("encode", short_help="Turn a collection into embeddings and tokens.")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--model", required=True, type=click.Path(path_type=Path), help="Folder of a trained model.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The .npz file to write.")
@options.device
@options.as_json
def command(data: Path, model: Path, out: Path, device: str, as_json: bool) -> None:
    """Encode the file DATA and write ids, embedding (N, D), tokens (N, K, d), valid (N, K) and starts (N, K)."""
    import numpy as np

    from geopatch.data import read
    from geopatch.estimator import GeoPatch
    from geopatch.storage import atomic_file

    options.check_file_place(out)
    estimator = GeoPatch.load(model, device=device)
    encoding = estimator.encode(read(data).signals)
    with atomic_file(out) as partial, partial.open("wb") as file:
        np.savez(
            file,
            ids=np.asarray(encoding.ids),
            embedding=encoding.embedding,
            tokens=encoding.tokens,
            valid=encoding.valid,
            starts=encoding.starts,
        )
    windows, width = encoding.embedding.shape
    summary = {"out": str(out), "windows": windows, "embedding": width, "tokens": list(encoding.tokens.shape[1:])}
    click.echo(json.dumps(summary) if as_json else f"encoded {windows} windows as {width} numbers each; saved to {out}")
