"""What all figures share: colours, one line of a signal, and how a figure is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geopatch.errors import GeoPatchError, MissingExtraError
from geopatch.signal import Signal
from geopatch.storage import atomic_file
from geopatch.times import time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUERY, RIGHT, WRONG = "#1b1b1e", "#0b7a75", "#c8553d"
RECORDED, FAINT = "#8a8a96", "#b9b9c2"
SUFFIXES = ("png", "svg")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure and close it. The same figure gives the same file.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    path : path
        The file; its ending, .png or .svg, says in which form.
    """
    kind, plt = Path(path).suffix.lstrip("."), pyplot()
    undated = {"Date": None} if kind == "svg" else None
    with atomic_file(Path(path)) as partial, plt.rc_context({"svg.hashsalt": "geopatch"}):
        figure.savefig(partial, dpi=130, format=kind, metadata=undated)
    plt.close(figure)


def save_all(figure: Figure, stem: str | Path) -> list[Path]:
    """Write a figure as PNG and as SVG, and close it.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    stem : path
        The files without their endings; a folder that lacks is made.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    GeoPatchError
        When the folder cannot be made.
    """
    stem = Path(stem)
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GeoPatchError(f"cannot write {stem}: {error.strerror}; give another folder") from error
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in SUFFIXES]
    for path in paths:
        save(figure, path)
    return paths


def check_installed() -> None:
    """Refuse before the work, not after it, to draw without the library that draws.

    Raises
    ------
    MissingExtraError
        When matplotlib is not installed.
    """
    pyplot()


def draw(
    axes: Axes,
    signal: Signal,
    colour: str,
    width: float,
    name: str = "",
    style: str = "-",
    level: float | None = None,
    channel: int = 0,
    speed: float = 1.0,
) -> None:
    """A channel over seconds, centred on its median or on a given level; nothing where it was never measured.

    With a speed, its seconds are those of something that goes so many times slower.
    """
    values = signal.values[:, channel]
    known = values[np.isfinite(values)]
    middle = level if level is not None else np.median(known) if len(known) else 0.0
    time_s = np.arange(signal.length) / signal.clock_hz * speed
    axes.plot(time_s, values - middle, color=colour, linewidth=width, linestyle=style, label=name)
    tidy(axes)


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def title_of(signal: Signal) -> str:
    """A window by its record, start and wall-clock time, any other signal by its id."""
    if not signal.record:
        return signal.id
    when = "" if signal.start_time is None else f" ({time_text(signal.start_time)})"
    return f"{signal.record}, {round(signal.start_s, 3):g} s{when}"


def unit(signal: Signal, channel: int = 0) -> str:
    """What a channel is called, with its unit where that is known."""
    name = signal.channels[channel] if signal.channels else "value"
    known = signal.units[channel] if signal.units else ""
    return f"{name} [{known}], centred" if known else f"{name}, centred"


def pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing") from error
    mpl.use("Agg", force=False)
    import matplotlib.pyplot as plt

    return plt
