"""A query with the hits of a search, and what met what in one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import GalleryError
from geopatch.plot.canvas import QUERY, draw, pyplot, title_of, unit
from geopatch.plot.neighbours import Shown, hits
from geopatch.search.explain import Explanation, Match
from geopatch.search.hit import Hit
from geopatch.signal import Signal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PATH_BANDS = 40  # pieces that a path is drawn in


def search_hits(query: Signal, ranked: Sequence[Hit], title: str) -> Figure:
    """Draw a query and the hits of a search, as `hits` does; no hit is called right or wrong.

    Parameters
    ----------
    query : Signal
        What was searched by.
    ranked : sequence of Hit
        The hits, with their values.
    title : str
        What stands above.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    GalleryError
        When a hit has no values.
    """
    shown = [Shown(_window(hit), _label(hit), hit.score, True) for hit in ranked]
    return hits(query, f"{round(query.duration_s, 2):g} s", shown, title)


def alignment(query: Signal, hit: Hit) -> Figure:
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
    figure: Figure = pyplot().figure(figsize=(11, 5.4), layout="constrained")
    top, between, bottom = figure.subplots(3, 1, sharex=True, height_ratios=[1.0, 0.9, 1.0])
    bands = _bands_of(explained)
    _ribbons(between, bands, query.duration_s)
    _shade(top, {band.query_s: band for band in bands}, query.duration_s)
    _shade(bottom, {band.hit_s: band for band in bands}, query.duration_s)
    draw(top, query, QUERY, 1.6)
    draw(bottom, window, QUERY, 1.6)
    top.set_xlim(0, max(query.duration_s, window.duration_s))
    top.tick_params(labelbottom=False)
    between.set_ylim(0, 1)
    between.axis("off")
    top.set_title(f"query: {title_of(query)}", loc="left", fontsize=11, fontweight="bold", color=QUERY)
    heading = f"hit {hit.rank}: {title_of(window)} · {hit.scorer} {hit.score:.3f} · cosine {hit.cosine:.3f}"
    bottom.set_title(heading, loc="left", fontsize=11, fontweight="bold", color=QUERY)
    if query.channels:
        figure.supylabel(unit(query), fontsize=9)
    figure.supxlabel("seconds from the start of the window", fontsize=9)
    return figure


@dataclass(frozen=True)
class _Band:
    """A part of the query and the part of the hit that it met; `strength` 1 is the best of all."""

    query_s: tuple[float, float]
    hit_s: tuple[float, float]
    strength: float


def _bands_of(explained: Explanation) -> list[_Band]:
    """Weakest first, so that the best is drawn over all others."""
    if explained.path_s is not None:
        return _path_bands(explained.path_s)
    matches = _side_by_side(explained.matches) if explained.ordered else explained.matches
    ranked = sorted(matches, key=lambda match: match.similarity)
    low, high = (ranked[0].similarity, ranked[-1].similarity) if ranked else (0.0, 0.0)
    return [_Band(one.query_s, one.hit_s, (one.similarity - low) / max(high - low, 1e-6)) for one in ranked]


def _side_by_side(matches: Sequence[Match]) -> list[Match]:
    """The steps of a path, each from halfway to the one before it to halfway to the one after it."""
    if not matches:
        return []
    patches = np.asarray([(match.query_s, match.hit_s) for match in matches])  # (P, 2, 2)
    middles = patches.mean(2)
    edges = np.concatenate([patches[:1, :, 0], (middles[:-1] + middles[1:]) / 2, patches[-1:, :, 1]]).tolist()
    spans = zip(matches, edges[:-1], edges[1:], strict=True)
    return [replace(match, query_s=(a[0], b[0]), hit_s=(a[1], b[1])) for match, a, b in spans]


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


def _window(hit: Hit) -> Signal:
    if hit.window is None:
        raise GalleryError(f"the gallery keeps no values of {hit.id!r} to draw; add windows with keep_windows=True")
    return hit.window


def _label(hit: Hit) -> str:
    return ", ".join(str(value) for value in hit.metadata.values()) or f"{round(hit.stop_s - hit.start_s, 2):g} s"
