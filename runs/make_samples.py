"""Make the built-in samples from the original files: BasicMotions (.ts) and six records of mitdb (.dat .hea .atr).

python runs/make_samples.py --data-root DATA
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data import Collection, load_split
from geopatch.errors import DataError

SAMPLES = Path(__file__).parents[1] / "src" / "geopatch" / "data" / "samples"
EXCERPT_S = 180
START_MINUTE = {"100": 24, "106": 12, "119": 18, "200": 24, "208": 21, "213": 6}  # where rhythms mix most

# Codes of the MIT annotation format (WFDB ecgcodes.h) that are beats.
BEATS = {1: "N", 2: "L", 3: "R", 4: "a", 5: "V", 6: "F", 7: "J", 8: "A", 9: "S", 10: "E", 11: "j", 12: "/", 13: "Q"}
BEATS |= {25: "B", 30: "?", 34: "e", 35: "n", 38: "f", 41: "r"}
SKIP, AUX, MODIFIERS = 59, 63, (60, 61, 62)  # long interval; text; number, subtype, channel


@dataclass(frozen=True, eq=False)
class Excerpt:
    record: str
    rate_hz: int
    leads: list[str]
    gain: list[float]  # adu per mV
    baseline: list[int]
    adu: npt.NDArray[np.int16]  # (T, C)
    beats: list[tuple[int, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, required=True, help="folder with BasicMotions and mitdb in it")
    parser.add_argument("--out", type=Path, default=SAMPLES)
    arguments = parser.parse_args()
    save(arguments.out / "BasicMotions.npz", basic_motions(*load_split("BasicMotions", arguments.data_root)))
    folder = arguments.data_root / "mitdb"
    save(arguments.out / "mitdb.npz", mitdb([read_excerpt(folder, *item) for item in START_MINUTE.items()]))


def save(path: Path, arrays: dict[str, Any]) -> None:
    np.savez_compressed(path, **arrays)
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


def basic_motions(train: Collection, test: Collection) -> dict[str, Any]:
    parts = {"train": train, "test": test}
    X = {f"X_{part}": np.stack([signal.values for signal in it.signals]) for part, it in parts.items()}
    return X | {f"y_{part}": it.labels for part, it in parts.items()}


def mitdb(excerpts: list[Excerpt]) -> dict[str, Any]:
    beats = [(n, sample, symbol) for n, excerpt in enumerate(excerpts) for sample, symbol in excerpt.beats]
    return {
        "records": np.asarray([excerpt.record for excerpt in excerpts]),
        "start_s": np.asarray([START_MINUTE[excerpt.record] * 60 for excerpt in excerpts]),
        "rate_hz": np.asarray(excerpts[0].rate_hz),
        "leads": np.asarray([excerpt.leads for excerpt in excerpts]),
        "gain": np.asarray([excerpt.gain for excerpt in excerpts], dtype=np.float32),
        "baseline": np.asarray([excerpt.baseline for excerpt in excerpts], dtype=np.int16),
        "adu": np.stack([excerpt.adu for excerpt in excerpts]),
        "beat_record": np.asarray([n for n, _, _ in beats], dtype=np.uint8),
        "beat_samples": np.asarray([sample for _, sample, _ in beats], dtype=np.int32),
        "beat_symbols": np.asarray([symbol for _, _, symbol in beats]),
    }


def read_excerpt(folder: Path, record: str, minute: int) -> Excerpt:
    first, *leads = (folder / f"{record}.hea").read_text().splitlines()[:3]
    rate_hz = int(first.split()[2])
    fields = [lead.split() for lead in leads]
    adu = decode_212((folder / f"{record}.dat").read_bytes())
    check_sums(record, adu, [int(field[6]) for field in fields])
    start = minute * 60 * rate_hz
    stop = start + EXCERPT_S * rate_hz
    beats = [(at - start, symbol) for at, symbol in decode_beats((folder / f"{record}.atr").read_bytes())]
    return Excerpt(
        record,
        rate_hz,
        leads=[field[8] for field in fields],
        gain=[float(field[2]) for field in fields],
        baseline=[int(field[4]) for field in fields],
        adu=adu[start:stop],
        beats=[(at, symbol) for at, symbol in beats if 0 <= at < stop - start],
    )


def decode_212(data: bytes) -> npt.NDArray[np.int16]:
    """Two samples of 12 bits in 3 bytes: low byte, both high nibbles, low byte. (T, 2)"""
    low, middle, high = np.frombuffer(data, np.uint8).reshape(-1, 3).astype(np.int16).T
    pairs = np.stack([low | ((middle & 0x0F) << 8), high | ((middle & 0xF0) << 4)], axis=1)
    return np.where(pairs > 2047, pairs - 4096, pairs).astype(np.int16)


def check_sums(record: str, adu: npt.NDArray[np.int16], expected: list[int]) -> None:
    """The header holds the sum of each lead as a signed 16 bit number."""
    sums = adu.sum(axis=0, dtype=np.int64).astype(np.int16).tolist()
    if sums != expected:
        raise DataError(f"{record}.dat: expected checksums {expected}, as in the header, got {sums}")


def decode_beats(data: bytes) -> list[tuple[int, str]]:
    """Sample and symbol of each beat: words of 6 bits of code and 10 bits of time since the one before."""
    words = np.frombuffer(data, "<u2").tolist()
    at, n, beats = 0, 0, []
    while n < len(words) and words[n]:
        code, interval = words[n] >> 10, words[n] & 0x3FF
        n += 1
        if code == SKIP:
            at += int(np.int32(np.uint32((words[n] << 16) | words[n + 1])))
            n += 2
        elif code == AUX:
            n += (interval + 1) // 2
        elif code not in MODIFIERS:
            at += interval
            if code in BEATS:
                beats.append((at, BEATS[code]))
    return beats


if __name__ == "__main__":
    main()
