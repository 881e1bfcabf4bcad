"""Windows on disk: stacks (N, T, C) that are mapped into memory, not read, and a manifest with one line a window."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from geopatch.data.collection import WindowSet
from geopatch.errors import DataError, SignalError, one_of
from geopatch.signal import LazySignals, Signal, rate_text
from geopatch.storage import atomic_folder

FORMAT = 2  # 1 wrote a rate that is not known as 1.0 Hz, and MITDB's record 114 with its leads exchanged
READABLE = (1, 2)
HEADER, MANIFEST = "cache.json", "manifest.jsonl"
STACKS = {"train": "train_windows.npy", "test": "val_windows.npy"}
PLAIN = np.dtype("<f4")
CHUNK_BYTES = 1 << 20

Targets = Mapping[str, str]
Window = tuple[Signal, Targets]


@dataclass(frozen=True)
class CacheHeader:
    """What a cache is: of which source and settings, and the size and digest of each of its files."""

    name: str
    source: str  # digest of the files it was made from
    settings: Mapping[str, Any]
    rate_hz: float | None
    channels: tuple[str, ...]
    files: Mapping[str, tuple[int, str]]
    format: int = FORMAT


@dataclass(frozen=True, eq=False)
class Manifest:
    """The columns of one split's lines."""

    ids: list[str]
    records: list[str]
    start_s: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    targets: Mapping[str, npt.NDArray[np.str_]]
    anchors: list[npt.NDArray[np.float64] | None]


class CachedSignals(LazySignals):
    """The windows of one split; each is read from disk when it is used."""

    def __init__(self, stack: npt.NDArray[np.float32], manifest: Manifest, header: CacheHeader) -> None:
        self.stack, self.manifest, self.header = stack, manifest, header
        self.rate_hz, self.lengths = header.rate_hz, manifest.lengths

    def __len__(self) -> int:
        return len(self.manifest.ids)

    @overload
    def __getitem__(self, place: int) -> Signal: ...
    @overload
    def __getitem__(self, place: slice) -> list[Signal]: ...
    def __getitem__(self, place: int | slice) -> Signal | list[Signal]:
        if isinstance(place, slice):
            return [self[n] for n in range(*place.indices(len(self)))]
        line = range(len(self))[place]
        manifest = self.manifest
        return Signal(
            np.asarray(self.stack[line, : manifest.lengths[line]]),
            id=manifest.ids[line],
            rate_hz=self.rate_hz,
            channels=self.header.channels,
            record=manifest.records[line],
            start_s=float(manifest.start_s[line]),
            anchors=manifest.anchors[line],
        )


class Cache:
    """A folder that `write_cache` made."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.header = _read_header(self.folder)
        for name, (size, _) in self.header.files.items():
            _check_size(self.folder / name, size)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split, file in STACKS.items() if file in self.header.files)

    def signals(self, split: str) -> CachedSignals:
        """The windows of a split, as many as there are, read one by one."""
        one_of("split", split, self.splits)
        try:
            stack = np.load(self.folder / STACKS[split], mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{self.folder / STACKS[split]}: {error}; prepare {self.header.name} again") from error
        return CachedSignals(stack, self._manifests[split], self.header)

    def targets(self, split: str) -> Mapping[str, npt.NDArray[np.str_]]:
        """The label of each window, for every target."""
        one_of("split", split, self.splits)
        return self._manifests[split].targets

    def windows(self, split: str) -> WindowSet:
        """The windows of a split with their targets, as signals in memory whose values stay on disk."""
        return WindowSet(self.header.name, tuple(self.signals(split)), self.targets(split))

    def verify(self) -> None:
        """Read every file once and compare its digest."""
        for name, (_, digest) in self.header.files.items():
            if _digest(self.folder / name) != digest:
                raise DataError(f"{self.folder / name} was changed since it was made; prepare {self.header.name} again")

    @cached_property
    def _manifests(self) -> dict[str, Manifest]:
        lines: dict[str, list[dict[str, Any]]] = {split: [] for split in self.splits}
        for line in _json_lines(self.folder / MANIFEST):
            lines[line["split"]].append(line)
        return {split: _columns(rows) for split, rows in lines.items()}


def write_cache(
    folder: str | Path,
    name: str,
    splits: Mapping[str, Iterable[Window]],
    *,
    length: int,
    source: str = "",
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Cache:
    """Write windows of at most `length` samples. The same windows give the same bytes; half a cache is never left."""
    folder = Path(folder)
    with atomic_folder(folder, overwrite=overwrite) as partial:
        common: dict[str, Any] = {}
        with (partial / MANIFEST).open("w", encoding="utf-8", newline="\n") as manifest:
            for split, windows in splits.items():
                one_of("split", split, tuple(STACKS))
                alike = _alike(name, windows, common)
                for line in _write_stack(partial / STACKS[split], alike, length):
                    manifest.write(json.dumps({"split": split, **line}, sort_keys=True) + "\n")
        if not common:
            raise SignalError(f"{name}: expected at least one window, got none")
        names = sorted(path.name for path in partial.iterdir())
        files = {file: ((partial / file).stat().st_size, _digest(partial / file)) for file in names}
        channels = common["order"] if common["named"] else ()  # kept where all windows have them
        header = CacheHeader(name, source, dict(settings or {}), common["rate_hz"], channels, files)
        (partial / HEADER).write_text(json.dumps(vars(header), sort_keys=True, indent=1) + "\n", encoding="utf-8")
    return Cache(folder)


def window_pairs(windows: WindowSet) -> Iterator[Window]:
    """The windows of a set, each with its label for every target."""
    for place, signal in enumerate(windows.signals):
        yield signal, {target: str(labels[place]) for target, labels in windows.targets.items()}


def _write_stack(path: Path, windows: Iterable[Window], length: int) -> Iterator[dict[str, Any]]:
    """Append each window to the stack and yield its line; the count in the stack's head is put right at the end."""
    seen: set[str] = set()
    channels = 0
    with path.open("wb") as file:
        for index, (signal, targets) in enumerate(windows):
            if signal.length > length:
                raise SignalError(f"window {signal.id!r} has {signal.length} samples, more than the {length} of a row")
            if signal.id in seen:
                raise SignalError(f"two windows have the id {signal.id!r}; give each its own")
            if not seen:
                channels = signal.values.shape[1]
                _write_head(file, 0, length, channels)
            seen.add(signal.id)
            row = np.full((length, channels), np.nan, dtype=PLAIN)
            row[: signal.length] = _same_width(signal, channels)
            file.write(row.tobytes())
            yield _line(index, signal, targets)
        if not seen:
            raise SignalError(f"{path.name}: expected at least one window, got none")
        file.seek(0)
        _write_head(file, len(seen), length, channels)


def _write_head(file: Any, count: int, length: int, channels: int) -> None:
    """NumPy leaves room for the first axis to grow, so that the head keeps its size."""
    head = {"descr": PLAIN.str, "fortran_order": False, "shape": (count, length, channels)}
    np.lib.format.write_array_header_1_0(file, head)  # type: ignore[no-untyped-call]


def _same_width(signal: Signal, channels: int) -> npt.NDArray[np.float32]:
    if signal.values.shape[1] != channels:
        raise SignalError(f"window {signal.id!r} has {signal.values.shape[1]} channels, the first {channels}")
    return signal.values


def _line(index: int, signal: Signal, targets: Targets) -> dict[str, Any]:
    line = {
        "index": index,
        "id": signal.id,
        "record": signal.record,
        "start_s": signal.start_s,
        "length": signal.length,
        "targets": dict(targets),
    }
    return line if signal.anchors is None else {**line, "anchors": signal.anchors.tolist()}


def _alike(name: str, windows: Iterable[Window], common: dict[str, Any]) -> Iterator[Window]:
    """The windows at one rate, with their channels in the order of the first that names them, noted in `common`."""
    for signal, targets in windows:
        if common.setdefault("rate_hz", signal.rate_hz) != signal.rate_hz:
            came, first = rate_text(signal.rate_hz), rate_text(common["rate_hz"])
            raise SignalError(f"{name}: window {signal.id!r} has {came}, the first {first}; bring all to one rate")
        common["order"] = common.get("order") or signal.channels
        common["named"] = common.get("named", True) and bool(signal.channels)
        yield signal.arranged(common["order"]), targets


def _columns(lines: Sequence[Mapping[str, Any]]) -> Manifest:
    names = list(lines[0]["targets"]) if lines else []
    return Manifest(
        [line["id"] for line in lines],
        [line["record"] for line in lines],
        np.asarray([line["start_s"] for line in lines], dtype=np.float64),
        np.asarray([line["length"] for line in lines], dtype=np.int64),
        {target: np.asarray([line["targets"][target] for line in lines], dtype=str) for target in names},
        [np.asarray(line["anchors"], dtype=np.float64) if "anchors" in line else None for line in lines],
    )


def _read_header(folder: Path) -> CacheHeader:
    path = folder / HEADER
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        header = CacheHeader(**{**fields, "channels": tuple(fields["channels"])})
    except FileNotFoundError as error:
        raise DataError(f"{folder} is no cache: it has no {HEADER}; make one with `geopatch data prepare`") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} is no head of a cache ({error}); prepare it again") from error
    if header.format not in READABLE:
        raise DataError(f"{folder} has format {header.format}, this version reads {FORMAT}; prepare it again")
    unknown = header.format == 1 and header.rate_hz == 1 and "rate_hz" not in header.settings
    return replace(header, rate_hz=None) if unknown else header


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{path} line {number} is no line of a manifest ({error}); prepare it again") from error


def _check_size(path: Path, size: int) -> None:
    there = path.stat().st_size if path.is_file() else None
    if there != size:
        raise DataError(f"{path}: expected {size} bytes, got {there or 'no file'}; prepare it again")


def _digest(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            sha.update(chunk)
    return sha.hexdigest()
