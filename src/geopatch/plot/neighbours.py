"""A query and its hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from geopatch.plot.canvas import FAINT, QUERY, RECORDED, RIGHT, WRONG, draw, pyplot, title_of, unit
from geopatch.signal import Signal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
MOST_CHANNELS = 6  # that are drawn
LONGEST_LABEL = 32  # characters that fit above a panel
AXIS = "seconds from the start of the window"


@dataclass(frozen=True, eq=False)
class Shown:
    """A hit as it is drawn.

    Parameters
    ----------
    signal : Signal
        Its values.
    label : str
        What stands above it.
    score : float
        Its score.
    right : bool
        Whether it is drawn as right or as wrong.
    speed : float, optional
        How many times faster than the query it goes: it is stretched so much. None: it is drawn as it is.
    """

    signal: Signal
    label: str
    score: float
    right: bool
    speed: float | None = None


def hits(query: Signal, label: str, shown: Sequence[Shown], title: str, recorded: Signal | None = None) -> Figure:
    """Draw a query on top and its hits below, each over the query: green where it is right, else red.

    Channels stand one above the other, each with its name and unit.

    Parameters
    ----------
    query : Signal
        What was searched by.
    label : str
        What stands above it.
    shown : sequence of Shown
        The hits, best first.
    title : str
        What stands above all.
    recorded : Signal, optional
        The query before its time was warped; it is drawn dashed.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    rows, channels = -(-len(shown) // COLUMNS), min(query.values.shape[1], MOST_CHANNELS)
    height = (1.25 + rows) * (1.0 + 0.9 * channels)
    figure: Figure = pyplot().figure(figsize=(11, 0.5 + height), layout="constrained")
    grid = figure.add_gridspec(rows + 1, COLUMNS, height_ratios=[1.25] + [1.0] * rows)
    top = _panel(figure, grid[0, :], channels)
    for channel, axes in enumerate(top):
        draw(axes, query, QUERY, 1.6, "as searched", channel=channel)
        if recorded is not None:
            draw(axes, recorded, RECORDED, 1.0, "as recorded", "--", channel=channel)
        if query.channels:
            axes.set_ylabel(unit(query, channel), fontsize=8)
    if recorded is not None:
        top[0].legend(loc="upper right", fontsize=8, frameon=False)
    top[0].set_title(f"query: {title_of(query)} · {label}", loc="left", fontsize=11, fontweight="bold", color=QUERY)
    for place, hit in enumerate(shown):
        colour = RIGHT if hit.right else WRONG
        panel = _panel(figure, grid[1 + place // COLUMNS, place % COLUMNS], channels, top)
        for channel, axes in enumerate(panel[: hit.signal.values.shape[1]]):
            draw(axes, query, FAINT, 2.2 if hit.speed else 1.0, channel=channel)
            draw(axes, hit.signal, colour, 1.4, channel=channel, speed=hit.speed or 1.0)
            if place % COLUMNS:
                axes.tick_params(labelleft=False)
            elif query.channels:
                axes.set_ylabel(unit(query, channel), fontsize=8)
        panel[0].set_title(_heading(place + 1, hit), loc="left", fontsize=9, color=colour)
    left_out = query.values.shape[1] - channels
    more = f"; {left_out} more channels are not drawn" if left_out else ""
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    axis = "seconds of the query; hits are stretched by their speed" if any(hit.speed for hit in shown) else AXIS
    figure.supxlabel(f"{axis}{more}", fontsize=9)
    return figure


def _heading(rank: int, hit: Shown) -> str:
    label = hit.label if len(hit.label) <= LONGEST_LABEL else f"{hit.label[:LONGEST_LABEL]}..."
    if hit.speed is None:
        return f"{rank}. {title_of(hit.signal)} · {label} · {hit.score:.2f}"
    where = title_of(replace(hit.signal, start_s=round(hit.signal.start_s, 2)))
    return (
        f"{rank}. {where} · {label} · {hit.score:.2f}\n    lasts {hit.signal.duration_s:.2f} s: speed {hit.speed:.2f}"
    )


def _panel(figure: Figure, place: Any, channels: int, like: Sequence[Axes] = ()) -> list[Axes]:
    """Axes for each channel, one above the other, with the same time axis and the scales of others."""
    grid, panel = place.subgridspec(channels, 1, hspace=0.05), list[Any]()
    for channel in range(channels):
        shared = {"sharex": panel[0] if panel else None, "sharey": like[channel] if like else None}
        panel.append(figure.add_subplot(grid[channel, 0], **shared))
        panel[channel].tick_params(labelbottom=channel == channels - 1)
    return panel
