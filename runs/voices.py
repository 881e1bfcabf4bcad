"""Voices that no model has met: the sentences of CMU ARCTIC spoken by the synthesisers that Debian packages.

    apt-get install espeak-ng flite festival festvox-kallpc16k festvox-kdlpc16k festvox-us-slt-hts
    python runs/voices.py --data-root data --out /tmp/voices

One file of frames a voice comes out, `NAME.npz`: log-mel bands in decibels of all sentences, before any normalisation,
one after the other, with their ids and lengths. The real voices beside them are in the same form. The sound itself is
not kept.

    python runs/voices.py --out /tmp/voices --pack voices.npz

writes what `voices_train.py` needs of them as one file of a few megabytes: every second frame, in steps of a third of a
decibel. Of voices that choices may look at, the sentences of validation and test; of the others, those of the test.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import resample_poly

from geopatch.data.arctic import prompt_split, utterances
from geopatch.data.audio import DECIBELS, log_mel, read_audio
from geopatch.signal import Signal

SENTENCE = re.compile(r'\(\s*(\w+)\s+"(.*)"\s*\)')
REAL = ("bdl", "slt")
DEVELOPMENT = ("flite-kal16", "espeak-us-f2", "festival-slt")  # that choices may look at; all others only test
VALIDATION_SENTENCES = 100  # the last of those that train
LEVELS, FLOOR_DB = 255, 80.0
FRAMES = DECIBELS  # so that normalisations can be compared

Speak = Callable[[Mapping[str, str], Path], None]  # sentences by id, into a folder of ID.wav


def espeak(voice: str) -> Speak:
    """One process a sentence."""
    return lambda sentences, folder: _each(sentences, lambda id, text: _espeak(voice, text, folder / f"{id}.wav"))


def flite(voice: str) -> Speak:
    return lambda sentences, folder: _each(sentences, lambda id, text: _flite(voice, text, folder / f"{id}.wav"))


def festival(voice: str) -> Speak:
    """One process for all sentences: it takes long to start."""

    def speak(sentences: Mapping[str, str], folder: Path) -> None:
        lines = [f"(voice_{voice})"]
        for id, text in sentences.items():
            quoted = text.replace("\\", "").replace('"', "")
            lines.append(f'(utt.save.wave (utt.synth (Utterance Text "{quoted}")) "{folder / id}.wav" \'riff)')
        script = folder / "speak.scm"
        script.write_text("\n".join(lines), encoding="utf-8")
        subprocess.run(["festival", "-b", str(script)], check=True)

    return speak


@dataclass(frozen=True)
class Voice:
    """How a voice speaks, and whether it was made from the recordings of a voice that trains."""

    speak: Speak
    copy_of: str | None = None


VOICES: dict[str, Voice] = {
    "espeak-us": Voice(espeak("en-us")),
    "espeak-us-f2": Voice(espeak("en-us+f2")),
    "espeak-rp-m3": Voice(espeak("en-gb-x-rp+m3")),
    "espeak-scotland-f4": Voice(espeak("en-gb-scotland+f4")),
    "flite-awb": Voice(flite("awb")),
    "flite-kal16": Voice(flite("kal16")),
    "flite-rms": Voice(flite("rms")),
    "festival-ked": Voice(festival("ked_diphone")),
    "festival-slt": Voice(festival("cmu_us_slt_arctic_hts"), copy_of="slt"),
}


def _each(sentences: Mapping[str, str], speak: Callable[[str, str], None]) -> None:
    for id, text in sentences.items():
        speak(id, text)


def _espeak(voice: str, text: str, path: Path) -> None:
    subprocess.run(["espeak-ng", "-v", voice, "-w", str(path), "--", text], check=True)


def _flite(voice: str, text: str, path: Path) -> None:
    subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(path)], check=True)


def sentences(root: Path) -> dict[str, str]:
    """The text of each prompt that was recorded."""
    text = (root / "arctic" / "cmuarctic.data").read_text(encoding="utf-8")
    recorded = {one.prompt for one in utterances(root)}
    return {id: words for id, words in SENTENCE.findall(text) if id in recorded}


def at_16k(sound: Signal) -> Signal:
    """At the rate of the front end."""
    rate = int(sound.clock_hz)
    if rate == FRAMES.rate_hz:
        return sound
    values = resample_poly(sound.values, int(FRAMES.rate_hz), rate, axis=0).astype(np.float32)
    return Signal(values, sound.id, FRAMES.rate_hz, sound.channels)


def spoken(name: str, texts: Mapping[str, str]) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """The frames of each sentence by a synthesised voice."""
    with tempfile.TemporaryDirectory() as folder:
        VOICES[name].speak(texts, Path(folder))
        for id in texts:
            yield id, log_mel(at_16k(read_audio(Path(folder) / f"{id}.wav")), FRAMES).values


def recorded(name: str, root: Path) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """The frames of each sentence by a real voice."""
    for one in utterances(root):
        if one.speaker == name:
            yield one.prompt, log_mel(read_audio(one.path), FRAMES).values


def write(path: Path, frames: Iterator[tuple[str, npt.NDArray[np.float32]]]) -> None:
    ids, parts = zip(*frames, strict=True)
    lengths = np.asarray([len(part) for part in parts])
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, ids=np.asarray(ids), lengths=lengths, frames=np.concatenate(parts).astype(np.float16))
    partial.rename(path)
    print(f"{path.name}: {len(ids)} sentences, {lengths.sum() / FRAMES.frame_rate_hz / 60:.0f} minutes", flush=True)


def read(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The frames (T, bands) of a voice by sentence."""
    with np.load(path) as file:
        ids, lengths, stacked = (file[name] for name in ("ids", "lengths", "frames"))
    parts = np.split(stacked.astype(np.float32), np.cumsum(lengths)[:-1])
    return dict(zip(ids.tolist(), parts, strict=True))


def pack(folder: Path, path: Path) -> None:
    """Write what trainings and tests need as one small file."""
    voices, prompts, parts, peaks = [], [], [], []
    for name in (*REAL, *VOICES):
        frames = read(folder / f"{name}.npz")
        ids = np.asarray(sorted(frames))
        is_test = prompt_split(ids)
        kept = is_test.copy()
        if name in REAL:
            kept[:] = True
        elif name in DEVELOPMENT:
            kept[np.flatnonzero(~is_test)[-VALIDATION_SENTENCES:]] = True
        for id in ids[kept].tolist():
            values = frames[id][::2]
            peak = values.max()
            voices.append(name)
            prompts.append(id)
            peaks.append(peak)
            parts.append(np.clip(np.round((values - peak + FLOOR_DB) * LEVELS / FLOOR_DB), 0, LEVELS).astype(np.uint8))
    lengths = np.asarray([len(part) for part in parts])
    columns = {"voice": np.asarray(voices), "prompt": np.asarray(prompts), "peak": np.asarray(peaks, np.float32)}
    np.savez_compressed(path, lengths=lengths, frames=np.concatenate(parts), **columns)  # type: ignore[arg-type]
    print(f"{len(parts)} utterances of {len({*voices})} voices, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--voices", nargs="*", choices=(*REAL, *VOICES), default=(*REAL, *VOICES))
    arguments = parser.parse_args()
    if arguments.pack is not None:
        pack(arguments.out, arguments.pack)
        sys.exit()
    if arguments.data_root is None:
        parser.error("--data-root is needed to speak; give the folder that holds arctic")
    arguments.out.mkdir(parents=True, exist_ok=True)
    texts = sentences(arguments.data_root)
    for name in arguments.voices:
        if not (arguments.out / f"{name}.npz").exists():
            made = recorded(name, arguments.data_root) if name in REAL else spoken(name, texts)
            write(arguments.out / f"{name}.npz", made)
