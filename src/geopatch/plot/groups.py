"""Windows that belong together: motifs over their members, anomalies over their nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geopatch.errors import GalleryError
from geopatch.plot.canvas import FAINT, RIGHT, draw, pyplot, unit
from geopatch.plot.neighbours import COLUMNS, MOST_CHANNELS
from geopatch.signal import Signal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class WindowGroup:
    """A window as it is drawn, over others.

    Parameters
    ----------
    label : str
        What stands above it.
    window : Signal
        Its values.
    others : sequence of Signal
        Those of the windows behind it.
    """

    label: str
    window: Signal
    others: Sequence[Signal]


def window_groups(groups: Sequence[WindowGroup], title: str) -> Figure:
    """Draw windows side by side, each over the others of its group, all channels.

    Parameters
    ----------
    groups : sequence of WindowGroup
        The windows, in the order in which they stand.
    title : str
        What stands above all.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    GalleryError
        When there is nothing to draw.
    """
    if not groups:
        raise GalleryError("there is nothing to draw: no window, or the gallery keeps no values")
    rows = -(-len(groups) // COLUMNS)
    channels = min(max(group.window.values.shape[1] for group in groups), MOST_CHANNELS)
    figure: Figure = pyplot().figure(figsize=(11, 0.5 + rows * (1.0 + 0.9 * channels)), layout="constrained")
    grid = figure.add_gridspec(rows, COLUMNS)
    for place, group in enumerate(groups):
        axes = _stacked(figure, grid[place // COLUMNS, place % COLUMNS], channels)
        for channel, one in enumerate(axes[: group.window.values.shape[1]]):
            for other in group.others:
                if channel < other.values.shape[1]:
                    draw(one, other, FAINT, 0.9, channel=channel)
            draw(one, group.window, RIGHT, 1.6, channel=channel)
            if group.window.channels:
                one.set_ylabel(unit(group.window, channel), fontsize=8)
        axes[0].set_title(group.label, loc="left", fontsize=9, color=RIGHT)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.supxlabel("seconds from the start of the window", fontsize=9)
    return figure


def _stacked(figure: Figure, place: Any, channels: int) -> list[Axes]:
    """Axes for each channel, one above the other, with the same time axis."""
    grid, made = place.subgridspec(channels, 1, hspace=0.05), list[Any]()
    for channel in range(channels):
        made.append(figure.add_subplot(grid[channel, 0], sharex=made[0] if made else None))
        made[channel].tick_params(labelbottom=channel == channels - 1)
    return made
