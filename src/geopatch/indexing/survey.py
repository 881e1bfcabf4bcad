"""A survey of files before a gallery is made of them: which rate, which channels, how long a window, and a sample.

Files are spread over all of them; what is read is kept, up to a limit, so that it need not be read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from geopatch.data.audio import AudioConfig
from geopatch.data.formats import FORMATS
from geopatch.data.formats import audio as audio_reader
from geopatch.data.front_end import FrontEnd
from geopatch.data.metadata import with_metadata
from geopatch.data.reading import InputFile, RecordingFile, read_file
from geopatch.data.recording import Recording, prepare, spans
from geopatch.errors import DataError, SignalError
from geopatch.indexing.held import HeldFile
from geopatch.indexing.length import SEGMENT, propose_length
from geopatch.indexing.settings import IndexSettings, Listener, check_levels
from geopatch.signal import Signal, channel_text

SURVEY_FILES = 24
WHOLE_FILES = 1024  # that a model is fitted on where each recording is one window
FIT_WINDOWS, LABELLED_WINDOWS = 4096, 20_000  # that a model is fitted on, without labels and with
KEPT_BYTES = 16 * 2**20
OVERLAP = 0.5
NAMED_SHARE = 0.9  # of the recordings, that must have the same channel names for these to count


@dataclass
class Reader:
    """Reads files with what is known of them besides, and keeps the first of them up to a limit."""

    settings: IndexSettings
    audio: AudioConfig | None = None  # how sound becomes frames
    kept: dict[str, RecordingFile] = field(default_factory=dict)
    room: int = KEPT_BYTES

    def read(self, file: InputFile) -> RecordingFile:
        """The recordings of a file, sound as frames, with its metadata."""
        if file.id in self.kept:
            return self.kept[file.id]
        reading = file.reading() if isinstance(file, HeldFile) else read_file(file, self.settings.reading)
        reading = with_metadata(reading, self.settings.table, self.settings.pattern)
        if self.audio is not None and is_sound(file):
            reading = _framed(reading, self.audio)
        size = _size(reading)
        if size <= self.room:
            self.kept[file.id], self.room = reading, self.room - size
        return reading

    def take(self, file: InputFile) -> RecordingFile:
        """The recordings of a file, which are not needed again."""
        reading = self.read(file)
        if self.kept.pop(file.id, None) is not None:
            self.room += _size(reading)
        return reading


def is_sound(file: InputFile) -> bool:
    """Whether a file is one of sound, by its suffix."""
    return FORMATS.get(file.path.suffix.lower()) is audio_reader


def audio_of(files: Sequence[InputFile]) -> AudioConfig | None:
    """How sound becomes frames, where most files are sound."""
    return AudioConfig() if sum(map(is_sound, files)) > len(files) / 2 else None


def _framed(reading: RecordingFile, audio: AudioConfig) -> RecordingFile:
    front = FrontEnd(audio=audio)
    try:
        recordings = tuple(front.recording(recording) for recording in reading.recordings)
    except SignalError as error:
        raise DataError(f"{reading.file.path}: {error}") from error
    return replace(reading, recordings=recordings)


def _size(reading: RecordingFile) -> int:
    return sum(signal.values.nbytes for signal in reading.signals)


@dataclass(frozen=True, eq=False)
class Sketch:
    """What a recording is like, and a part from its middle."""

    rate_hz: float | None
    channels: tuple[str, ...]
    width: int
    samples: int
    part: Signal

    @classmethod
    def at(cls, signal: Signal) -> Sketch:
        start = max((signal.length - SEGMENT) // 2, 0)
        values = signal.values[start : start + SEGMENT].copy()
        values = values if np.isfinite(values).any() else signal.values
        part = Signal(values, signal.id, signal.rate_hz, signal.channels)
        return cls(signal.rate_hz, signal.channels, signal.values.shape[1], signal.length, part)


@dataclass(frozen=True, eq=False)
class Survey:
    """What a gallery is made for: a rate, channels by name or by number, windows."""

    rate_hz: float | None
    channels: tuple[str, ...]  # () where names differ, and channels count by their place
    width: int
    front_end: FrontEnd
    windows: list[Signal]
    labels: list[str] | None


def survey_files(files: Sequence[InputFile], reader: Reader, listener: Listener) -> Survey:
    """Sketch at some of the files, say what they have in common, and draw windows from them."""
    settings = reader.settings
    sketches = {
        file: [Sketch.at(signal) for signal in reading.signals]
        for file, reading in _readable(files if settings.labels else spread(files, SURVEY_FILES), reader)
    }
    if not sketches:
        reader.read(files[0])  # says what is wrong with it
        raise DataError(f"{files[0].path} holds no recording; give files of recordings")
    every = [sketch for some in sketches.values() for sketch in some]
    rate_hz = _common_rate(every)
    channels, width = _common_channels(every, settings.reading.channels)
    fitting = [sketch for sketch in every if fits(sketch, channels, width)]
    anchors = settings.anchors or FrontEnd.anchors
    front = FrontEnd(settings.window_s, settings.overlap or OVERLAP, settings.band_hz, reader.audio, anchors=anchors)
    _say(listener, len(files), len(sketches), rate_hz, channels, width, front, fitting)
    front = _with_length(front, fitting[:SURVEY_FILES], rate_hz, settings, listener)
    front = _with_levels(front, settings, listener)
    sources = list(sketches) if front.window_s or settings.labels else spread(files, WHOLE_FILES)
    drawn = list(_drawn(sources, reader, front, rate_hz, channels, width))
    if not drawn:
        what = f"lasts one window of {front.window_s:g} s" if front.window_s else "can be used"
        raise DataError(
            f"no recording of {len(sketches)} files {what}{_of_label(settings.labels)}; see geopatch index --help"
        )
    labels = [label for _, label in drawn] if settings.labels else None
    return Survey(rate_hz, channels, width, front, [window for window, _ in drawn], labels)


def _of_label(name: str | None) -> str:
    return "" if name is None else f" and has a value of {name!r}"


def fits(sketch: Sketch, channels: tuple[str, ...], width: int) -> bool:
    """Whether a recording has these channels, or as many where no names count."""
    if channels and sketch.channels:
        return set(channels) <= set(sketch.channels)
    return sketch.width == width


def check_fits(signal: Signal, channels: tuple[str, ...], width: int) -> None:
    """Refuse a recording whose channels are others."""
    if not fits(Sketch.at(signal), channels, width):
        wanted = ", ".join(channels) if channels else f"{width} channel{'s' * (width > 1)}"
        raise SignalError(f"it has {channel_text(signal)}, the gallery is of {wanted}; rename its channels or leave it")


def arranged(recording: Recording, channels: tuple[str, ...]) -> Recording:
    """A recording with its channels in the order of the gallery."""
    signal = recording.signal.arranged(channels)
    return recording if signal is recording.signal else replace(recording, signal=signal)


def spread(files: Sequence[InputFile], count: int) -> list[InputFile]:
    """Some of the files, from all over them."""
    places = np.unique(np.linspace(0, len(files) - 1, min(count, len(files))).round().astype(int))
    return [files[place] for place in places]


def _readable(files: Sequence[InputFile], reader: Reader) -> Iterator[tuple[InputFile, RecordingFile]]:
    """Those that can be read; the others are refused when their turn comes."""
    for file in files:
        try:
            reading = reader.read(file)
        except DataError:
            continue
        if reading.recordings:
            yield file, reading


def _common_rate(sketches: Sequence[Sketch]) -> float | None:
    """The rate of most samples."""
    counts: Counter[float] = Counter()
    for sketch in sketches:
        if sketch.rate_hz is not None:
            counts[sketch.rate_hz] += sketch.samples
    return counts.most_common(1)[0][0] if counts else None


def _common_channels(sketches: Sequence[Sketch], wanted: tuple[str, ...] | None) -> tuple[tuple[str, ...], int]:
    """The names that nearly all recordings have, else none, and how many channels most have."""
    if wanted is not None:
        return wanted, len(wanted)
    named = [sketch.channels for sketch in sketches if sketch.channels]
    width = Counter(sketch.width for sketch in sketches).most_common(1)[0][0]
    if not named:
        return (), width
    names = Counter(frozenset(channels) for channels in named).most_common(1)[0][0]
    channels = next(one for one in named if frozenset(one) == names)
    if sum(names <= set(one) for one in named) < NAMED_SHARE * len(named) or len(names) < len(channels):
        return (), width
    return channels, len(channels)


def _with_length(
    front: FrontEnd, sketches: Sequence[Sketch], rate_hz: float | None, settings: IndexSettings, listener: Listener
) -> FrontEnd:
    if settings.whole or front.window_s is not None:
        return front
    samples = [round(sketch.samples * (rate_hz or 1.0) / (sketch.rate_hz or rate_hz or 1.0)) for sketch in sketches]
    proposal = propose_length([sketch.part.at_rate(rate_hz) for sketch in sketches], samples)
    length = "each recording is one window" if proposal.window_s is None else f"windows of {proposal.window_s:g} s"
    listener.say(f"{length}: {proposal.reason}; --window-s says otherwise")
    return replace(front, window_s=proposal.window_s)


def _with_levels(front: FrontEnd, settings: IndexSettings, listener: Listener) -> FrontEnd:
    """Windows of several lengths, where the settings ask for them."""
    if front.window_s is None:
        return front
    check_levels(front.window_s, settings.shortest_s, settings.longest_s)
    front = replace(front, shortest_s=settings.shortest_s, longest_s=settings.longest_s)
    levels = front.levels_s
    if len(levels) == 1:
        return replace(front, shortest_s=None, longest_s=None)
    listener.say(f"windows at {len(levels)} lengths, {levels[0]:.3g} to {levels[-1]:.3g} s; --shortest-s, --longest-s")
    return front


def _say(
    listener: Listener,
    files: int,
    sketched: int,
    rate_hz: float | None,
    channels: tuple[str, ...],
    width: int,
    front: FrontEnd,
    sketches: Sequence[Sketch],
) -> None:
    of = f"{files} files" if sketched == files else f"{sketched} of {files} files looked at"
    rate = "rate not known: a sample counts as a second" if rate_hz is None else f"{rate_hz:g} Hz"
    names = f" ({', '.join(channels[:6])}{', ...' if len(channels) > 6 else ''})" if channels else ""
    kind = ", sound as log-mel frames" if front.audio else ""
    listener.say(f"{of}: {width} channel{'s' * (width > 1)}{names}, {rate}{kind}")
    if not channels and any(sketch.channels for sketch in sketches):
        listener.say(
            "recordings name their channels differently: channels count by their place; --channels chooses by name"
        )


def _drawn(
    files: Sequence[InputFile],
    reader: Reader,
    front: FrontEnd,
    rate_hz: float | None,
    channels: tuple[str, ...],
    width: int,
) -> Iterator[tuple[Signal, str]]:
    """Windows from all over the recordings, always the same, with their label or an empty text."""
    draw, wanted = np.random.default_rng(0), reader.settings.labels
    each = -(-(LABELLED_WINDOWS if wanted else FIT_WINDOWS) // len(files))
    for _, reading in _readable(files, reader):
        share = -(-each // len(reading.recordings))
        for recording, row in zip(reading.recordings, labelled_rows(reading), strict=True):
            label = _label(row, wanted)
            if label is None or not fits(Sketch.at(recording.signal), channels, width):
                continue
            for window in _some(arranged(recording, channels), front, rate_hz, share, draw):
                yield (window if channels else replace(window, channels=())), label


def labelled_rows(reading: RecordingFile) -> list[dict[str, Any]]:
    """What is known of each recording, with its class under `label` where the file says it."""
    labels = [None] * len(reading.recordings) if reading.labels is None else reading.labels.tolist()
    rows = reading.metadata or ({},) * len(reading.recordings)
    return [
        {**({} if label is None else {"label": str(label)}), **row} for row, label in zip(rows, labels, strict=True)
    ]


def _label(row: dict[str, Any], name: str | None) -> str | None:
    """The label of a recording; empty where none is wanted, None where it has none."""
    if name is None:
        return ""
    return None if row.get(name) is None else str(row[name])


def _some(
    recording: Recording, front: FrontEnd, rate_hz: float | None, most: int, draw: np.random.Generator
) -> Iterator[Signal]:
    """Windows of all lengths in equal numbers, each brought to the samples of the middle one."""
    signal = recording.signal
    config = front.window(rate_hz or signal.rate_hz, signal.at_rate(rate_hz).duration_s)
    prepared, levels = prepare(recording, config).signal, front.levels_s or (config.length_s,)
    length, observed = round(config.length_s * config.rate_hz), prepared.observed
    for level_s in levels:
        places = list(spans(prepared.length, replace(config, length_s=level_s)))
        count = min(-(-most // len(levels)), len(places))
        for place in sorted(draw.choice(len(places), count, replace=False).tolist()) if places else ():
            start, stop = places[place]
            if observed[start:stop].any():
                yield _at_length(prepared.window(start, stop), length, rate_hz)


def _at_length(window: Signal, length: int, rate_hz: float | None) -> Signal:
    """A copy, else all of its recording stays in memory, read at so many places."""
    if window.length == length:
        return replace(window, values=window.values.copy(), rate_hz=rate_hz)
    at = np.linspace(0, window.length - 1, length)
    values = np.stack([np.interp(at, np.arange(window.length), column) for column in window.bridged().T], axis=1)
    anchors = None if window.anchors is None else window.anchors * (length - 1) / max(window.length - 1, 1)
    return Signal(values, window.id, rate_hz, window.channels, window.record, window.start_s, anchors)
