"""A model folder: what is saved comes back bit for bit, and whatever is amiss is one clear error."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from geopatch.config import PRESETS, ModelConfig
from geopatch.errors import CheckpointError, GeoPatchError
from geopatch.model.checkpoint import Card, check_replaceable, digest, load_checkpoint, save_checkpoint
from geopatch.model.encoder import Encoder
from geopatch.patches import stack
from geopatch.signal import Signal

TINY = ModelConfig(
    halves=("learned",), channels=2, patch_length=4, max_patches=4, width=16, embedding=8, layers=1, heads=1
)
CARD = Card(train={"seed": 3}, data={"windows": 5, "rate_hz": 2.0}, scores={"loss": 0.5, "validation_loss": None})
FILES = {"config.json", "weights.safetensors", "README.md"}


@pytest.fixture
def encoder() -> Encoder:
    return Encoder(TINY).eval()


@pytest.fixture
def folder(encoder: Encoder, tmp_path: Path) -> Path:
    save_checkpoint(encoder, CARD, tmp_path / "model")
    return tmp_path / "model"


def embedding(encoder: Encoder) -> torch.Tensor:
    rng = np.random.default_rng(0)
    signals = [Signal.from_array(rng.normal(size=(length, 2))) for length in (30, 17, 3)]
    with torch.inference_mode():
        return encoder.encode(stack(signals)).embedding


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("preset", [TINY, *PRESETS.values()], ids=["tiny", *PRESETS])
def test_a_saved_encoder_comes_back_bit_for_bit(preset: ModelConfig, tmp_path: Path) -> None:
    encoder = Encoder(dataclasses.replace(preset, channels=2)).eval()
    save_checkpoint(encoder, CARD, tmp_path / "model")
    loaded, card = load_checkpoint(tmp_path / "model")
    assert loaded.config == encoder.config
    assert card == CARD
    assert not loaded.training
    assert digest(loaded) == digest(encoder)
    assert torch.equal(embedding(loaded), embedding(encoder))


def test_the_folder_holds_no_pickle(folder: Path, encoder: Encoder) -> None:
    """Three files: two of text, and weights that safetensors reads to the last byte."""
    assert {file.name for file in folder.iterdir()} == FILES
    weights = load_file(folder / "weights.safetensors")
    assert {name: value.shape for name, value in weights.items()} == {
        name: value.shape for name, value in encoder.state_dict().items()
    }
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("# GeoPatch encoder")
    json.loads((folder / "config.json").read_text(), parse_constant=pytest.fail)


def test_the_card_tells_where_the_model_comes_from(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "GeoPatch.load" in text
    for line in ("| channels | 2 |", "| windows | 5 |", "| rate_hz | 2.0 |", "| loss | 0.5 |"):
        assert line in text


def test_two_saves_give_the_same_bytes(encoder: Encoder, folder: Path, tmp_path: Path) -> None:
    save_checkpoint(encoder, CARD, tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_the_digest_changes_with_any_weight(encoder: Encoder) -> None:
    seen = {digest(encoder)}
    for value in encoder.state_dict().values():
        value.view(-1)[0] += 1
        seen.add(digest(encoder))
    assert len(seen) == 1 + len(encoder.state_dict())


def test_the_digest_changes_with_the_config(encoder: Encoder) -> None:
    before = digest(encoder)
    assert digest(encoder) == before
    encoder.config = dataclasses.replace(TINY, amplitude="zscore")
    assert digest(encoder) != before


def truncate(folder: Path) -> None:
    blob = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(blob[: len(blob) // 2])


def flip_a_bit(folder: Path) -> None:
    blob = bytearray((folder / "weights.safetensors").read_bytes())
    blob[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(blob)


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def configure(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: change_config(folder, lambda config: config.update(changes))


def set_model(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: change_config(folder, lambda config: config["model"].update(changes))


AMISS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (remove("config.json"), r"is no model folder: it has no config\.json; give one that `save` wrote"),
    "no weights": (remove("weights.safetensors"), r"has no readable weights\.safetensors; copy the whole folder"),
    "truncated weights": (truncate, r"weights\.safetensors is truncated or changed \(\d+ bytes, wrong digest\)"),
    "empty weights": (write("weights.safetensors", b""), r"is truncated or changed \(0 bytes"),
    "one bit changed": (flip_a_bit, r"is truncated or changed"),
    "garbage JSON": (write("config.json", b'{"format": 1'), r"config\.json is not readable as a model config"),
    "garbage bytes": (write("config.json", b"\xff\x00"), r"config\.json is not readable as a model config"),
    "a list": (write("config.json", b"[1, 2]"), r"config\.json is not readable as a model config"),
    "another config": (write("config.json", b'{"model": {}}'), r"config\.json is not readable as a model config"),
    "newer format": (configure(format=3), r"has model format 3, this version \(.*\) reads 2; upgrade geopatch-ts"),
    "no digest": (configure(digest=None), r"is truncated or changed"),
    "no model": (configure(model=None), r"does not hold what its config says"),
    "no card": (configure(card=[]), r"does not hold what its config says"),
    "unknown field": (set_model(colour="red"), r"does not hold what its config says \(.*'colour'\)"),
    "unknown choice": (set_model(fuse="glue"), r"holds a setting this version does not know: fuse must be one of"),
    "number as text": (set_model(width="wide"), r"does not hold what its config says"),
    "dropout": (set_model(dropout=2.0), r"holds a setting this version does not know: .*dropout"),
    "other width": (set_model(width=32), r"does not hold what its config says \(Error\(s\) in loading state_dict"),
    "other channels": (set_model(channels=3), r"does not hold what its config says"),
    "other layers": (set_model(layers=2), r"does not hold what its config says"),
}


@pytest.mark.parametrize(("spoil", "message"), AMISS.values(), ids=list(AMISS))
def test_what_is_amiss_is_told(spoil: Callable[[Path], object], message: str, folder: Path) -> None:
    spoil(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)
    assert "model" in str(caught.value)  # the folder is named


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere is no model folder"):
        load_checkpoint(tmp_path / "nowhere")


def test_a_file_in_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("text")
    with pytest.raises(CheckpointError, match="is no model folder"):
        load_checkpoint(tmp_path / "model")


def test_an_existing_folder_is_kept(encoder: Encoder, folder: Path) -> None:
    before = (folder / "config.json").read_bytes()
    with pytest.raises(GeoPatchError, match="the folder exists already; give another path or allow overwriting"):
        save_checkpoint(encoder, Card(), folder)
    assert (folder / "config.json").read_bytes() == before


def test_overwriting_replaces_all_of_it(folder: Path, tmp_path: Path) -> None:
    other = Encoder(dataclasses.replace(TINY, channels=3)).eval()
    save_checkpoint(other, CARD, folder, overwrite=True)
    assert digest(load_checkpoint(folder)[0]) == digest(other)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_overwriting_spares_what_is_no_model(encoder: Encoder, folder: Path) -> None:
    (folder / "thesis.txt").write_text("three years of work")
    with pytest.raises(CheckpointError, match=r"holds 'thesis\.txt', which is no part of a model; give another folder"):
        save_checkpoint(encoder, CARD, folder, overwrite=True)
    assert (folder / "thesis.txt").read_text() == "three years of work"


def test_an_empty_folder_can_be_taken(encoder: Encoder, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    check_replaceable(tmp_path / "model")
    save_checkpoint(encoder, CARD, tmp_path / "model", overwrite=True)
    load_checkpoint(tmp_path / "model")


def test_nothing_half_written_is_left(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The card is written last; when that fails, nothing of the rest may stay."""

    def fail(*_: object) -> str:
        raise RuntimeError("the power went off")

    monkeypatch.setattr("geopatch.model.checkpoint._card_text", fail)
    with pytest.raises(RuntimeError, match="the power went off"):
        save_checkpoint(encoder, CARD, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_overwrite_keeps_the_old_model(
    encoder: Encoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geopatch.model.checkpoint._card_text", lambda *_: "\udc80")  # no UTF-8: fails while writing
    with pytest.raises(UnicodeEncodeError):
        save_checkpoint(Encoder(dataclasses.replace(TINY, channels=3)), CARD, folder, overwrite=True)
    assert digest(load_checkpoint(folder)[0]) == digest(encoder)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_missing_parent_is_told(encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(GeoPatchError, match=r"there is no folder .*nowhere; create it first"):
        save_checkpoint(encoder, CARD, tmp_path / "nowhere" / "model")
