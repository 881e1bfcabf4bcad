"""A query with the hits of a search, and what met what in one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from geopatch.errors import GalleryError
from geopatch.plot.canvas import QUERY, draw, pyplot, title_of, unit
from geopatch.plot.neighbours import MOST_CHANNELS, Shown, hits
from geopatch.signal import Signal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PATH_BANDS = 40  # pieces that a path is drawn in


class DrawnMatch(Protocol):
    """A patch of the query and the patch of the hit that it met, as far as drawing is concerned."""

    @property
    def query_s(self) -> tuple[float, float]: ...

    @property
    def hit_s(self) -> tuple[float, float]: ...

    @property
    def similarity(self) -> float: ...


class DrawnExplanation(Protocol):
    """What met what, as far as drawing is concerned."""

    @property
    def matches(self) -> Sequence[DrawnMatch]: ...

    @property
    def path_s(self) -> npt.NDArray[np.float64] | None: ...

    @property
    def ordered(self) -> bool: ...


class DrawnHit(Protocol):
    """A hit of a search, as far as drawing is concerned."""

    @property
    def id(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def start_s(self) -> float: ...

    @property
    def stop_s(self) -> float: ...

    @property
    def score(self) -> float: ...

    @property
    def scorer(self) -> str: ...

    @property
    def cosine(self) -> float: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def window(self) -> Signal | None: ...

    @property
    def query_window(self) -> Signal | None: ...

    @property
    def segment(self) -> Signal | None: ...

    @property
    def speed(self) -> float | None: ...

    def explain(self) -> DrawnExplanation: ...


def search_hits(query: Signal, ranked: Sequence[DrawnHit], title: str, *, aligned: bool = True) -> Figure:
    """Draw a query and the hits of a search, as `hits` does; no hit is called right or wrong.

    Hits that were moved to where the query fits best are drawn so, stretched onto the query.

    Parameters
    ----------
    query : Signal
        What was searched by.
    ranked : sequence of Hit
        The hits, with their values.
    title : str
        What stands above.
    aligned : bool, default=True
        Whether hits are moved and stretched; else the stored windows are drawn, at their own speed.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    GalleryError
        When a hit has no values.
    """
    shown = [
        Shown(_window(hit), _label(hit), hit.score, True)
        if hit.segment is None or not aligned
        else Shown(hit.segment, _label(hit), hit.score, True, hit.speed)
        for hit in ranked
    ]
    return hits(query, f"{round(query.duration_s, 2):g} s", shown, title)


def alignment(query: Signal, hit: DrawnHit) -> Figure:
    """The query above, the hit below, and between them what met what: ribbons from patch to patch, or a path.

    The path of dtw goes from sample to sample. That of `aligned` goes from patch to patch: its ribbons lie side by side
    without a gap, and narrow where one side waits for the other.

    A patch of the query has a colour by its time, and so has every ribbon that leaves it: where time was warped the
    rainbow is stretched, where patches were reordered it is broken. The denser a ribbon, the more alike its patches.

    Parameters
    ----------
    query : Signal
        What was searched by.
    hit : Hit
        The hit, with its values.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    GalleryError
        When the hit has no values.
    """
    window, explained = _window(hit), hit.explain()
    count = min(query.values.shape[1], window.values.shape[1], MOST_CHANNELS)
    figure: Figure = pyplot().figure(figsize=(11, 3.4 + 2.0 * count), layout="constrained")
    heights = [1.0] * count
    axes = figure.subplots(2 * count + 1, 1, sharex=True, height_ratios=[*heights, 0.9, *heights])
    top, between, bottom = axes[0], axes[count], axes[count + 1]
    bands = _bands_of(explained)
    _ribbons(between, bands, query.duration_s)
    for channel in range(count):
        above, below = axes[channel], axes[count + 1 + channel]
        _shade(above, {band.query_s: band for band in bands}, query.duration_s)
        _shade(below, {band.hit_s: band for band in bands}, query.duration_s)
        draw(above, query, QUERY, 1.6, channel=channel)
        draw(below, window, QUERY, 1.6, channel=channel)
        above.tick_params(labelbottom=False)
        for panel, drawn in ((above, query), (below, window)):
            if drawn.channels:
                panel.set_ylabel(unit(drawn, channel), fontsize=8)
    top.set_xlim(0, max(query.duration_s, window.duration_s))
    between.set_ylim(0, 1)
    between.axis("off")
    top.set_title(f"query: {title_of(query)}", loc="left", fontsize=11, fontweight="bold", color=QUERY)
    heading = f"hit {hit.rank}: {title_of(window)} · {hit.scorer} {hit.score:.3f} · cosine {hit.cosine:.3f}"
    bottom.set_title(heading, loc="left", fontsize=11, fontweight="bold", color=QUERY)
    figure.supxlabel("seconds from the start of the window", fontsize=9)
    return figure


@dataclass(frozen=True)
class _Band:
    """A part of the query and the part of the hit that it met; `strength` 1 is the best of all."""

    query_s: tuple[float, float]
    hit_s: tuple[float, float]
    strength: float


def _bands_of(explained: DrawnExplanation) -> list[_Band]:
    """Weakest first, so that the best is drawn over all others."""
    if explained.path_s is not None:
        return _path_bands(explained.path_s)
    spans = _side_by_side(explained.matches) if explained.ordered else _spans(explained.matches)
    alike = [match.similarity for match in explained.matches]
    low, high = (min(alike), max(alike)) if alike else (0.0, 0.0)
    bands = [_Band(*span, (one - low) / max(high - low, 1e-6)) for span, one in zip(spans, alike, strict=True)]
    return sorted(bands, key=lambda band: band.strength)


def _spans(matches: Sequence[DrawnMatch]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return [(match.query_s, match.hit_s) for match in matches]


def _side_by_side(matches: Sequence[DrawnMatch]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The steps of a path, each from halfway to the one before it to halfway to the one after it."""
    if not matches:
        return []
    patches = np.asarray(_spans(matches))  # (P, 2, 2)
    middles = patches.mean(2)
    edges = np.concatenate([patches[:1, :, 0], (middles[:-1] + middles[1:]) / 2, patches[-1:, :, 1]]).tolist()
    return [((a[0], b[0]), (a[1], b[1])) for a, b in pairwise(edges)]


def _path_bands(path_s: npt.NDArray[np.float64]) -> list[_Band]:
    cuts = np.unique(np.linspace(0, len(path_s) - 1, PATH_BANDS + 1).astype(int))
    ends = zip(path_s[cuts[:-1]].tolist(), path_s[cuts[1:]].tolist(), strict=True)
    return [_Band((first[0], last[0]), (first[1], last[1]), 0.7) for first, last in ends]


def _ribbons(axes: Axes, bands: Sequence[_Band], longest_s: float) -> None:
    rise = np.linspace(0, 1, 40)
    ease = rise * rise * (3 - 2 * rise)  # leaves and arrives upright
    for band in bands:
        left, right = (below + (above - below) * ease for above, below in zip(band.query_s, band.hit_s, strict=True))
        colour = _hue(band, longest_s)
        axes.fill_betweenx(rise, left, right, color=colour, alpha=0.08 + 0.52 * band.strength, linewidth=0.4)


def _shade(axes: Axes, bands: Mapping[tuple[float, float], _Band], longest_s: float) -> None:
    """Each part in the colour of the best that it met."""
    for span, band in bands.items():
        axes.axvspan(*span, color=_hue(band, longest_s), alpha=0.1 + 0.15 * band.strength, linewidth=0)


def _hue(band: _Band, longest_s: float) -> Any:
    return pyplot().get_cmap("turbo")(0.05 + 0.9 * (band.query_s[0] + band.query_s[1]) / 2 / longest_s)


def _window(hit: DrawnHit) -> Signal:
    if hit.window is None:
        raise GalleryError(f"the gallery keeps no values of {hit.id!r} to draw; add windows with keep_windows=True")
    return hit.window


def _label(hit: DrawnHit) -> str:
    return ", ".join(str(value) for value in hit.metadata.values()) or f"{round(hit.stop_s - hit.start_s, 2):g} s"
