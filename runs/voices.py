"""Voices that no model has met: the sentences of CMU ARCTIC spoken by the synthesisers that Debian packages.

    apt-get install espeak-ng flite festival festvox-kallpc16k festvox-kdlpc16k festvox-us-slt-hts
    python runs/voices.py --data-root data --out /tmp/voices

One file of frames a voice comes out, `NAME.npz`: log-mel bands in decibels of all sentences, before any normalisation,
one after the other, with their ids and lengths. The real voices beside them are in the same form. The sound itself is
not kept.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import resample_poly

from geopatch.data.arctic import utterances
from geopatch.data.audio import AudioConfig, log_mel, read_audio
from geopatch.signal import Signal

SENTENCE = re.compile(r'\(\s*(\w+)\s+"(.*)"\s*\)')
REAL = ("bdl", "slt")
FRAMES = AudioConfig(normalise="none")  # decibels: what is normalised can be chosen later

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--voices", nargs="*", choices=(*REAL, *VOICES), default=(*REAL, *VOICES))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    texts = sentences(arguments.data_root)
    for name in arguments.voices:
        if not (arguments.out / f"{name}.npz").exists():
            made = recorded(name, arguments.data_root) if name in REAL else spoken(name, texts)
            write(arguments.out / f"{name}.npz", made)
