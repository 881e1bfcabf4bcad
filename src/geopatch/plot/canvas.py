"""What all figures share: colours, one line of a signal, and how a figure is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geopatch.errors import GeoPatchError, MissingExtraError
from geopatch.signal import Signal
from geopatch.storage import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUERY, RIGHT, WRONG = "#1b1b1e", "#0b7a75", "#c8553d"
RECORDED, FAINT = "#8a8a96", "#b9b9c2"
SUFFIXES = ("png", "svg")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG, by its ending, and let go of it. The same figure gives the same file."""
    kind, plt = Path(path).suffix.lstrip("."), pyplot()
    undated = {"Date": None} if kind == "svg" else None
    with atomic_file(Path(path)) as partial, plt.rc_context({"svg.hashsalt": "geopatch"}):
        figure.savefig(partial, dpi=130, format=kind, metadata=undated)
    plt.close(figure)


def save_all(figure: Figure, stem: str | Path) -> list[Path]:
    """Write a figure as PNG and as SVG into a folder that is made where it lacks."""
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
    """Refuse before the work, not after it, to draw without the library that draws."""
    pyplot()


def draw(
    axes: Axes, signal: Signal, colour: str, width: float, name: str = "", style: str = "-", level: float | None = None
) -> None:
    """The first channel over seconds, centred on its median or on a given level."""
    middle = np.nanmedian(signal.values[:, 0]) if level is None else level
    time_s = np.arange(signal.length) / signal.clock_hz
    axes.plot(time_s, signal.values[:, 0] - middle, color=colour, linewidth=width, linestyle=style, label=name)
    tidy(axes)


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def title_of(signal: Signal) -> str:
    """A window by its record and start, any other signal by its id."""
    return f"{signal.record}, {signal.start_s:g} s" if signal.record else signal.id


def unit(signal: Signal) -> str:
    """What the first channel is called."""
    return f"{signal.channels[0] if signal.channels else 'value'}, centred"


def pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing") from error
    mpl.use("Agg", force=False)
    import matplotlib.pyplot as plt

    return plt
