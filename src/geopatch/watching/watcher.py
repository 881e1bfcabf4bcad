"""Streams under watch: windows are cut as samples come, encoded together, and compared with every watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError
from geopatch.signal import Signal
from geopatch.watching.picking import Picker, StreamMatch, best_of_ends
from geopatch.watching.samples import Samples
from geopatch.watching.scores import WindowEncoder, ends_between
from geopatch.watching.spans import AROUND, refined_span
from geopatch.watching.watch import Watch

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Alarm:
    """A match of one watch in one stream; times in seconds from the start of the stream."""

    watch: str
    stream: str
    match: StreamMatch
    start_s: float
    stop_s: float
    grid_start_s: float
    grid_stop_s: float
    delay_s: float  # of signal that came after the match, before it was decided
    false_alarms_per_hour: float  # at its score

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "match"}
        return {**own, "score": self.match.score}


@dataclass
class WatchedStream:
    """One stream: its samples, and for each watch what is pending."""

    samples: Samples
    held: Values  # at the gallery's rate
    first: int  # number of the first of these
    pickers: dict[str, Picker] = field(default_factory=dict)
    next_after: dict[str, int] = field(default_factory=dict)  # by watch: windows that end later are still to come

    @property
    def stop(self) -> int:
        return self.first + len(self.held)


class Watcher:
    """Watches streams for patterns.

    Parameters
    ----------
    model : GeoPatch
        The model of the gallery that the watches were made with.
    watches : mapping of str to Watch, optional
        Watches by their names; more may be added to `watches` later.

    Examples
    --------
    >>> watcher = Watcher(gallery.model, {"beat": Watch.create(gallery, query)})  # doctest: +SKIP
    >>> for alarm in watcher.push("sensor", values, rate_hz=250.0):  # doctest: +SKIP
    ...     print(alarm.start_s, alarm.stop_s, alarm.match.score)
    """

    def __init__(self, model: GeoPatch, watches: Mapping[str, Watch] | None = None) -> None:
        self.watches = dict(watches or {})
        self.streams: dict[str, WatchedStream] = {}
        self._encoder, self._model = WindowEncoder(model), model

    def open(
        self,
        name: str,
        width: int,
        rate_hz: float | None = None,
        channels: Sequence[str] = (),
        *,
        first: int = 0,
        last_matches: Mapping[str, int] | None = None,
    ) -> WatchedStream:
        """Begin a stream, or take one up again.

        Parameters
        ----------
        name : str
            The stream.
        width : int
            How many channels it has.
        rate_hz : float, optional
            Its samples a second; by default the gallery's.
        channels : sequence of str, optional
            Their names, by which they are matched with the model's.
        first : int, default=0
            The number of the first sample that comes.
        last_matches : mapping, optional
            By watch, where the last match stopped, in samples at the gallery's rate.

        Returns
        -------
        WatchedStream
            The stream.

        Raises
        ------
        SignalError
            When its channels do not fit the model.
        """
        clock_hz = self._model.rate_hz_ or 1.0
        taken = self._model.encoder_.config.channels
        if width != taken and not (channels and self._model.channels_):
            raise SignalError(f"stream {name!r} has {width} channels, the gallery's model takes {taken}")
        samples = Samples(name, rate_hz or clock_hz, clock_hz, width, tuple(channels), first)
        stream = WatchedStream(samples, np.zeros((0, taken), dtype=np.float32), samples.done)
        for watch, stop in (last_matches or {}).items():
            if watch in self.watches:
                self._picker(stream, watch).free_from = stop
        self.streams[name] = stream
        return stream

    def push(self, name: str, values: npt.ArrayLike, rate_hz: float | None = None) -> list[Alarm]:
        """Take up the next samples of one stream, which is begun where it is not there yet.

        Parameters
        ----------
        name : str
            The stream.
        values : array of shape (T,) or (T, C)
            The samples.
        rate_hz : float, optional
            Its samples a second, where it begins; by default the gallery's.

        Returns
        -------
        list of Alarm
            What is decided now, in the order of time.
        """
        array = np.asarray(values, dtype=np.float32)
        array = array[:, None] if array.ndim == 1 else array
        if name not in self.streams:
            self.open(name, array.shape[1], rate_hz)
        return self.push_many([(name, array)])[0]

    def push_many(self, chunks: Sequence[tuple[str, Values]]) -> list[list[Alarm]]:
        """Take up samples of several streams, whose windows are encoded together.

        Parameters
        ----------
        chunks : sequence of (str, array)
            Names of streams that are open, no two alike, and their next samples (T, C).

        Returns
        -------
        list of list of Alarm
            What is decided now, for each chunk.
        """
        for name, values in chunks:
            self._take(self.streams[name], self.streams[name].samples.push(values))
        return self._decided([name for name, _ in chunks])

    def end(self, name: str) -> list[Alarm]:
        """End a stream; what is pending is decided.

        Parameters
        ----------
        name : str
            The stream.

        Returns
        -------
        list of Alarm
            What was pending.
        """
        stream = self.streams[name]
        self._take(stream, stream.samples.push(np.zeros((0, stream.samples.width), np.float32), last=True))
        alarms = self._decided([name])[0]
        for watch, picker in stream.pickers.items():
            match = picker.release(stream.stop)
            if match is not None and watch in self.watches:
                alarms.append(self._alarm(stream, watch, match))
        del self.streams[name]
        return alarms

    def safe(self, name: str) -> int:
        """The first sample of its own that a stream must be sent from again, for nothing to be lost.

        Parameters
        ----------
        name : str
            The stream.

        Returns
        -------
        int
            Its number from the start of the stream.
        """
        stream = self.streams[name]
        needed = [stream.stop]
        for watch, after in stream.next_after.items():
            if watch in self.watches:
                pending = stream.pickers[watch].first_needed
                longest = max(self.watches[watch].lengths)
                needed.append((after if pending is None else min(pending, after)) - longest)
        return min(stream.samples.own_sample(max(min(needed), 0)), stream.samples.received)

    def _take(self, stream: WatchedStream, fresh: Values) -> None:
        if not len(fresh):
            return
        samples = stream.samples
        if samples.channels and self._model.channels_:
            fresh = Signal(fresh, samples.name, None, samples.channels).arranged(self._model.channels_).values
        stream.held = np.concatenate([stream.held, fresh])

    def _picker(self, stream: WatchedStream, name: str) -> Picker:
        if name not in stream.pickers:
            watch = self.watches[name]
            stream.pickers[name] = Picker(watch.threshold, watch.hold)
            stream.next_after[name] = stream.first
        return stream.pickers[name]

    def _decided(self, names: Sequence[str]) -> list[list[Alarm]]:
        """Every window is encoded once, also where several watches look at windows of its length."""
        jobs = [(name, watch, length, self._ends(name, watch, length)) for name, watch, length in self._wanted(names)]
        cuts = {(name, length, end): None for name, _, length, ends in jobs for end in ends}
        rows = {cut: row for row, cut in enumerate(cuts)}
        vectors = self._encoder.embed([self._cut(*cut) for cut in cuts])
        scored: dict[tuple[str, str], dict[int, npt.NDArray[np.float64]]] = {}
        for name, watch, length, ends in jobs:
            scores = vectors[[rows[name, length, end] for end in ends]] @ self.watches[watch].embedding
            scored.setdefault((name, watch), {})[length] = np.where(np.isnan(scores), -np.inf, scores).astype(float)
        alarms = [self._picked(name, {w: s for (n, w), s in scored.items() if n == name}) for name in names]
        for name in names:
            self._forget(self.streams[name])
        return alarms

    def _wanted(self, names: Sequence[str]) -> list[tuple[str, str, int]]:
        for name in names:
            for watch in self.watches:
                self._picker(self.streams[name], watch)
        return [
            (name, watch, length) for name in names for watch, one in self.watches.items() for length in one.lengths
        ]

    def _ends(self, name: str, watch: str, length: int) -> range:
        stream = self.streams[name]
        ends = ends_between(stream.next_after[watch], stream.stop, self.watches[watch].stride, length)
        return ends[-(-max(stream.first + length - ends.start, 0) // ends.step) :] if len(ends) else ends

    def _cut(self, name: str, length: int, end: int) -> Values:
        stream = self.streams[name]
        return stream.held[end - length - stream.first : end - stream.first]

    def _picked(self, name: str, scored: Mapping[str, Mapping[int, npt.NDArray[np.float64]]]) -> list[Alarm]:
        stream, alarms = self.streams[name], list[Alarm]()
        for watch, by_length in scored.items():
            windows = [
                (np.asarray(self._ends(name, watch, length), dtype=np.int64), scores)
                for length, scores in by_length.items()
            ]
            starts, stops, scores = best_of_ends(windows, list(by_length))
            for start, stop, score in zip(starts.tolist(), stops.tolist(), scores.tolist(), strict=True):
                match = stream.pickers[watch].take(start, stop, score)
                if match is not None:
                    alarms.append(self._alarm(stream, watch, match))
            stream.next_after[watch] = max(stream.stop, stream.next_after[watch])
        return sorted(alarms, key=lambda alarm: alarm.start_s)

    def _alarm(self, stream: WatchedStream, name: str, match: StreamMatch) -> Alarm:
        watch, clock_hz = self.watches[name], stream.samples.clock_hz
        side = round(AROUND * (match.stop - match.start))
        low = max(match.start - side, stream.first)
        around = stream.held[low - stream.first : match.stop + side - stream.first]
        start, stop = refined_span(watch.signal.values, around, (match.start - low, match.stop - low))
        return Alarm(
            name,
            stream.samples.name,
            match,
            (low + start) / clock_hz,
            (low + stop) / clock_hz,
            match.start / clock_hz,
            match.stop / clock_hz,
            (match.decided - match.stop) / clock_hz,
            watch.rate.per_hour(match.score),
        )

    def _forget(self, stream: WatchedStream) -> None:
        """Let go of samples that no window to come and no pending match needs."""
        longest = max((max(watch.lengths) for watch in self.watches.values()), default=0)
        pending = [picker.first_needed for watch, picker in stream.pickers.items() if watch in self.watches]
        needed = min([stream.stop - longest, *(start for start in pending if start is not None)])
        keep = max(needed - round(AROUND * longest) - 1, stream.first)
        if keep - stream.first > longest:  # not at every chunk: it copies what is kept
            stream.held, stream.first = stream.held[keep - stream.first :].copy(), keep
