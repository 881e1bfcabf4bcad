"""A folder of recordings as people have them: tables with times in several forms, and a motif planted at many speeds.

`write_folder(folder)` makes 40 files of ten minutes; the tests make fewer and shorter ones with the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars

RATE_HZ = 50.0
OTHER_RATE_HZ = 100.0
CHANNELS = ("x", "y", "z")
MOTIF_S = 4.0  # at speed 1
SPEEDS = (0.6, 1.6)
GAP_S = 2.0  # between two copies, and between a copy and the ends of a file
BEGIN = datetime(2026, 5, 1, 12)
QUERY_FILE, QUERY_S = 7, 190.0  # what happens in file 7 between 12:03:10 and 12:03:14


@dataclass(frozen=True)
class Copy:
    """A planted motif."""

    record: str
    start_s: float
    stop_s: float


@dataclass(frozen=True)
class Planted:
    """Where the motif is, and where to search from."""

    copies: tuple[Copy, ...]
    query: Copy

    def hit(self, record: str, start_s: float, stop_s: float) -> int | None:
        """The number of the copy that a window overlaps by half of the shorter of the two; None where there is none."""
        for n, copy in enumerate(self.copies):
            shared = min(stop_s, copy.stop_s) - max(start_s, copy.start_s)
            if copy.record == record and shared >= 0.5 * min(stop_s - start_s, copy.stop_s - copy.start_s):
                return n
        return None


def write_folder(folder: Path, files: int = 40, duration_s: float = 600.0, copies: int = 169) -> Planted:
    """Tables rec00.csv, rec01.csv, ... of three channels with copies of the motif among other events and noise."""
    folder.mkdir(parents=True, exist_ok=True)
    query_file, query_s = min(QUERY_FILE, files - 1), min(QUERY_S, duration_s - MOTIF_S - GAP_S)
    query = Copy(f"rec{query_file:02d}", query_s, query_s + MOTIF_S)
    draw = np.random.default_rng(16)
    planted: list[Copy] = []
    for n in range(files):
        name = f"rec{n:02d}"
        count = copies * (n + 1) // files - copies * n // files
        first = [query] if n == query_file else []
        places = _places(draw, count - len(first), duration_s, first)
        own = [*first, *(Copy(name, start_s, start_s + length_s) for start_s, length_s in places)]
        planted += own
        rate_hz = OTHER_RATE_HZ if n == files * 26 // 40 else RATE_HZ
        values = _values(draw, own, duration_s, rate_hz)
        _write(folder / f"{name}.csv", values, rate_hz, _form(n, files, query_file))
    return Planted(tuple(planted), query)


def _form(n: int, files: int, query_file: int) -> str:
    """How a file writes its times."""
    special = {files * 12 // 40: "none", files * 19 // 40: "holes"}
    forms = ("seconds", "iso", "epoch")
    return "iso" if n == query_file else special.get(n, forms[n % 3])


def _places(
    draw: np.random.Generator, count: int, duration_s: float, taken: Sequence[Copy]
) -> list[tuple[float, float]]:
    """Starts and lengths of copies that keep apart from each other."""
    places = [(copy.start_s, copy.stop_s - copy.start_s) for copy in taken]
    kept = len(places)
    while len(places) < count + kept:
        length_s = MOTIF_S / float(draw.uniform(*SPEEDS))
        start_s = float(draw.uniform(GAP_S, duration_s - length_s - GAP_S))
        if all(start_s > at + other + GAP_S or at > start_s + length_s + GAP_S for at, other in places):
            places.append((start_s, length_s))
    return places[kept:]


def motif(phase: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The values (N, 3) at phases from 0 to 1."""
    hump = np.sin(np.pi * phase) ** 2
    return np.stack(
        [
            hump * np.sin(2 * np.pi * (2 * phase + 1.5 * phase**2)),
            np.sin(np.pi * phase) * (1 - 4 * (phase - 0.5)) * np.exp(-(((phase - 0.35) / 0.2) ** 2)) * 1.5,
            np.exp(-(((phase - 0.7) / 0.08) ** 2)) - np.exp(-(((phase - 0.3) / 0.08) ** 2)),
        ],
        axis=1,
    )


def _other(draw: np.random.Generator, phase: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """An event that is none of the motif: the same bandwidth, other shapes."""
    hump, turns = np.sin(np.pi * phase) ** 2, draw.uniform(0.5, 5.0, size=3)
    waves = [hump * np.sin(2 * np.pi * (turn * phase + draw.uniform())) for turn in turns]
    return np.stack(waves, axis=1) * draw.uniform(0.5, 1.5, size=3)


def _values(
    draw: np.random.Generator, copies: Sequence[Copy], duration_s: float, rate_hz: float
) -> npt.NDArray[np.float64]:
    samples = round(duration_s * rate_hz)
    values = _noise(draw, samples, rate_hz)
    events = [(copy.start_s, copy.stop_s - copy.start_s, True) for copy in copies]
    events += [(start_s, length_s, False) for start_s, length_s in _places(draw, len(copies), duration_s, copies)]
    for start_s, length_s, own in events:
        at = np.arange(round(start_s * rate_hz), round((start_s + length_s) * rate_hz))
        phase = (at / rate_hz - start_s) / length_s
        values[at] += draw.uniform(0.8, 1.25) * (motif(phase) if own else _other(draw, phase))
    return values


def _noise(draw: np.random.Generator, samples: int, rate_hz: float) -> npt.NDArray[np.float64]:
    """White noise, and a level that wanders over minutes."""
    knots = max(int(samples / rate_hz / 10), 2)
    level = [np.interp(np.linspace(0, knots - 1, samples), np.arange(knots), draw.normal(size=knots)) for _ in CHANNELS]
    return 0.08 * draw.normal(size=(samples, 3)) + 0.3 * np.stack(level, axis=1)


def _write(path: Path, values: npt.NDArray[np.float64], rate_hz: float, form: str) -> None:
    seconds = np.arange(len(values)) / rate_hz
    columns: dict[str, object] = {}
    if form in ("seconds", "holes"):
        columns["time"] = seconds.round(4)
    elif form == "iso":
        columns["time"] = [(BEGIN + timedelta(seconds=float(t))).isoformat(timespec="milliseconds") for t in seconds]
    elif form == "epoch":
        columns["timestamp"] = (seconds * 1000).round().astype(np.int64) + 1_777_636_800_000
    frame = polars.DataFrame({**columns, **{name: values[:, n].round(4) for n, name in enumerate(CHANNELS)}})
    if form == "holes":  # a second is missing in every half minute
        frame = frame.filter(polars.Series((seconds % 30 > 1.0) | (seconds < 5)))
    frame.write_csv(path)
