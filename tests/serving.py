"""A gallery of ECG windows with its model, a client of the application, and a server in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from starlette.testclient import TestClient

from geopatch.config import PRESETS, ModelConfig, TrainConfig
from geopatch.data.sample import ecg_windows
from geopatch.engines import Metadata
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.server import Limits, Settings
from geopatch.server.app import create_app
from geopatch.server.connections import limited_protocol

TOKEN, WRITE_TOKEN = "read-" + "r" * 20, "write-" + "w" * 20
READER, WRITER = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {WRITE_TOKEN}"}
READY_S = 180.0


def make_place(folder: Path, preset: str | None = None) -> Path:
    """A folder with `model` and `gallery`: two leads of six records, a few windows of each, labelled.

    The model is that of a preset, or a small one of the learned half that is quickly made.
    """
    windows = ecg_windows()
    chosen = windows.subset(np.asarray([signal.start_s < 12 for signal in windows.signals]))
    small = PRESETS[preset] if preset else ModelConfig(halves=("learned",))
    config = replace(small, width=16, embedding=8, layers=1, heads=1)
    train = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=8)
    unnamed = [replace(signal, channels=()) for signal in chosen.signals]  # the second leads differ between records
    model = GeoPatch(model=config, train=train, device="cpu").fit(unnamed, chosen.labels)
    model.save(folder / "model")
    assert chosen.labels is not None
    rows: list[Metadata] = [
        {"beat": str(label), "second": signal.start_s}
        for signal, label in zip(chosen.signals, chosen.labels, strict=True)
    ]
    with Gallery.create(folder / "gallery", model) as made:
        made.add(unnamed, metadata=rows)
    return folder


@contextmanager
def client_of(place: Path, settings: Settings | None = None) -> Iterator[TestClient]:
    """A client on this machine, in the same process."""
    settings = settings or Settings(write_token=WRITE_TOKEN)
    model = GeoPatch.load(place / "model", device="cpu")
    writable = Gallery.open(place / "gallery", model=model) if settings.write_token else None
    app = create_app(Gallery.open(place / "gallery", model=model, read_only=True), settings, writable=writable)
    with TestClient(
        app, base_url="http://127.0.0.1", client=("127.0.0.1", 5000), raise_server_exceptions=False
    ) as client:
        yield client


class Server:
    """`geopatch serve` as a process; ended by its process id."""

    def __init__(self, place: Path, *flags: str, host: str = "127.0.0.1") -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        where = ["--model", str(place / "model"), "--host", host, "--port", str(self.port), "--device", "cpu"]
        workers = [] if "--workers" in flags else ["--workers", "1"]  # each takes seconds to start
        command = [sys.executable, "-m", "geopatch", "serve", str(place / "gallery"), *where, *workers, *flags]
        self.log = place / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ready(self) -> Server:
        until = time.monotonic() + READY_S
        while True:
            try:
                if httpx.get(f"{self.url}/ready", timeout=5).status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.1)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.send(signal.SIGTERM)
        return self.process.wait(READY_S)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.send(signal.SIGKILL)
        self.process.wait()


@contextmanager
def server_of(place: Path, *flags: str, host: str = "127.0.0.1") -> Iterator[Server]:
    running = Server(place, *flags, host=host)
    try:
        yield running.ready()
    finally:
        if running.process.poll() is None:
            running.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class limited_server:  # noqa: N801
    """A real server in a thread, where a limit has to be short."""

    def __init__(self, place: Path, **limits: Any) -> None:
        self.place, self.limits = place, Limits(**limits)

    def __enter__(self) -> tuple[httpx.Client, int]:
        self.inside = client_of(self.place, Settings(limits=self.limits))
        app: Any = self.inside.__enter__().app
        http = limited_protocol(self.limits, app.metrics)
        config = uvicorn.Config(app, port=0, lifespan="off", log_level="error", http=http, ws="none")
        listening = config.bind_socket()
        self.port = int(listening.getsockname()[1])
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20)
        return self.client, self.port

    def __exit__(self, *error: object) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join()
        self.inside.__exit__(None, None, None)
