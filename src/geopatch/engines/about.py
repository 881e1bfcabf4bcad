"""What a gallery knows of the encoder that its vectors come from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geopatch.errors import GalleryError
from geopatch.version import __version__

if TYPE_CHECKING:  # a gallery of entries that are encoded needs no torch
    from geopatch.estimator import GeoPatch

FORMAT = 1


@dataclass(frozen=True)
class Widths:
    """The sizes that all entries of a gallery share."""

    embedding: int  # D
    patches: int  # K
    token: int  # d


@dataclass(frozen=True)
class About:
    """Which encoder, the widths of its vectors, and the windows it was trained on."""

    encoder: str  # digest of config and weights
    widths: Widths
    patch_length: int
    rate_hz: float | None  # None: trained on signals whose rate was not known
    length: int  # samples in the longest training window

    @property
    def clock_hz(self) -> float:
        """Samples a second; where the rate is not known, a sample counts as a second."""
        return 1.0 if self.rate_hz is None else self.rate_hz

    def as_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, told: dict[str, Any], place: object) -> About:
        """What `as_dict` gave, from a gallery at `place`."""
        if told.get("format") != FORMAT:
            raise GalleryError(
                f"gallery {place} has format {told.get('format')}, this version ({__version__}) reads {FORMAT}; "
                "upgrade geopatch-ts"
            )
        fields = {name: value for name, value in told.items() if name != "format"}
        return cls(**{**fields, "widths": Widths(**fields["widths"])})


def about_model(model: GeoPatch) -> About:
    """What a gallery has to know of a fitted model."""
    from geopatch.model.checkpoint import digest

    config = model.encoder_.config
    return About(
        encoder=digest(model.encoder_),
        widths=Widths(config.embedding, config.max_patches, config.width),
        patch_length=config.patch_length,
        rate_hz=model.rate_hz_,
        length=int(model.card_.data["lengths"][1]),
    )
