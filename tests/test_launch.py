"""Two processes train one encoder together, started by Lightning Fabric."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from geopatch.errors import ConfigError, MissingExtraError
from geopatch.estimator import GeoPatch
from geopatch.train import launch


def test_two_processes_train_one_model(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", X=draw.normal(size=(12, 30)), y=np.arange(12) % 3)
    command = [
        sys.executable,
        "-m",
        "geopatch",
        "fit",
        "data.npz",
        "--out",
        "model",
        "--devices",
        "2",
        "--device",
        "cpu",
    ]
    flags = ["--min-steps", "3", "--max-steps", "3", "--batch-size", "8", "--width", "16", "--layers", "1", "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [*command, *flags], cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"model": "model"') == 1  # one process saves and speaks
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data.npz", "model"]
    assert np.isfinite(GeoPatch.load(tmp_path / "model").transform(draw.normal(size=(2, 30)))).all()


def test_a_missing_fabric_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(MissingExtraError, match=r"needs lightning-fabric.*geopatch-ts\[multi-gpu\]"):
        GeoPatch(devices=2, device="cpu").fit(np.zeros((4, 20)), [0, 1, 0, 1])


def test_more_gpus_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="devices must be at most 1 on this machine, got 3"):
        launch.launch(3, torch.device("cuda"))
