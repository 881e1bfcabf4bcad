"""What a gallery knows of the encoder that its vectors come from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geopatch.errors import GalleryError
from geopatch.version import __version__

if TYPE_CHECKING:  # a gallery of entries that are encoded needs no torch
    from geopatch.estimator import GeoPatch

FORMAT = 2


@dataclass(frozen=True)
class Widths:
    """The sizes that all entries of a gallery share.

    Parameters
    ----------
    embedding : int
        Numbers in an embedding, D.
    patches : int
        Tokens of a window, K; a shorter window has fewer that are valid.
    token : int
        Numbers in a token, d.
    """

    embedding: int  # D
    patches: int  # K
    token: int  # d


@dataclass(frozen=True)
class About:
    """Which encoder, the widths of its vectors, and the windows it was trained on.

    Parameters
    ----------
    encoder : str
        Digest of the encoder's config and weights.
    widths : Widths
        Sizes of embedding and tokens.
    patch_length : int
        Samples in a patch.
    rate_hz : float or None
        Samples a second of the training windows; None where that was not known.
    length : int
        Samples in the longest training window.
    channels : tuple of str, default=()
        Channel names in the order of the training windows; empty where they had none.
    rhythm : int, default=0
        Numbers of relative tempo at the end of each embedding.
    """

    encoder: str  # digest of config and weights
    widths: Widths
    patch_length: int
    rate_hz: float | None  # None: trained on signals whose rate was not known
    length: int  # samples in the longest training window
    channels: tuple[str, ...] = ()
    rhythm: int = 0

    @property
    def clock_hz(self) -> float:
        """Samples a second; where the rate is not known, a sample counts as a second."""
        return 1.0 if self.rate_hz is None else self.rate_hz

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a gallery's file.

        Returns
        -------
        dict
            The fields and the format of the gallery.
        """
        fields = dataclasses.asdict(self)
        if not self.rhythm:
            del fields["rhythm"]  # versions without relative tempo read these galleries, too
        return {"format": FORMAT, **fields}

    @classmethod
    def from_dict(cls, fields: dict[str, Any], place: object) -> About:
        """Read what `as_dict` wrote.

        Parameters
        ----------
        fields : dict
            The stored values.
        place : object
            Where the gallery is, for messages.

        Returns
        -------
        About
            The checked values.

        Raises
        ------
        GalleryError
            When the gallery has another format than this version reads.
        """
        if fields.get("format") == 1:
            raise GalleryError(
                f"gallery {place} has format 1 of an earlier version; run: geopatch gallery upgrade {place}"
            )
        if fields.get("format") != FORMAT:
            raise GalleryError(
                f"gallery {place} has format {fields.get('format')}, this version ({__version__}) reads {FORMAT}; "
                "upgrade geopatch-ts"
            )
        rest = {name: value for name, value in fields.items() if name != "format"}
        return cls(**{**rest, "widths": Widths(**rest["widths"]), "channels": tuple(rest["channels"])})


def check_encoder(about: About, encoder: str, what: str) -> None:
    """Refuse vectors of another encoder than the gallery's."""
    if encoder != about.encoder:
        raise GalleryError(
            f"this gallery holds vectors of the encoder {about.encoder}, {what} came from {encoder}; "
            "use the model it was made with, or create another gallery"
        )


def upgraded_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The stored values of format 1 as those of format 2; there, a rate of 1 Hz meant that it was not known."""
    rate_hz = fields["rate_hz"]
    return {**fields, "format": FORMAT, "rate_hz": None if rate_hz == 1 else rate_hz, "channels": []}


def about_model(model: GeoPatch) -> About:
    """Describe a fitted model to a gallery.

    Parameters
    ----------
    model : GeoPatch
        A fitted model.

    Returns
    -------
    About
        What a gallery of the model's vectors remembers of it.
    """
    from geopatch.model.checkpoint import digest

    config = model.encoder_.config
    return About(
        encoder=digest(model.encoder_),
        widths=Widths(config.embedding_width, config.patches, config.width),
        patch_length=config.patch_length,
        rate_hz=model.rate_hz_,
        length=int(model.card_.data["lengths"][1]),
        channels=tuple(getattr(model, "channels_", None) or ()),
        rhythm=config.rhythm_width,
    )
