"""Streams under watch: windows are cut as samples come, encoded together, and compared with every watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError
from geopatch.search.levels import nearness
from geopatch.signal import Signal
from geopatch.watching.levels import StreamLevel
from geopatch.watching.picking import Picker, StreamMatch
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
        return {**own, "score": self.match.score, "excess": self.match.excess}


@dataclass
class WatchedStream:
    """One stream: its samples, and for each watch what is pending."""

    samples: Samples
    held: Values  # at the gallery's rate
    first: int  # number of the first of these
    pickers: dict[str, Picker] = field(default_factory=dict)
    levels: dict[str, StreamLevel] = field(default_factory=dict)
    next_after: dict[str, int] = field(default_factory=dict)  # by watch: windows that end later are still to come

    @property
    def stop(self) -> int:
        return self.first + len(self.held)


@dataclass(frozen=True, eq=False)
class _Job:
    """Windows of one stream that end at these samples, for watches that look at the same lengths."""

    stream: str
    watches: tuple[str, ...]
    lengths: tuple[int, ...]
    ends: tuple[range, ...]  # for each length


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
        levels: Mapping[str, Mapping[str, Any]] | None = None,
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
        levels : mapping, optional
            By watch, the level of the stream as `StreamLevel.as_dict` gave it.

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
        for watch, state in (levels or {}).items():
            if watch in self.watches:
                self._picker(stream, watch)
                stream.levels[watch] = StreamLevel.from_dict(state, self.watches[watch].block)
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
                pending, begin = stream.pickers[watch].first_needed, min(after, stream.levels[watch].start)
                longest = max(self.watches[watch].lengths)
                needed.append((begin if pending is None else min(pending, begin)) - longest)
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
            stream.pickers[name], stream.levels[name] = Picker(watch.excess, watch.hold), watch.level()
            stream.next_after[name] = stream.first
        return stream.pickers[name]

    def _decided(self, names: Sequence[str]) -> list[list[Alarm]]:
        """Every window is cut and encoded once for all watches that look at windows of its length."""
        jobs = [job for name in names for job in self._jobs(name)]
        vectors = self._encoder.embed([window for job in jobs for window in self._windows(job)])
        alarms: dict[str, list[Alarm]] = {name: [] for name in names}
        first = 0
        for job in jobs:
            last = first + sum(len(ends) for ends in job.ends)
            alarms[job.stream] += self._picked(job, vectors[first:last])
            first = last
        for name in names:
            self._forget(self.streams[name])
        return [sorted(alarms[name], key=lambda alarm: alarm.start_s) for name in names]

    def _jobs(self, name: str) -> list[_Job]:
        stream, alike = self.streams[name], dict[tuple[tuple[int, ...], int, int], list[str]]()
        for watch, one in self.watches.items():
            self._picker(stream, watch)
            alike.setdefault((one.lengths, one.stride, stream.next_after[watch]), []).append(watch)
        jobs = []
        for (lengths, stride, after), watches in alike.items():
            ends = [self._ends(stream, after, stride, length) for length in lengths]
            jobs.append(_Job(name, tuple(watches), lengths, tuple(ends)))
            for watch in watches:
                stream.next_after[watch] = max(stream.stop, after)
        return jobs

    @staticmethod
    def _ends(stream: WatchedStream, after: int, stride: int, length: int) -> range:
        ends = ends_between(after, stream.stop, stride, length)
        return ends[-(-max(stream.first + length - ends.start, 0) // stride) :] if len(ends) else ends

    def _windows(self, job: _Job) -> list[Values]:
        held, first = self.streams[job.stream].held, self.streams[job.stream].first
        pairs = ((length, end - first) for length, ends in zip(job.lengths, job.ends, strict=True) for end in ends)
        return [held[end - length : end] for length, end in pairs]

    def _picked(self, job: _Job, vectors: Values) -> list[Alarm]:
        stream, alarms = self.streams[job.stream], list[Alarm]()
        if not len(vectors):
            return alarms
        patterns = np.stack([self.watches[watch].embedding for watch in job.watches], axis=1)
        stops, lengths, scores = _best_lengths(job, vectors @ patterns)
        near = nearness(scores)
        near[np.isneginf(scores)] = -np.inf
        for column, watch in enumerate(job.watches):
            picker, excess = stream.pickers[watch], stream.levels[watch].excess(stops, near[:, column])
            if not picker.pending and excess.max() < picker.threshold:
                continue
            starts = stops - lengths[:, column]
            rows = zip(starts.tolist(), stops.tolist(), excess.tolist(), scores[:, column].tolist(), strict=True)
            matches = [match for row in rows if (match := picker.take(*row)) is not None]
            alarms += [self._alarm(stream, watch, match) for match in matches]
        return alarms

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
            watch.rate.per_hour(match.excess),
        )

    def _forget(self, stream: WatchedStream) -> None:
        """Let go of samples that no window to come and no pending match needs."""
        longest = max((max(watch.lengths) for watch in self.watches.values()), default=0)
        pending = [picker.first_needed for watch, picker in stream.pickers.items() if watch in self.watches]
        needed = min([stream.stop - longest, *(start for start in pending if start is not None)])
        keep = max(needed - round(AROUND * longest) - 1, stream.first)
        if keep - stream.first > longest:  # not at every chunk: it copies what is kept
            stream.held, stream.first = stream.held[keep - stream.first :].copy(), keep


def _best_lengths(
    job: _Job, scores: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Ends, and for each end and watch the length of the best window and its score.

    The ends of all lengths go on to the same one; longer windows begin later.
    """
    stops = np.asarray(max(job.ends, key=len), dtype=np.int64)
    table, first = np.full((len(job.lengths), len(stops), len(job.watches)), -np.inf), 0
    for row, ends in enumerate(job.ends):
        table[row, len(stops) - len(ends) :] = scores[first : first + len(ends)]
        first += len(ends)
    table[np.isnan(table)] = -np.inf
    return stops, np.asarray(job.lengths)[table.argmax(axis=0)], table.max(axis=0)
