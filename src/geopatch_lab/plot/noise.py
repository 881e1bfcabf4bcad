"""Retrieval over the strength of noise in a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from geopatch.evaluate.rows import Row
from geopatch.plot.canvas import QUERY, RECORDED, pyplot, tidy
from geopatch.plot.curves import METRICS, point, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def noise_curve(by_snr_db: Mapping[float, Sequence[Row]], clean: Sequence[Row], title: str) -> Figure:
    """R@1 and mAP over the signal-to-noise ratio, a line for each scorer; dashed, the same without noise."""
    figure: Figure = pyplot().figure(figsize=(8.2, 3.6), layout="constrained")
    panels = figure.subplots(1, len(METRICS), squeeze=False)[0]
    for axes, metric in zip(panels, METRICS, strict=True):
        for scorer in dict.fromkeys(row.scorer for row in clean):
            _line(axes, by_snr_db, clean, scorer, metric)
        axes.set_xlabel("signal-to-noise ratio of the query, dB", fontsize=9)
        axes.set_ylabel(METRICS[metric], fontsize=9)
        axes.set_xticks(sorted(by_snr_db))
        axes.set_ylim(0, 1.02)
        axes.invert_xaxis()  # from clean to noisy, as one reads
        axes.grid(axis="y", color=RECORDED, alpha=0.25, linewidth=0.6)
        tidy(axes)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", ncols=len(labels), fontsize=8, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=QUERY)
    return figure


def _line(axes: Axes, by_snr_db: Mapping[float, Sequence[Row]], clean: Sequence[Row], scorer: str, metric: str) -> None:
    colour, marker = style(scorer)
    points = [
        point(snr_db, [row for row in by_snr_db[snr_db] if row.scorer == scorer], metric)
        for snr_db in sorted(by_snr_db)
    ]
    where = [one.strength for one in points]
    means, lows, highs = ([getattr(one, name) for one in points] for name in ("mean", "low", "high"))
    axes.plot(where, means, color=colour, marker=marker, markersize=4, linewidth=1.3, label=scorer)
    axes.fill_between(where, lows, highs, color=colour, alpha=0.15, linewidth=0)
    without = point(0.0, [row for row in clean if row.scorer == scorer], metric)
    axes.axhline(without.mean, color=colour, linewidth=0.8, linestyle="--", alpha=0.7)
