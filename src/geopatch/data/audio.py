"""Audio: one file as a signal, and a signal as frames of log-mel bands or cepstral coefficients."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data.source import check_file
from geopatch.errors import ConfigError, DataError, MissingExtraError, SignalError, at_least, one_of
from geopatch.signal import Signal, rate_text

SUFFIXES = (".flac", ".wav")
FEATURES = ("logmel", "mfcc")
RANGE_DB = 80.0  # what lies further below the loudest band of an utterance counts as silence
SIZE_UNKNOWN = (0, 0xFFFFFFFF)  # what writers that stream leave in a RIFF header


@dataclass(frozen=True)
class AudioConfig:
    """How sound becomes frames."""

    features: str = "logmel"
    bands: int = 40
    coefficients: int = 13  # kept of the cepstrum; for mfcc only
    window_s: float = 0.025
    hop_s: float = 0.010
    rate_hz: float = 16000.0  # of the sound; other rates are refused

    def __post_init__(self) -> None:
        one_of("features", self.features, FEATURES)
        at_least("bands", self.bands, 1)
        at_least("coefficients", self.coefficients, 1)
        at_least("rate_hz", self.rate_hz, 1)
        at_least("hop_s * rate_hz", self.hop_s * self.rate_hz, 1)
        at_least("window_s * rate_hz", self.window_s * self.rate_hz, 2)
        at_least("bands - coefficients", self.bands - self.coefficients if self.features == "mfcc" else 0, 0)

    @property
    def window(self) -> int:
        """Samples of one window."""
        return round(self.window_s * self.rate_hz)

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return round(self.hop_s * self.rate_hz)

    @property
    def frame_rate_hz(self) -> float:
        return self.rate_hz / self.hop

    @property
    def channels(self) -> tuple[str, ...]:
        if self.features == "mfcc":
            return tuple(f"mfcc {number}" for number in range(self.coefficients))
        return tuple(f"mel {number}" for number in range(self.bands))


def read_audio(path: str | Path, id: str | None = None) -> Signal:
    """A wav or flac file as its samples, between -1 and 1; its id is the file's name unless one is given."""
    path = check_file(path)
    soundfile = _soundfile()
    _check_whole(path)
    try:
        values, rate_hz = soundfile.read(str(path), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as audio: {' '.join(str(error).split())}; copy it again") from error
    if not len(values):
        raise DataError(f"{path} holds no sound: expected at least one sample, got 0; record or copy it again")
    try:
        return Signal.from_array(values, id=id or path.stem, rate_hz=float(rate_hz))
    except SignalError as error:
        raise DataError(f"{path}: {error}") from error


def sound_size(path: Path) -> int:
    """Samples times channels of a sound, by its header."""
    soundfile = _soundfile()
    try:
        about = soundfile.info(str(path))
    except (soundfile.SoundFileError, OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{path.name} cannot be read as audio: {' '.join(str(error).split())}; copy it again"
        ) from error
    return int(about.frames) * int(about.channels)


def audio_tags(path: Path) -> dict[str, str]:
    """What a sound file says of itself: title, artist, date, comment and the like."""
    soundfile = _soundfile()
    with soundfile.SoundFile(str(path)) as sound:
        tags: dict[str, str] = sound.copy_metadata()
    return {name: text.strip() for name, text in tags.items() if text.strip()}


def read_frames(path: str | Path, config: AudioConfig | None = None, id: str | None = None) -> Signal:
    """The frames of one file; what is wrong with it names the file."""
    config = config or AudioConfig()
    sound = read_audio(path, id)
    if sound.rate_hz != config.rate_hz:
        raise DataError(
            f"{path}: expected {config.rate_hz:g} Hz, got {rate_text(sound.rate_hz)}; "
            "resample the file, or give an AudioConfig of its rate"
        )
    try:
        return frames(sound, config)
    except SignalError as error:
        raise DataError(f"{path}: {error}") from error


def frames(sound: Signal, config: AudioConfig | None = None) -> Signal:
    """Log-mel bands or cepstral coefficients, as the config says."""
    config = config or AudioConfig()
    return mfcc(sound, config) if config.features == "mfcc" else log_mel(sound, config)


def log_mel(sound: Signal, config: AudioConfig | None = None) -> Signal:
    """Power in mel bands, in decibels, channels mixed: frame t is centred at t * hop_s."""
    config = config or AudioConfig()
    names = tuple(f"mel {number}" for number in range(config.bands))
    return _framed(sound, _decibels(sound, config), config, names)


def mfcc(sound: Signal, config: AudioConfig | None = None) -> Signal:
    """The first cepstral coefficients of the log-mel bands."""
    config = config or AudioConfig(features="mfcc")
    at_least("bands - coefficients", config.bands - config.coefficients, 0)
    cepstrum = _librosa().feature.mfcc(S=_decibels(sound, config), n_mfcc=config.coefficients)
    names = tuple(f"mfcc {number}" for number in range(config.coefficients))
    return _framed(sound, cepstrum, config, names)


def _framed(sound: Signal, bands: npt.NDArray[Any], config: AudioConfig, names: tuple[str, ...]) -> Signal:
    return Signal(bands.T, sound.id, config.frame_rate_hz, names, record=sound.record or sound.id)


def _decibels(sound: Signal, config: AudioConfig) -> npt.NDArray[np.float32]:
    """(bands, frames)"""
    _check_sound(sound, config)
    librosa, mono = _librosa(), sound.values.mean(axis=1)
    spectrum = librosa.stft(mono, n_fft=config.window, hop_length=config.hop)
    power = _filters(config.rate_hz, config.window, config.bands) @ np.abs(spectrum) ** 2
    decibels: npt.NDArray[np.float32] = librosa.power_to_db(power, top_db=RANGE_DB)
    return decibels


def _check_sound(sound: Signal, config: AudioConfig) -> None:
    if sound.rate_hz != config.rate_hz:
        raise SignalError(
            f"signal {sound.id!r}: expected {config.rate_hz:g} Hz, got {rate_text(sound.rate_hz)}; "
            "resample it, or give an AudioConfig of its rate"
        )
    if not sound.observed.all():
        raise SignalError(f"signal {sound.id!r} has samples that were not measured; cut them out or bridge them")
    if sound.length < config.window:
        raise SignalError(
            f"signal {sound.id!r} has {sound.length} samples, one window needs {config.window}; "
            "give a longer sound or a smaller window_s"
        )


@lru_cache(maxsize=8)
def _filters(rate_hz: float, window: int, bands: int) -> npt.NDArray[np.float32]:
    """(bands, frequencies). A band that no frequency falls into would be a constant channel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the same complaint, said below as one line
        filters: npt.NDArray[np.float32] = _librosa().filters.mel(sr=rate_hz, n_fft=window, n_mels=bands)
    if not filters.any(axis=1).all():
        raise ConfigError(
            f"bands must be fewer than {bands} for a window of {window} samples, some hold no frequency; "
            "give fewer bands or a longer window_s"
        )
    return filters


def _check_whole(path: Path) -> None:
    """A wav file that ends before its header says: the library would read what is there without a word."""
    with path.open("rb") as file:
        head = file.read(8)
    promised = int.from_bytes(head[4:8], "little")
    if head[:4] != b"RIFF" or promised in SIZE_UNKNOWN:
        return
    if path.stat().st_size + 1 < promised + 8:  # some writers count a padding byte that they leave out
        raise DataError(
            f"{path} is cut off: expected {promised + 8} bytes by its header, got {path.stat().st_size}; copy it again"
        )


def _soundfile() -> Any:
    try:
        import soundfile
    except ImportError as error:
        raise MissingExtraError("soundfile", "speech", "reading audio files") from error
    return soundfile


def _librosa() -> Any:
    try:
        import librosa
    except ImportError as error:
        raise MissingExtraError("librosa", "speech", "mel bands of sound") from error
    return librosa
