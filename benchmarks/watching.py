"""Watches on hours of ECG: false alarms against those that were tolerated, recall, and latency of many streams.

python benchmarks/watching.py replay mitdb --fold 0 --out results/watching.jsonl
python benchmarks/watching.py load --streams 100 --seconds 60 --out results/watching.jsonl

replay: half of the records (every second one) are the streams, of the other half the first minutes are the gallery, on
which thresholds are set; `--fold 1` turns them round, so that both together replay all hours. Each of five watches is
for two seconds round a ventricular beat of another record of the gallery. Copies of each, at speeds .8 to 1.25, gain .8
to 1.25 and with noise of .2 of the spread, are put into the streams at random places. What a watch reports elsewhere is
a false alarm; those at annotated ventricular beats are counted apart, for these patients have beats of that kind, too.

load: a server with five watches, and streams of 250 Hz that send half a second at a time, as a sensor would.

picture: one record replayed with a watch for its first ventricular beat, whose threshold is set on the other records of
a gallery; drawn are the alarms beside the annotated beats.

python benchmarks/watching.py picture mitdb --gallery mitdb.gallery --record 202 --out docs/figures/alarms
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import wfdb

from geopatch.data.recording import WindowConfig
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.plot.canvas import FAINT, QUERY, RIGHT, WRONG, pyplot, save_all, tidy, unit
from geopatch.search import Span
from geopatch.signal import Signal
from geopatch.version import __version__
from geopatch.watching import Watch, Watcher
from geopatch.watching.levels import StreamLevel
from geopatch.watching.watcher import Alarm

RATE_HZ, WINDOW_S = 128.0, 2.0
MINUTES = 8.0  # of each record in the gallery
WATCHES, COPIES = 5, 12  # of each watch in an hour of streams
CHUNK_S = 30.0
SPEEDS, GAINS, NOISE = (0.8, 1.25), (0.8, 1.25), 0.2
TOKEN = "w" * 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("replay", "load", "picture"))
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--per-hour", type=float, default=1.0)
    parser.add_argument("--records", type=int, default=100, help="streams to replay, at most")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gallery", help="to draw with, of recordings of the data")
    parser.add_argument("--record", default="202", help="to draw")
    arguments = parser.parse_args()
    if arguments.what == "picture":
        picture(arguments)
        return
    rows = replay(arguments) if arguments.what == "replay" else [load(arguments)]
    with arguments.out.open("a") as file:
        for row in rows:
            line = json.dumps({"benchmark": f"watching {arguments.what}", "version": __version__, **row})
            print(line, flush=True)
            file.write(line + "\n")


def replay(arguments: argparse.Namespace) -> list[dict[str, object]]:
    names = sorted(path.stem for path in arguments.data.glob("*.hea"))
    stored, streamed = names[arguments.fold :: 2], names[1 - arguments.fold :: 2][: arguments.records]
    start, before = time.perf_counter(), cpu_s()
    with tempfile.TemporaryDirectory() as folder, gallery_of(arguments.data, stored, Path(folder)) as gallery:
        spans = [span for name in stored if (span := first_beat(arguments.data, name))][:WATCHES]
        watches = {span.record: Watch.create(gallery, span, arguments.per_hour) for span in spans}
        note(f"{len(gallery)} windows, {len(watches)} watches after {time.perf_counter() - start:.0f} s")
        start, before = time.perf_counter(), cpu_s()
        assert gallery.model is not None
        counts = {name: {**dict.fromkeys(COUNTED, 0), "errors": [], "by_record": []} for name in watches}
        hours = 0.0
        for number, name in enumerate(streamed):
            hours += stream(gallery.model, watches, arguments.data, name, number, counts)
            sums = {key: totals(counts)[key] for key in COUNTED}
            note(f"{name}: {hours:.1f} h, {cpu_s() - before:.0f} s of CPU: {json.dumps(sums)}")
    facts = {"fold": arguments.fold, "hours": hours, "tolerated_per_hour": arguments.per_hour, "cores": os.cpu_count()}
    facts |= {"seconds": time.perf_counter() - start, "cpu_s": cpu_s() - before}
    rows = []
    for name, count in counts.items():
        rate = {"set_on_hours": watches[name].rate.hours, "threshold": watches[name].threshold}
        rows.append({**facts, "watch": name, **rate, **summary(count, hours)})
    rows.append({**facts, "watch": "all", **summary(totals(counts), hours * len(watches))})
    return rows


Counts = dict[str, Any]  # of what a watch has seen and said
COUNTED = ("planted", "recalled", "false", "false_at_V")


def totals(counts: dict[str, Counts]) -> Counts:
    whole = {key: sum(one[key] for one in counts.values()) for key in COUNTED}
    lists = {key: [value for one in counts.values() for value in one[key]] for key in ("errors", "by_record")}
    return {**whole, **lists}


def summary(count: Counts, hours: float) -> dict[str, object]:
    return {
        "planted": count["planted"],
        "recall": count["recalled"] / max(count["planted"], 1),
        "alarms_per_hour": count["false"] / hours,
        "alarms_per_hour_without_V": (count["false"] - count["false_at_V"]) / hours,
        "by_record_without_V": [round(one, 2) for one in count["by_record"]],
        "median_start_error": float(np.median(count["errors"])) if count["errors"] else None,
    }


def stream(
    model: GeoPatch, watches: dict[str, Watch], data: Path, name: str, seed: int, counts: dict[str, Counts]
) -> float:
    """Replay one record with copies of every pattern in it; hours of it."""
    signal, draw = read(data, name), np.random.default_rng(seed)
    values, planted = signal.values.copy(), []
    copies = round(COPIES * signal.duration_s / 3600)
    places = draw.permutation(np.arange(4, int(signal.duration_s) - 4, 6))[: copies * len(watches)]
    for place, watch in zip(places, [watch for watch in watches for _ in range(copies)], strict=True):
        start, stop = plant(values, int((place + draw.uniform()) * RATE_HZ), watches[watch].signal.values, draw)
        planted.append((watch, start / RATE_HZ, stop / RATE_HZ))
        counts[watch]["planted"] += 1
    watcher, step = Watcher(model, watches), int(CHUNK_S * RATE_HZ)
    alarms = [one for at in range(0, len(values), step) for one in watcher.push(name, values[at : at + step], RATE_HZ)]
    alarms += watcher.end(name)
    beats, hit = ventricular(data, name), set()
    before = {watch: one["false"] - one["false_at_V"] for watch, one in counts.items()}
    for alarm in alarms:
        near = [n for n, (_, start, stop) in enumerate(planted) if alarm.start_s < stop and alarm.stop_s > start]
        own = [n for n in near if planted[n][0] == alarm.watch]
        if own:
            hit.add(own[0])
            length = planted[own[0]][2] - planted[own[0]][1]
            counts[alarm.watch]["errors"].append(abs(alarm.start_s - planted[own[0]][1]) / length)
        elif not near:  # at a copy of another pattern, which is a ventricular beat too: neither right nor wrong
            counts[alarm.watch]["false"] += 1
            counts[alarm.watch]["false_at_V"] += bool(np.diff(np.searchsorted(beats, [alarm.start_s, alarm.stop_s]))[0])
    for n in hit:
        counts[planted[n][0]]["recalled"] += 1
    for watch, one in counts.items():
        one["by_record"].append((one["false"] - one["false_at_V"] - before[watch]) * 3600 / signal.duration_s)
    return signal.duration_s / 3600


def plant(values: np.ndarray, start: int, pattern: np.ndarray, draw: np.random.Generator) -> tuple[int, int]:
    """Put a changed copy of a pattern into values; from where to where it lies."""
    length = round(len(pattern) / np.exp(draw.uniform(*np.log(SPEEDS))))
    at = np.linspace(0, len(pattern) - 1, length)
    copy = np.stack([np.interp(at, np.arange(len(pattern)), column) for column in pattern.T], axis=1)
    centred = (copy - copy.mean(0)) * np.exp(draw.uniform(*np.log(GAINS)))
    centred += NOISE * pattern.std(0) * draw.normal(size=centred.shape)
    level = np.nanmean(values[start : start + length], axis=0)
    values[start : start + length] = centred + level
    return start, start + length


def gallery_of(data: Path, names: list[str], folder: Path) -> Gallery:
    """The first minutes of records, and a model fitted to them without labels."""
    parts = [signal.window(0, round(MINUTES * 60 * RATE_HZ)) for signal in (read(data, name) for name in names)]
    size = round(WINDOW_S * RATE_HZ)
    windows = [part.window(at, at + size) for part in parts for at in range(0, part.length - size, size)]
    gallery = Gallery.create(folder / "gallery", GeoPatch(device="cpu").fit(windows[::4]))
    for name, part in zip(names, parts, strict=True):
        whole = Signal(part.values, name, RATE_HZ)
        gallery.add_recording(whole, WindowConfig(RATE_HZ, WINDOW_S))
    return gallery


def read(data: Path, name: str) -> Signal:
    record = wfdb.rdrecord(str(data / name))
    return Signal(record.p_signal, name, float(record.fs)).resampled(RATE_HZ)


def ventricular(data: Path, name: str) -> np.ndarray:
    marks = wfdb.rdann(str(data / name), "atr")
    places = [sample for sample, one in zip(marks.sample, marks.symbol, strict=True) if one == "V"]
    return np.asarray(places, dtype=float) / float(marks.fs)


def first_beat(data: Path, name: str) -> Span | None:
    """Two seconds round the first ventricular beat in the part of a record that is in the gallery."""
    beats = [beat for beat in ventricular(data, name) if 5 < beat < MINUTES * 60 - 5]
    return Span(name, round(beats[0] - 1, 2), round(beats[0] + 1, 2)) if len(beats) >= 3 else None


def load(arguments: argparse.Namespace) -> dict[str, object]:
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = GeoPatch.pretrained("general")
        with Gallery.create(folder / "gallery", model) as gallery:
            for n in range(8):
                gallery.add_recording(Signal(beats_of(draw, 250 * 120)[:, None], f"r{n}"))
        (folder / "token").write_text(TOKEN)
        command = [sys.executable, "-m", "geopatch", "serve", str(folder / "gallery"), "--port", "0"]
        command += ["--write-token-file", str(folder / "token"), "--device", "cpu", "--workers", "1"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            return asyncio.run(loaded(arguments, url, server.pid))
        finally:
            server.terminate()
            server.wait()


def beats_of(draw: np.random.Generator, samples: int) -> np.ndarray:
    """A signal of one channel with a beat about every second."""
    values, at = np.convolve(draw.normal(size=samples + 8), np.hanning(9) / 4, "valid")[:samples] * 0.2, 100
    while at < samples - 100:
        values[at - 12 : at + 13] += 3 * draw.uniform(0.7, 1.3) * np.hanning(25)
        at += int(draw.uniform(170, 300))
    return values


async def loaded(arguments: argparse.Namespace, url: str, pid: int) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, timeout=120, headers=headers) as client:
        for n in range(WATCHES):
            query = {"record": f"r{n}", "start_s": 5000, "stop_s": 5500}  # two seconds; a sample counts as one
            body = {"query": query, "false_alarms_per_hour": 0.2}
            (await client.post("/api/watches", json=body)).raise_for_status()
        draw = np.random.default_rng(1)
        values = [np.round(beats_of(draw, int(250 * arguments.seconds)), 4) for _ in range(arguments.streams)]
        before, own = process_cpu_s(pid), cpu_s()
        start = time.perf_counter() + 1
        times = await asyncio.gather(*(sensor(client.base_url, n, one, start) for n, one in enumerate(values)))
        took, cpu, own = time.perf_counter() - start, process_cpu_s(pid) - before, cpu_s() - own
        latencies = await event_latencies(client)
    answered = np.concatenate([np.asarray(one) for one in times]) * 1e3
    return {
        "streams": arguments.streams,
        "rate_hz": 250,
        "chunk_s": 0.5,
        "watches": WATCHES,
        "seconds": took,
        "server_cores": cpu / arguments.seconds,
        "cpu_ms_per_stream_second": 1e3 * cpu / arguments.seconds / arguments.streams,
        "client_cores": own / arguments.seconds,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "answer_ms_median": float(np.median(answered)),
        "answer_ms_p99": float(np.quantile(answered, 0.99)),
        "events": len(latencies),
        "latency_ms_median": float(np.median(latencies)) if latencies else None,
        "latency_ms_p99": float(np.quantile(latencies, 0.99)) if latencies else None,
    }


async def sensor(url: httpx.URL, number: int, values: np.ndarray, start: float) -> list[float]:
    """Send half a second when it has been measured; sensors do not begin at the same moment.

    By bare sockets: a hundred clients on the server's own cores must not take them away from it.
    """
    chunks = [
        {"stream": f"s{number}", "values": values[at : at + 125].tolist(), "offset": at, "store": False}
        for at in range(0, len(values), 125)
    ]
    requests = [request_of(json.dumps(chunk).encode()) for chunk in chunks]
    reader, writer = await asyncio.open_connection(url.host, url.port)
    times, phase = [], number / 200
    for n, request in enumerate(requests):
        await asyncio.sleep(max(start + phase + 0.5 * (n + 1) - time.perf_counter(), 0))
        sent = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
        await reader.readexactly(int(lengths[0]))
        times.append(time.perf_counter() - sent)
    writer.close()
    return times[2:]  # the first ones load what later ones find in memory


def request_of(body: bytes) -> bytes:
    head = f"POST /api/streams HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    return head.encode() + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def event_latencies(client: httpx.AsyncClient) -> list[float]:
    latencies = []
    for watch in (await client.get("/api/watches")).json()["watches"]:
        text = (await client.get(f"/api/watches/{watch['id']}/events", params={"wait_s": 0})).text
        lines = [line for line in text.splitlines() if line.startswith("data: ")]
        latencies += [json.loads(line.removeprefix("data: "))["latency_ms"] for line in lines]
    return latencies


def picture(arguments: argparse.Namespace) -> None:
    name, start_s = arguments.record, float(ventricular(arguments.data, arguments.record)[0]) - 1
    with Gallery.open(arguments.gallery, read_only=True, device="cpu") as gallery:
        assert gallery.model is not None
        rate_hz, others = float(gallery.about.clock_hz), f"record != '{name}'"
        watch = Watch.create(gallery, Span(name, start_s, start_s + 2), arguments.per_hour, where=others)
        record = wfdb.rdrecord(str(arguments.data / name))
        signal = Signal(record.p_signal, name, float(record.fs), tuple(record.sig_name)).resampled(rate_hz)
        watcher = Watcher(gallery.model, {"beat": watch})
        opened = watcher.open(name, signal.values.shape[1], rate_hz, signal.channels)
        ends, excess = list[int](), list[float]()
        level = watch.level()

        def noted(stops: np.ndarray, near: np.ndarray) -> np.ndarray:
            above = StreamLevel.excess(level, stops, near)
            ends.extend(stops.tolist())
            excess.extend(above.tolist())
            return above

        level.excess = noted  # type: ignore[assignment, method-assign]
        watcher._picker(opened, "beat")
        opened.levels["beat"] = level
        step = int(CHUNK_S * rate_hz)
        parts = [signal.values[at : at + step] for at in range(0, signal.length, step)]
        alarms = [one for part in parts for one in watcher.push(name, part)] + watcher.end(name)
    figure = drawn(
        signal, np.asarray(ends) / rate_hz, np.asarray(excess), watch, alarms, ventricular(arguments.data, name)
    )
    print(*save_all(figure, arguments.out), [round(one.start_s, 1) for one in alarms])


def drawn(
    signal: Signal, times: np.ndarray, excess: np.ndarray, watch: Watch, alarms: list[Alarm], beats: np.ndarray
) -> Any:
    """Above, how far all windows stand out, the threshold and the alarms; below, the signal round some of them."""
    plt = pyplot()
    figure = plt.figure(figsize=(9.5, 5.2), layout="constrained")
    rows = figure.add_gridspec(2, 3, height_ratios=(1.25, 1))
    whole = figure.add_subplot(rows[0, :])
    whole.plot(times / 60, np.maximum(excess, -1.5), color=FAINT, linewidth=0.6)
    whole.axhline(watch.excess, color=QUERY, linewidth=0.8, linestyle="--")
    whole.text(times[-1] / 60, watch.excess, f" {watch.false_alarms_per_hour:g} an hour", va="center", fontsize=8)
    right = [bool(np.any((beats > one.start_s) & (beats < one.stop_s))) for one in alarms]
    for kind, colour, label in ((True, RIGHT, "alarm at an annotated beat"), (False, WRONG, "alarm elsewhere")):
        some = [one for one, true in zip(alarms, right, strict=True) if true == kind]
        places = [one.grid_stop_s / 60 for one in some]
        whole.plot(
            places, [one.match.excess for one in some], "o", color=colour, markersize=4, label=f"{len(some)} {label}"
        )
    whole.plot(
        beats / 60, np.full(len(beats), -1.9), "|", color=QUERY, markersize=9, label=f"{len(beats)} annotated beats"
    )
    whole.set(xlabel="minutes of the stream", ylabel="excess over the stream's level", xlim=(0, times[-1] / 60))
    whole.legend(fontsize=8, frameon=False, loc="upper left", ncols=3, bbox_to_anchor=(0, 1.16))
    tidy(whole)
    chosen = [one for one, true in zip(alarms, right, strict=True) if true][1::3][:3]
    for column, one in enumerate(chosen):
        axes, first = figure.add_subplot(rows[1, column]), max(one.start_s - 2.0, 0.0)
        part = signal.window(round(first * signal.clock_hz), round((one.stop_s + 2.0) * signal.clock_hz))
        axes.plot(first + np.arange(part.length) / part.clock_hz, part.values[:, 0], color=QUERY, linewidth=0.8)
        axes.axvspan(one.start_s, one.stop_s, color=RIGHT, alpha=0.18, linewidth=0)
        axes.set(xlabel="seconds", ylabel=unit(part).removesuffix(", centred") if column == 0 else "")
        axes.set_title(f"{one.false_alarms_per_hour:.1g} false alarms an hour", fontsize=8)
        tidy(axes)
    return figure


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def process_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
