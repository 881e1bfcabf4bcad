"""Speech: audio files good and damaged, their frames against a slow twin, and the split by prompt."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geopatch.data.arctic import load_arctic, prompt_split, utterances
from geopatch.data.audio import BEFORE, DECIBELS, AudioConfig, frames, log_mel, mfcc, read_audio, read_frames
from geopatch.data.cache import HEADER
from geopatch.data.prepare import prepare
from geopatch.errors import ConfigError, DataError, MissingExtraError, SignalError
from geopatch.signal import Signal

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("librosa")

DATA = Path(os.environ.get("GEOPATCH_DATA", "nowhere"))
SMALL = AudioConfig(bands=8, coefficients=5, window_s=0.016, hop_s=0.008, rate_hz=4000.0)
SMALL_DB = replace(SMALL, normalise="none", range_db=80.0, trim_db=None)


def tone(seconds: float = 0.2, rate_hz: float = 16000.0, pitch_hz: float = 440.0, seed: int = 0) -> Signal:
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    noise = np.random.default_rng(seed).normal(size=len(time))
    return Signal.from_array(0.4 * np.sin(2 * np.pi * pitch_hz * time) + 0.01 * noise, id="tone", rate_hz=rate_hz)


def write(path: Path, sound: Signal | None = None, **settings: Any) -> Path:
    sound = sound or tone()
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(str(path), sound.values, int(sound.clock_hz), **settings)
    return path


def write_arctic(folder: Path, prompts: int = 4, suffix: str = ".flac") -> Path:
    """Two speakers with different voices, utterances of unequal lengths."""
    for speaker, pitch_hz in (("bdl", 120.0), ("slt", 220.0)):
        for n in range(1, prompts + 1):
            path = folder / f"cmu_us_{speaker}_arctic" / "wav" / f"arctic_a{n:04d}{suffix}"
            write(path, tone(0.1 + 0.01 * n, pitch_hz=pitch_hz, seed=n))
    return folder


def naive_log_mel(sound: Signal, config: AudioConfig) -> npt.NDArray[np.float64]:
    """Frame by frame and band by band, from the definitions (Hann window, Slaney's mel scale and norm)."""
    size, hop = config.window, config.hop
    padded = np.pad(sound.values.mean(axis=1).astype(np.float64), size // 2)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    edges = mel_to_hz(np.linspace(0, hz_to_mel(config.rate_hz / 2), config.bands + 2))
    frequencies = np.arange(size // 2 + 1) * config.rate_hz / size
    rows = []
    for start in range(0, len(padded) - size + 1, hop):
        power = np.abs(np.fft.rfft(padded[start : start + size] * window)) ** 2
        row = []
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
            weights = [
                max(0.0, min((f - low) / (middle - low), (high - f) / (high - middle))) * 2 / (high - low)
                for f in frequencies
            ]
            row.append(10 * np.log10(max(float(np.dot(weights, power)), 1e-10)))
        rows.append(row)
    decibels = np.asarray(rows, dtype=np.float64)
    clipped: npt.NDArray[np.float64] = np.maximum(decibels, decibels.max() - config.range_db)
    return clipped


def naive_normalised(decibels: npt.NDArray[np.float64], config: AudioConfig) -> npt.NDArray[np.float64]:
    """The silence at both ends cut off, then band by band."""
    assert config.trim_db is not None
    loud = [place for place, row in enumerate(decibels) if max(row) > decibels.max() - config.trim_db]
    margin = round(0.03 / config.hop_s)
    kept = decibels[max(loud[0] - margin, 0) : loud[-1] + margin + 1]
    return np.stack([(band - band.mean()) / (band.std() or 1.0) for band in kept.T], axis=1)


def between_silences(rate_hz: float = 4000.0) -> Signal:
    """A tone of half a second with faint noise before and after it."""
    faint = 1e-5 * np.random.default_rng(1).normal(size=(3, round(0.25 * rate_hz)))
    values = np.concatenate([faint[0], tone(0.5, rate_hz).values[:, 0], faint[1], faint[2]])
    return Signal.from_array(values, id="tone", rate_hz=rate_hz)


def hz_to_mel(hz: float) -> float:
    return hz * 3 / 200 if hz < 1000 else 15 + np.log(hz / 1000) / (np.log(6.4) / 27)


def mel_to_hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))


@pytest.mark.parametrize("config", [SMALL_DB, DECIBELS, replace(DECIBELS, hop_s=0.0125, bands=20)])
def test_log_mel_equals_its_naive_twin(config: AudioConfig) -> None:
    sound = tone(rate_hz=config.rate_hz)
    found = log_mel(sound, config)
    np.testing.assert_allclose(found.values, naive_log_mel(sound, config), atol=0.02)
    assert found.rate_hz == pytest.approx(1 / config.hop_s)
    assert (found.id, found.record, len(found.channels)) == ("tone", "tone", config.bands)


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, range_db=30.0, trim_db=20.0)])
def test_each_band_is_normalised_over_the_utterance_as_its_naive_twin_does(config: AudioConfig) -> None:
    sound = between_silences()
    framed = log_mel(sound, config)
    np.testing.assert_allclose(framed.values, naive_normalised(naive_log_mel(sound, config), config), atol=0.02)
    assert framed.length < log_mel(sound, replace(config, trim_db=None)).length
    assert framed.start_s == pytest.approx(0.25 - 0.03, abs=0.02)


def test_a_microphone_that_colours_the_sound_hardly_changes_a_normalised_frame() -> None:
    swell = 1 + 0.9 * np.sin(np.arange(8000) / 900)
    sound = Signal.from_array(swell * np.random.default_rng(0).normal(size=8000), rate_hz=4000.0)
    tilted = Signal.from_array(np.convolve(sound.values[:, 0], [1.0, -0.9], mode="same"), rate_hz=4000.0)

    def apart(config: AudioConfig) -> float:
        one, other = (log_mel(part, config).values for part in (sound, tilted))
        return float(np.abs(one - other).mean() / one.std())

    assert apart(SMALL_DB) > 0.5
    assert apart(SMALL) < 0.2


def test_mfcc_is_the_cosine_transform_of_the_log_mel_bands() -> None:
    sound = tone(rate_hz=SMALL.rate_hz)
    bands = log_mel(sound, SMALL).values.astype(np.float64)
    n = np.arange(SMALL.bands)
    basis = np.stack([np.cos(np.pi * k * (2 * n + 1) / (2 * SMALL.bands)) for k in range(SMALL.coefficients)])
    basis *= np.sqrt(np.where(np.arange(SMALL.coefficients) == 0, 1, 2) / SMALL.bands)[:, None]
    found = mfcc(sound, SMALL)
    np.testing.assert_allclose(found.values, bands @ basis.T, rtol=1e-4, atol=1e-3)
    assert found.channels[0] == "mfcc 0"
    config = AudioConfig("mfcc", SMALL.bands, SMALL.coefficients, SMALL.window_s, SMALL.hop_s, SMALL.rate_hz)
    np.testing.assert_array_equal(frames(sound, config).values, found.values)
    assert config.channels == found.channels


def test_louder_sound_is_the_same_number_of_decibels_higher_everywhere() -> None:
    sound = tone(rate_hz=SMALL.rate_hz)
    louder = Signal.from_array(sound.values * 10, id="tone", rate_hz=SMALL.rate_hz)
    np.testing.assert_allclose(log_mel(louder, SMALL_DB).values - log_mel(sound, SMALL_DB).values, 20, atol=1e-3)
    np.testing.assert_allclose(log_mel(louder, SMALL).values, log_mel(sound, SMALL).values, atol=1e-3)


def test_silence_and_stereo_have_finite_frames() -> None:
    silence = Signal.from_array(np.zeros((1000, 2)), rate_hz=SMALL.rate_hz)
    found = log_mel(silence, SMALL)
    assert np.isfinite(found.values).all()
    assert np.ptp(found.values) == 0
    both = np.repeat(tone(rate_hz=SMALL.rate_hz).values, 2, axis=1)
    np.testing.assert_allclose(
        log_mel(Signal.from_array(both, rate_hz=4000.0), SMALL).values,
        log_mel(tone(rate_hz=4000.0), SMALL).values,
        atol=1e-4,
    )


def test_sound_that_cannot_be_framed_is_refused() -> None:
    with pytest.raises(SignalError, match=r"signal 'tone': expected 4000 Hz, got 16000 Hz; resample it"):
        log_mel(tone(), SMALL)
    with pytest.raises(SignalError, match="has 63 samples, one window needs 64; give a longer sound"):
        log_mel(Signal.from_array(np.ones(63), rate_hz=4000.0), SMALL)
    with pytest.raises(SignalError, match="not measured; cut them out"):
        log_mel(Signal.from_array([1.0, np.nan] * 50, rate_hz=4000.0), SMALL)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": "wavelets"}, "features must be one of logmel, mfcc, got 'wavelets'"),
        ({"bands": 0}, "bands must be at least 1, got 0"),
        ({"hop_s": 0.0}, r"hop_s \* rate_hz must be at least 1, got 0"),
        ({"window_s": float("nan")}, r"window_s \* rate_hz must be at least 2, got nan"),
        ({"normalise": "day"}, "normalise must be one of utterance, none, got 'day'"),
        ({"range_db": 0.0}, "range_db must be at least 1, got 0"),
        ({"trim_db": 0.0}, "trim_db must be at least 1, got 0"),
        ({"features": "mfcc", "coefficients": 41}, "bands - coefficients must be at least 0, got -1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AudioConfig(**settings)


def test_more_bands_than_frequencies_are_refused() -> None:
    with pytest.raises(ConfigError, match="bands must be fewer than 60 for a window of 64 samples"):
        log_mel(tone(rate_hz=4000.0), AudioConfig(bands=60, window_s=0.016, rate_hz=4000.0))


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
def test_a_file_gives_its_samples_back(tmp_path: Path, suffix: str) -> None:
    found = read_audio(write(tmp_path / f"hello{suffix}"))
    assert (found.id, found.rate_hz) == ("hello", 16000.0)
    np.testing.assert_allclose(found.values, tone().values, atol=2**-15)


def test_a_wav_of_another_rate_names_the_file_and_both_rates(tmp_path: Path) -> None:
    path = write(tmp_path / "slow.wav", tone(rate_hz=8000.0))
    with pytest.raises(DataError, match=r"slow\.wav: expected 16000 Hz, got 8000 Hz; resample the file"):
        read_frames(path)


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
@pytest.mark.parametrize("share", [0.005, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path: Path, suffix: str, share: float) -> None:
    path = write(tmp_path / f"cut{suffix}")
    whole = path.read_bytes()
    path.write_bytes(whole[: round(len(whole) * share)])
    with pytest.raises(DataError, match=rf"cut\{suffix} (cannot be read as audio|is cut off).*; copy it again"):
        read_audio(path)


def test_files_that_hold_no_sound_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.wav").touch()
    with pytest.raises(DataError, match=r"empty\.wav is empty \(0 bytes\)"):
        read_audio(tmp_path / "empty.wav")
    soundfile.write(str(tmp_path / "none.wav"), np.zeros(0), 16000)
    with pytest.raises(DataError, match=r"none\.wav holds no sound"):
        read_audio(tmp_path / "none.wav")
    (tmp_path / "text.wav").write_text("this is no sound\n" * 10)
    with pytest.raises(DataError, match=r"text\.wav cannot be read as audio"):
        read_audio(tmp_path / "text.wav")
    with pytest.raises(DataError, match=r"nothing\.wav: no such file"):
        read_audio(tmp_path / "nothing.wav")
    short = write(tmp_path / "short.wav", tone(0.01))
    with pytest.raises(DataError, match=r"short\.wav: signal 'short' has 160 samples, one window needs 400"):
        read_frames(short)
    infinite = np.zeros(1000)
    infinite[7] = np.inf
    soundfile.write(str(tmp_path / "inf.wav"), infinite, 16000, subtype="FLOAT")
    with pytest.raises(DataError, match=r"inf\.wav: signal 'inf' contains inf at sample 7"):
        read_audio(tmp_path / "inf.wav")


def test_utterances_have_ids_targets_and_their_own_length(tmp_path: Path) -> None:
    write_arctic(tmp_path / "arctic")
    for root in (tmp_path, tmp_path / "arctic"):
        found = load_arctic(root)
        assert [signal.id for signal in found.signals][:2] == ["bdl/arctic_a0001", "bdl/arctic_a0002"]
        assert [signal.record for signal in found.signals] == [signal.id for signal in found.signals]
        assert found.targets["prompt"].tolist() == [f"arctic_a{n:04d}" for n in (1, 2, 3, 4)] * 2
        assert found.targets["speaker"].tolist() == ["bdl"] * 4 + ["slt"] * 4
    assert [signal.length for signal in found.signals] == [12, 13, 14, 15] * 2
    assert {(signal.rate_hz, signal.channels[0], signal.values.shape[1]) for signal in found.signals} == {
        (100.0, "mel 0", 40)
    }


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    load_arctic(write_arctic(tmp_path, prompts=2), report=lambda *words: told.append(words))
    assert told == [("arctic", n, 4) for n in (1, 2, 3, 4)]


def test_an_utterance_that_is_there_twice_is_named(tmp_path: Path) -> None:
    write_arctic(tmp_path, prompts=2)
    write(tmp_path / "cmu_us_slt_arctic" / "wav" / "arctic_a0002.wav")
    with pytest.raises(
        DataError, match=r"utterance 'slt/arctic_a0002' is there twice, as .*a0002\.flac and .*a0002\.wav; remove one"
    ):
        utterances(tmp_path)


def test_a_folder_without_utterances_is_refused(tmp_path: Path) -> None:
    assert utterances(tmp_path) == ()
    with pytest.raises(DataError, match=r"no utterances in .*arctic or .*; give the folder that holds cmu_us_"):
        load_arctic(tmp_path)


def test_a_damaged_utterance_stops_the_loading_with_its_name(tmp_path: Path) -> None:
    write_arctic(tmp_path, prompts=2)
    path = tmp_path / "cmu_us_bdl_arctic" / "wav" / "arctic_a0002.flac"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"cmu_us_bdl_arctic/wav/arctic_a0002\.flac cannot be read as audio"):
        load_arctic(tmp_path)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=60), st.floats(0.01, 0.99))
def test_no_prompt_is_on_both_sides(numbers: list[int], share: float) -> None:
    prompts = np.asarray([f"a{number:04d}" for number in numbers])
    if len(set(numbers)) < 2:
        with pytest.raises(DataError, match="expected at least two prompts"):
            prompt_split(prompts, share)
        return
    is_test = prompt_split(prompts, share)
    assert is_test.any()
    assert not is_test.all()
    assert not set(prompts[is_test]) & set(prompts[~is_test])
    order = np.random.default_rng(0).permutation(len(prompts))
    np.testing.assert_array_equal(prompt_split(prompts[order], share), is_test[order])


def test_a_quarter_of_the_prompts_tests() -> None:
    prompts = [f"arctic_a{n:04d}" for n in range(1, 594)] * 2
    is_test = prompt_split(prompts)
    assert is_test.sum() == 2 * 148
    assert min(np.asarray(prompts)[is_test].tolist()) == "arctic_a0446"
    with pytest.raises(ConfigError, match=r"test_share must lie between 0 and 1, got 1\.5"):
        prompt_split(prompts, 1.5)


@pytest.mark.parametrize("library", ["soundfile", "librosa"])
def test_without_its_libraries_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    path = write(tmp_path / "tone.wav")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"needs {library}, .* pip install 'geopatch-ts\[speech\]'"):
        read_frames(path)


@pytest.mark.skipif(not (DATA / "arctic").is_dir(), reason="GEOPATCH_DATA names no folder of data sets")
def test_both_speakers_read_the_same_593_prompts() -> None:
    found = load_arctic(DATA)
    prompts = {
        speaker: set(found.targets["prompt"][found.targets["speaker"] == speaker].tolist())
        for speaker in ("bdl", "slt")
    }
    assert prompts["bdl"] == prompts["slt"] == {f"arctic_a{n:04d}" for n in range(1, 594)}
    assert len(found) == 2 * 593
    assert all(np.isfinite(signal.values).all() for signal in found.signals)
    assert min(signal.length for signal in found.signals) > 50


def test_a_cache_of_decibels_stays_one_when_it_is_made_anew(tmp_path: Path) -> None:
    write_arctic(tmp_path / "root" / "arctic")
    header = prepare("arctic", tmp_path / "root", tmp_path, config=DECIBELS).cache.folder / HEADER
    kept = json.loads(header.read_text())
    settings = {name: value for name, value in kept["settings"].items() if name not in BEFORE}  # as version 0.1 wrote
    header.write_text(json.dumps({**kept, "settings": settings, "source": "other files"}))
    again = prepare("arctic", tmp_path / "root", tmp_path)
    assert again.built
    assert again.cache.header.settings["normalise"] == "none"
    assert prepare("arctic", tmp_path / "root", tmp_path / "new").cache.header.settings["normalise"] == "utterance"
