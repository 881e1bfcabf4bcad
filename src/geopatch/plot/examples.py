"""Stress examples: one window under each stress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from geopatch.config import PatchConfig
from geopatch.evaluate.noise import DescriptorSpread, GeometryNoise
from geopatch.evaluate.stress import GEOMETRY_NOISE, KINDS, SHUFFLE, SPAN_MASK, STRESSES, Stress, chunk_order
from geopatch.patches import patchify, stack
from geopatch.plot.canvas import FAINT, QUERY, RECORDED, RIGHT, WRONG, draw, pyplot, tidy, title_of, unit
from geopatch.signal import Signal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
TITLES = {
    "warp-queries": "warp, queries only",
    "warp-both-alike": "warp, both alike",
    "warp-both-differently": "warp, both differently",
    "geometry-noise": "geometry noise",
    "span-mask": "span not measured",
    "shuffle": "another order",
    "speed": "six speeds",
    "zoom": "zoom",
    "squeeze": "squeeze",
    "shift": "shift",
    "noise": "white noise",
    "wander": "wandering level",
    "gain": "gain",
    "drop": "span bridged by a line",
}


def stress_examples(signal: Signal) -> Figure:
    """Draw a window under each stress at its default strength, over the window as it was recorded.

    Parameters
    ----------
    signal : Signal
        The window.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    figure: Figure = pyplot().figure(figsize=(11, 5.6), layout="constrained")
    grid = figure.add_gridspec(2, COLUMNS)
    for place, name in enumerate(STRESSES[1:]):
        axes = figure.add_subplot(grid[place // COLUMNS, place % COLUMNS])
        stress = Stress(name, KINDS[name].default)
        (_draw_noise if name == GEOMETRY_NOISE else _draw_stress)(axes, signal, stress)
        axes.set_title(f"{TITLES[name]} ({stress.strength:g})", loc="left", fontsize=9, color=QUERY)
    legend = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(legend.values(), legend, loc="outside lower right", ncols=len(legend), fontsize=8, frameon=False)
    figure.suptitle(f"One window under each stress: {title_of(signal)}", x=0.01, ha="left", fontsize=12)
    figure.supxlabel("seconds from the start of the window", fontsize=9)
    return figure


def _draw_stress(axes: Axes, signal: Signal, stress: Stress) -> None:
    (query,), (gallery,) = stress.queries([signal]), stress.gallery([signal])
    level = float(np.nanmedian(signal.values[:, 0]))
    draw(axes, signal, FAINT, 1.4, "as recorded", level=level)
    if stress.name == SHUFFLE:
        _draw_chunks(axes, query, int(stress.strength), level)
    else:
        draw(axes, query, RIGHT, 1.6, "query", level=level)
    if gallery is not signal:
        draw(axes, gallery, WRONG, 1.2, "gallery", "--", level=level)
    if stress.name == SPAN_MASK:
        _shade_lost(axes, signal, query)
    axes.set_ylabel(unit(signal), fontsize=8)


def _shade_lost(axes: Axes, signal: Signal, query: Signal) -> None:
    lost = np.flatnonzero((signal.observed & ~query.observed).any(1)) / signal.clock_hz
    if len(lost):
        axes.axvspan(lost[0], lost[-1], color=FAINT, alpha=0.3, linewidth=0)


def _draw_chunks(axes: Axes, query: Signal, chunks: int, level: float) -> None:
    """Each chunk where it lies now, with its number in the order that was recorded."""
    parts = np.array_split(np.arange(query.length), max(min(chunks, query.length), 1))
    order = chunk_order(len(parts))
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.08 * (high - low), high)  # room for the numbers
    edges = np.cumsum([0, *(len(parts[n]) for n in order)])
    for n, start, stop in zip(order, edges, edges[1:], strict=False):
        time_s = np.arange(start, stop) / query.clock_hz
        axes.plot(time_s, query.values[start:stop, 0] - level, color=RIGHT, linewidth=1.6)
        axes.axvline(stop / query.clock_hz, color=FAINT, linewidth=0.7, linestyle=":")
        place = ((start + stop) / 2 / query.clock_hz, 0.02)
        axes.annotate(str(n + 1), place, xycoords=("data", "axes fraction"), ha="center", fontsize=7, color=RECORDED)


def _draw_noise(axes: Axes, signal: Signal, stress: Stress) -> None:
    """The slope of each patch: what the descriptors said, and what they say to a query under noise."""
    batch, seen = patchify(stack([signal]), PatchConfig()), DescriptorSpread()
    seen(batch, 0)
    noisy = GeometryNoise(stress.strength, seen.spread)(batch, 0)
    time_s = batch.scaffold.centres[batch.valid].numpy() / signal.clock_hz
    for drawn, colour, name in ((batch, FAINT, "as recorded"), (noisy, RIGHT, "query")):
        slope = drawn.geometry.descriptors[batch.valid][:, 0].numpy()
        axes.plot(time_s, slope, color=colour, linewidth=1.2, marker="o", markersize=3.5, label=name)
    axes.set_ylabel("slope of each patch, log(1 + v)", fontsize=8)
    tidy(axes)
