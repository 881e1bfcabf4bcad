"""What a gallery holds: encoded windows as columns, each with its place, its metadata and, if kept, its values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About, Widths
from geopatch.errors import GalleryError
from geopatch.signal import Signal

if TYPE_CHECKING:
    from geopatch.encoding import Encoding

Value: TypeAlias = str | int | float | bool
Metadata: TypeAlias = Mapping[str, Value]
Channels: TypeAlias = tuple[str, ...]

PLACE_FIELDS = ("id", "record", "start_s", "stop_s")  # can be filtered like metadata, so metadata cannot use them
JOINERS = ("and", "or", "not")
LARGEST_INT = 2**53  # every engine holds whole numbers up to here exactly
UNFIT = re.compile("[\x00\ud800-\udfff]")  # zero bytes and lone surrogates
NAME = re.compile(r"[^\W\d][\w -]{0,62}")


@dataclass(frozen=True, eq=False)
class Entries:
    """N encoded windows as columns.

    Parameters
    ----------
    encoder : str
        Digest of the encoder that made them.
    ids : tuple of str
        The id of each window, no two alike.
    embedding : array of shape (N, D)
        Unit vectors.
    tokens : array of shape (N, K, d)
        Unit vectors of the patches, 0 where not valid.
    valid : array of shape (N, K)
        Which patches there are.
    patch_s : array of shape (N, K, 2)
        Start and stop of each patch, in seconds within the window.
    records : tuple of str
        The record that each window was cut from.
    start_s : array of shape (N,)
        Where in its record each window starts, in seconds.
    stop_s : array of shape (N,)
        Where in its record each window stops, in seconds.
    metadata : tuple of mapping
        Text, numbers and flags by name, to filter by.
    windows : tuple of Signal or None
        The raw windows; None where the values were not kept.
    channels : tuple of tuple of str, optional
        The channel names of each window, kept also where its values are not; by default those of `windows`.
    """

    encoder: str  # digest of the encoder that made them
    ids: tuple[str, ...]
    embedding: npt.NDArray[np.float32]  # (N, D), unit length
    tokens: npt.NDArray[np.float32]  # (N, K, d), 0 where not valid
    valid: npt.NDArray[np.bool_]  # (N, K)
    patch_s: npt.NDArray[np.float32]  # (N, K, 2), start and stop of each patch in seconds within the window
    records: tuple[str, ...]
    start_s: npt.NDArray[np.float64]  # (N,)
    stop_s: npt.NDArray[np.float64]  # (N,)
    metadata: tuple[Metadata, ...]
    windows: tuple[Signal | None, ...]  # None where the values were not kept
    channels: tuple[Channels, ...] = ()  # of each window, () where it has no names

    def __post_init__(self) -> None:
        if not self.channels:
            named = tuple(() if window is None else window.channels for window in self.windows)
            object.__setattr__(self, "channels", named)
        _check_shapes(self)
        _check_ids(self.ids)
        for record in self.records:
            check_text("record", record)
        if not all(np.isfinite(part).all() for part in (self.embedding, self.tokens, self.start_s, self.stop_s)):
            raise GalleryError("entries contain NaN or inf in embedding, tokens or times; encode the signals again")
        object.__setattr__(self, "metadata", tuple(checked_metadata(row) for row in self.metadata))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each id stands."""
        return {id: n for n, id in enumerate(self.ids)}

    @property
    def widths(self) -> Widths:
        """Sizes of the vectors."""
        return Widths(self.embedding.shape[1], self.tokens.shape[1], self.tokens.shape[2])

    def fields(self, n: int) -> dict[str, Value]:
        """List what a filter sees of one entry.

        Parameters
        ----------
        n : int
            Position of the entry.

        Returns
        -------
        dict
            Its id, record and times, and its metadata.
        """
        place = {"id": self.ids[n], "record": self.records[n]}
        return {**self.metadata[n], **place, "start_s": float(self.start_s[n]), "stop_s": float(self.stop_s[n])}

    def take(self, index: Sequence[int] | npt.NDArray[np.integer]) -> Entries:
        """Take some of the entries.

        Parameters
        ----------
        index : sequence of int
            Positions, in the order wanted.

        Returns
        -------
        Entries
            The entries at these positions.
        """
        rows = [int(n) for n in index]
        return Entries(
            self.encoder,
            tuple(self.ids[n] for n in rows),
            self.embedding[rows],
            self.tokens[rows],
            self.valid[rows],
            self.patch_s[rows],
            tuple(self.records[n] for n in rows),
            self.start_s[rows],
            self.stop_s[rows],
            tuple(self.metadata[n] for n in rows),
            tuple(self.windows[n] for n in rows),
            tuple(self.channels[n] for n in rows),
        )


def entries_from(
    encoding: Encoding,
    signals: Sequence[Signal],
    about: About,
    *,
    metadata: Sequence[Metadata] | None = None,
    keep_windows: bool = True,
) -> Entries:
    """Make entries of encoded signals.

    Parameters
    ----------
    encoding : Encoding
        What the model made of the signals.
    signals : sequence of Signal
        The signals, in the order of the encoding.
    about : About
        The encoder, from `about_model`.
    metadata : sequence of mapping, optional
        A row for each signal.
    keep_windows : bool, default=True
        Whether entries keep the values of their signals.

    Returns
    -------
    Entries
        One for each signal.

    Raises
    ------
    GalleryError
        When encoding, signals and metadata are not of one length and order.
    """
    if encoding.ids != tuple(signal.id for signal in signals):
        raise GalleryError(f"expected the {len(encoding.ids)} signals that were encoded, in order; got others")
    rows = [{}] * len(signals) if metadata is None else list(metadata)
    if len(rows) != len(signals):
        raise GalleryError(f"expected a row of metadata for each of {len(signals)} signals, got {len(rows)}")
    start_s = np.asarray([signal.start_s for signal in signals], dtype=np.float64)
    return Entries(
        about.encoder,
        encoding.ids,
        encoding.embedding,
        np.where(encoding.valid[..., None], encoding.tokens, np.float32(0)),
        encoding.valid,
        _patch_seconds(encoding, signals, about.patch_length),
        tuple(signal.record or signal.id for signal in signals),
        start_s,
        start_s + np.asarray([signal.duration_s for signal in signals], dtype=np.float64),
        tuple(rows),
        tuple(signals) if keep_windows else (None,) * len(signals),
        tuple(signal.channels for signal in signals),
    )


def with_vectors(entries: Entries, encoding: Encoding, signals: Sequence[Signal], about: About) -> Entries:
    """The same entries with what another encoder made of their windows, which are `signals`."""
    return replace(
        entries,
        encoder=about.encoder,
        embedding=encoding.embedding,
        tokens=np.where(encoding.valid[..., None], encoding.tokens, np.float32(0)),
        valid=encoding.valid,
        patch_s=_patch_seconds(encoding, signals, about.patch_length),
    )


def fitting_layout(channels: Channels, layouts: Sequence[Channels]) -> Channels | None:
    """The layout with the same names, in the same order if there is one; None where none has these names."""
    alike = [layout for layout in layouts if sorted(layout) == sorted(channels)]
    return channels if channels in alike else alike[0] if alike else None


class Checked(dict[str, Value]):
    """Metadata that was checked, and need not be again."""


def checked_metadata(row: Metadata) -> Checked:
    """Metadata as every engine can hold and filter it."""
    if isinstance(row, Checked):
        return row
    return Checked({_checked_name(name): checked_value(name, value) for name, value in row.items()})


def checked_value(name: str, value: Any) -> Value:
    """Text, a flag or a finite number; numpy's scalars become Python's."""
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, (str, bool, int, float)):
        raise GalleryError(f"{name!r} must be text, a number, true or false, got {type(value).__name__}")
    if isinstance(plain, float) and not math.isfinite(plain):
        raise GalleryError(f"{name!r} must be a finite number, got {plain}; leave out what is not known")
    if isinstance(plain, int) and abs(plain) > LARGEST_INT:
        raise GalleryError(f"{name!r} must lie within 2**53, got {plain}; write it as text")
    if isinstance(plain, str):
        check_text(name, plain)
    return plain


def check_text(what: str, text: str) -> None:
    """Text that every engine can hold: UTF-8 without zero bytes."""
    if UNFIT.search(text):
        raise GalleryError(f"{what!r} must be text without zero bytes and lone surrogates, got {text!r}")


def _patch_seconds(encoding: Encoding, signals: Sequence[Signal], patch_length: int) -> npt.NDArray[np.float32]:
    lengths = np.asarray([signal.length for signal in signals])[:, None]
    rates = np.asarray([signal.clock_hz for signal in signals])[:, None, None]
    stops = np.minimum(encoding.starts + patch_length, lengths)
    seconds = np.stack([encoding.starts, stops], axis=2) / rates
    return np.where(encoding.valid[..., None], seconds, 0).astype(np.float32)


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise GalleryError(f"expected a metadata name of letters, digits, _, - and spaces, got {name!r}")
    if name in (*PLACE_FIELDS, *JOINERS):
        raise GalleryError(f"metadata cannot be called {name!r}: that name has a meaning already; give another")
    return name


def _check_shapes(entries: Entries) -> None:
    count = len(entries.ids)
    if entries.embedding.ndim != 2 or entries.tokens.ndim != 3:
        raise GalleryError(
            f"expected embedding (N, D) and tokens (N, K, d), got {entries.embedding.shape} and {entries.tokens.shape}"
        )
    patches = entries.tokens.shape[1]
    shapes = {
        "embedding": (entries.embedding.shape[:1], (count,)),
        "tokens": (entries.tokens.shape[:1], (count,)),
        "valid": (entries.valid.shape, (count, patches)),
        "patch_s": (entries.patch_s.shape, (count, patches, 2)),
        "start_s": (entries.start_s.shape, (count,)),
        "stop_s": (entries.stop_s.shape, (count,)),
        **{name: ((len(getattr(entries, name)),), (count,)) for name in ("records", "metadata", "windows", "channels")},
    }
    for name, (came, expected) in shapes.items():
        if came != expected:
            raise GalleryError(f"entries: expected {name} of shape {expected} for {count} ids, got {came}")


def _check_ids(ids: Sequence[str]) -> None:
    seen: set[str] = set()
    for id in ids:
        if not isinstance(id, str) or not id:
            raise GalleryError(f"expected an id of at least one character, got {id!r}")
        check_text("id", id)
        if id in seen:
            raise GalleryError(f"id {id!r} stands twice among these entries; name each window once")
        seen.add(id)
