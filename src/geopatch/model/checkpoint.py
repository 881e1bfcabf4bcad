"""A trained encoder as a folder: config.json, weights.safetensors, README.md (the model card). No pickle.

A gallery holds the same files as one blob, a zip archive without compression.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from geopatch.config import ModelConfig
from geopatch.errors import CheckpointError, GeoPatchError
from geopatch.kernels.fitting import KernelFit
from geopatch.model.encoder import Encoder
from geopatch.storage import atomic_folder
from geopatch.version import __version__

FORMAT = 2  # 1 knew the learned half alone
CONFIG, WEIGHTS, CARD, MOMENTS = "config.json", "weights.safetensors", "README.md", "moments.safetensors"
LEARNED = "learned."
OF_KERNELS = ("halves", "kernel_share", "prior_windows", "length")
# settings that came after others; unused ones change no name
LATER = ("patch_budget", "patch_count", "bands", "clock_share", "rhythm", "surroundings")


@dataclass(frozen=True)
class Card:
    """Where a model comes from: its training settings and data, how it scored, and the course of its training."""

    train: dict[str, Any] = field(default_factory=dict)  # the fields of TrainConfig, and the seed
    data: dict[str, Any] = field(default_factory=dict)  # digest, windows, classes, labels, lengths, rate_hz, channels
    scores: dict[str, Any] = field(default_factory=dict)
    version: str = __version__
    history: list[dict[str, Any]] = field(default_factory=list)  # version 0.1 did not save it
    choices: dict[str, Any] = field(default_factory=dict)  # settings that validation chose, each with its evidence


@dataclass(frozen=True, repr=False)
class PackedCheckpoint:
    """The files of a checkpoint as one blob, and what to call it in messages."""

    blob: bytes
    name: str

    def __str__(self) -> str:
        return self.name


def save_checkpoint(
    encoder: Encoder, card: Card, folder: str | Path, *, moments: KernelFit | None = None, overwrite: bool = False
) -> None:
    """Write the folder whole or not at all; with the moments of its fixed half, windows can be added to it later."""
    check_replaceable(folder)
    files = _files(encoder, card)
    if moments is not None:
        files[MOMENTS] = save(moments.tensors())
    with atomic_folder(Path(folder), overwrite=overwrite) as partial:
        for name, content in files.items():
            (partial / name).write_bytes(content)


def pack_checkpoint(encoder: Encoder, card: Card) -> bytes:
    """The files of the folder as one blob, the same bytes for the same model."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in _files(encoder, card).items():
            archive.writestr(zipfile.ZipInfo(name), content)  # stored as it is, with a fixed date
    return packed.getvalue()


def _files(encoder: Encoder, card: Card) -> dict[str, bytes]:
    blob = save({name: value.contiguous() for name, value in encoder.state_dict().items()})
    config = {
        "format": FORMAT,
        "digest": hashlib.sha256(blob).hexdigest(),
        "model": dataclasses.asdict(encoder.config),
        "card": dataclasses.asdict(card),
    }
    texts = {CONFIG: json.dumps(config, indent=2) + "\n", CARD: _card_text(encoder.config, card)}
    return {**{name: text.encode() for name, text in texts.items()}, WEIGHTS: blob}


def load_checkpoint(source: str | Path | PackedCheckpoint) -> tuple[Encoder, Card]:
    """Read a folder or a blob back; anything amiss is one clear error."""
    folder: Path | zipfile.Path = _unpacked(source) if isinstance(source, PackedCheckpoint) else Path(source)
    config = _read_config(folder)
    blob = _read_weights(folder, config)
    try:
        encoder = Encoder(ModelConfig(**config["model"]))
        encoder.load_state_dict(_weights(load(blob), config["format"]))
        card = Card(**config["card"])
    except GeoPatchError as error:
        raise CheckpointError(f"{folder / CONFIG} holds a setting this version does not know: {error}") from error
    except (SafetensorError, RuntimeError, TypeError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{folder} does not hold what its config says ({reason}); save the model again"
        ) from error
    return encoder.eval(), card


def load_moments(folder: str | Path) -> KernelFit | None:
    """What the fixed half of a saved model was solved from; None where that was not saved."""
    path = Path(folder) / MOMENTS
    if not path.is_file():
        return None
    try:
        return KernelFit.from_tensors(load(path.read_bytes()))
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); save the model again") from error


def _weights(weights: dict[str, Tensor], format: int) -> dict[str, Tensor]:
    """By the names of today."""
    if format == FORMAT:
        return weights
    return {name if name in ("level", "spread") else LEARNED + name: value for name, value in weights.items()}


def _unpacked(packed: PackedCheckpoint) -> zipfile.Path:
    """The root of the archive, which is read as a folder is."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(packed.blob))
        if archive.testzip() is not None:
            raise zipfile.BadZipFile("a checksum is wrong")
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{packed} is damaged; restore it from a copy") from error
    archive.filename = str(packed)  # what its paths are called in messages
    return zipfile.Path(archive)


def check_replaceable(folder: str | Path) -> None:
    """Overwriting replaces a folder with all that is in it, so that must be a model and nothing else."""
    inside = {file.name for file in Path(folder).iterdir()} if Path(folder).is_dir() else set()
    others = sorted(inside - {CONFIG, WEIGHTS, CARD, MOMENTS})
    if others:
        raise CheckpointError(f"{folder} holds {others[0]!r}, which is no part of a model; give another folder")


def digest(encoder: Encoder) -> str:
    """One short name for config and weights together: two encoders with the same digest give the same vectors.

    Parameters
    ----------
    encoder : Encoder
        A trained encoder, such as `GeoPatch.encoder_`.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    config, weights = named_settings(encoder.config), encoder.state_dict()
    if not encoder.config.has_kernels:  # named as version 0.1 did, so that its galleries know their encoder
        config = {name: value for name, value in config.items() if name not in OF_KERNELS}
        weights = {name.removeprefix(LEARNED): value for name, value in weights.items()}
    sha = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, value in sorted(weights.items()):
        sha.update(name.encode())
        sha.update(value.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


def named_settings(config: ModelConfig) -> dict[str, Any]:
    """The settings that name an encoder: a setting that came later counts where it is used."""
    settings = dataclasses.asdict(config)
    return {name: value for name, value in settings.items() if name not in LATER or value != getattr(ModelConfig, name)}


def _read_config(folder: Path | zipfile.Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        format = config["format"]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(f"{folder} is no model folder: it has no {CONFIG}; give one that `save` wrote") from error
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, OSError) as error:
        raise CheckpointError(f"{folder / CONFIG} is not readable as a model config; save the model again") from error
    if format == 1:
        config["model"] = {"halves": ("learned",), **config["model"]}
    elif format != FORMAT:
        raise CheckpointError(
            f"{folder} has model format {format}, this version ({__version__}) reads {FORMAT}; upgrade geopatch-ts"
        )
    return dict(config)


def _read_weights(folder: Path | zipfile.Path, config: dict[str, Any]) -> bytes:
    try:
        blob = (folder / WEIGHTS).read_bytes()
    except OSError as error:
        raise CheckpointError(f"{folder} has no readable {WEIGHTS}; copy the whole folder again") from error
    if hashlib.sha256(blob).hexdigest() != config.get("digest"):
        raise CheckpointError(
            f"{folder / WEIGHTS} is truncated or changed ({len(blob)} bytes, wrong digest); copy the whole folder again"
        )
    return blob


def _evidence(choice: dict[str, Any]) -> str:
    """`leave-groups-out, ...: keep 0.812, zscore 0.873 (22 groups, 1200 queries)`."""
    scores = ", ".join(f"{name} {value:.3f}" for name, value in choice["recall@1"].items())
    where = "in other groups" if choice["across_groups"] else "among the groups left out"
    return f"{choice['by']}: {scores} ({choice['groups']} groups, {choice['queries']} queries, searched {where})"


def _card_text(config: ModelConfig, card: Card) -> str:
    rows = [("halves", ", ".join(config.halves)), ("channels", config.channels), ("amplitude", config.amplitude)]
    rows += [(name, value) for name, value in card.data.items() if name not in ("channels", "labels")]
    rows += [("channel names", ", ".join(card.data["channels"]))] if card.data.get("channels") else []
    rows += card.scores.items()
    rows += [(f"{name} chosen by", _evidence(choice)) for name, choice in card.choices.items()]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        f"# GeoPatch encoder\n\nMade by geopatch-ts {card.version}. Load it with `GeoPatch.load(folder)`.\n\n"
        f"| | |\n|---|---|\n{table}\n\nAll settings stand in `{CONFIG}`.\n"
    )
