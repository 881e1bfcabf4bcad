"""HTML for notebooks: a small table, and a signal as an inline SVG line. Nothing here needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT = 120, 24  # pixels of a sparkline
MAX_ROWS = 10  # of a table; more are counted in its last line


class Html(str):
    """Markup that a table takes as it is; any other text is escaped."""


def table(rows: Iterable[Mapping[str, object]], caption: str = "") -> Html:
    """Rows as an HTML table whose columns are the keys of the first row; at most `MAX_ROWS` of them are shown."""
    shown = list(rows)
    columns = list(shown[0]) if shown else []
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in columns)}</tr>" for row in shown[:MAX_ROWS]
    )
    more = f"<p>... and {len(shown) - MAX_ROWS} more</p>" if len(shown) > MAX_ROWS else ""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return Html(f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}")


def sparkline(values: npt.ArrayLike) -> Html:
    """The first channel of values (T,) or (T, C) as a line of `WIDTH` x `HEIGHT` pixels, with breaks at NaN."""
    series = np.asarray(values, dtype=np.float64)
    series = series.reshape(len(series), -1)[:, 0]
    bins = [part for part in np.array_split(series, min(WIDTH, len(series))) if part.size]
    points = [(n, extreme) for n, part in enumerate(bins) for extreme in _extremes(part)]
    finite = np.asarray([value for _, value in points if np.isfinite(value)])
    low, span = (finite.min(), np.ptp(finite) or 1.0) if finite.size else (0.0, 1.0)
    path, pen = [], "M"
    for n, value in points:
        if not np.isfinite(value):
            pen = "M"
            continue
        x, y = n * WIDTH / max(len(bins) - 1, 1), 1 + (HEIGHT - 2) * (1 - (value - low) / span)
        path.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return Html(
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'<path d="{" ".join(path)}" fill="none" stroke="currentColor"/></svg>'
    )


def _extremes(part: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Least and greatest value of a bin in their order, so that no spike is lost; NaN where nothing was measured."""
    known = part[np.isfinite(part)]
    if not known.size:
        return (float("nan"),)
    low, high = int(known.argmin()), int(known.argmax())
    return tuple(float(known[place]) for place in sorted({low, high}))


def _cell(value: object) -> str:
    if isinstance(value, Html):
        return value
    return escape(f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value))
