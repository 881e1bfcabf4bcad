"""The command line: what it does, what it prints, and one line for whatever a user can cure."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from commands import Run, runner

from geopatch.cli import fit, options
from geopatch.cli.app import VERBS
from geopatch.cli.tables import print_summaries
from geopatch.config import PRESETS, ModelConfig, TrainConfig
from geopatch.data import read
from geopatch.errors import ConfigError, GeoPatchError
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Summary, read_rows, retrieval
from geopatch.model import digest
from geopatch.version import __version__

MODEL = ModelConfig(halves=("learned",), patch_length=4, max_patches=4, width=16, embedding=8, layers=1, heads=1)
TRAIN = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=4)
TINY = ["--patch-length=4", "--max-patches=4", "--width=16", "--embedding=8", "--layers=1", "--heads=1"]
TINY += ["--halves=learned", "--epochs=1", "--min-steps=2", "--max-steps=2", "--batch-size=4", "--device=cpu"]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`geopatch` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEOPATCH_DATA", raising=False)

    return runner(capsys)


def in_process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "geopatch", *arguments], capture_output=True, text=True, cwd=cwd, env=environment
    )


def waves(count: int = 8, channels: int = 1, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, 20)[:, None] + np.zeros(channels)
    X = [np.sin(2 * np.pi * (1 + 2 * (n % 2)) * time + rng.uniform()) + 0.1 * rng.normal() for n in range(count)]
    return np.asarray(X), np.asarray(["slow", "fast"] * count)[:count]


def write_ts(path: Path, count: int, seed: int) -> None:
    X, y = waves(count, seed=seed)
    rows = [",".join(map(str, values[:, 0])) + f":{label}" for values, label in zip(X, y, strict=True)]
    path.write_text("@classLabel true slow fast\n@data\n" + "\n".join(rows) + "\n")


def write_npz(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A labelled file in the folder the command runs in."""
    X, y = waves()
    write_npz(tmp_path / "waves.npz", X=X, y=y)
    return tmp_path / "waves.npz"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A data set with a train and a test split."""
    (tmp_path / "sets" / "Waves").mkdir(parents=True)
    write_ts(tmp_path / "sets" / "Waves" / "Waves_TRAIN.ts", 8, seed=0)
    write_ts(tmp_path / "sets" / "Waves" / "Waves_TEST.ts", 6, seed=1)
    return tmp_path / "sets"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> GeoPatch:
    return GeoPatch(model=MODEL, train=TRAIN, device="cpu").fit(*waves())


@pytest.fixture
def model(trained: GeoPatch, tmp_path: Path) -> Path:
    trained.save(tmp_path / "model")
    return tmp_path / "model"


def listing(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too, with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


# What the verbs do


def test_fit(run: Run, data: Path, trained: GeoPatch) -> None:
    ran = run("fit", data, "--out", "model", *TINY)
    assert (ran.code, ran.out) == (0, f"fitted to 8 windows of {data}; saved to model\n")
    assert "step 2 of 2" in ran.err
    loaded = GeoPatch.load(data.parent / "model")
    assert digest(loaded.encoder_) == digest(trained.encoder_)
    assert {path.name for path in data.parent.iterdir()} == {"waves.npz", "model"}


def test_fit_for_machines(run: Run, data: Path, trained: GeoPatch) -> None:
    ran = run("fit", data, "--out", "model", "--json", *TINY)
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert told["model"] == "model"
    assert told["digest"] == digest(trained.encoder_)
    assert (told["windows"], told["classes"], told["steps"]) == (8, 2, 2)
    assert told["data_digest"] == trained.card_.data["digest"]


def test_fit_a_data_set_by_name(run: Run, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("fit", "Waves", "--data-root", archive, "--out", "one", *TINY).code == 0
    monkeypatch.setenv("GEOPATCH_DATA", str(archive))
    assert run("fit", "Waves", "--out", "two", *TINY).code == 0
    assert run("fit", archive / "Waves", "--out", "three", *TINY).code == 0
    digests = {digest(GeoPatch.load(archive.parent / name).encoder_) for name in ("one", "two", "three")}
    assert len(digests) == 1


def test_encode(run: Run, data: Path, model: Path) -> None:
    ran = run("encode", data, "--model", model, "--out", "vectors.npz", "--device", "cpu")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "encoded 8 windows as 8 numbers each; saved to vectors.npz\n"
    expected = GeoPatch.load(model, device="cpu").encode(read(data).signals)
    with np.load(data.parent / "vectors.npz", allow_pickle=False) as found:
        assert set(found) == {"ids", "embedding", "tokens", "valid", "starts"}
        assert tuple(found["ids"]) == expected.ids
        for name in ("embedding", "tokens", "valid", "starts"):
            np.testing.assert_array_equal(found[name], getattr(expected, name))


def test_encode_for_machines(run: Run, data: Path, model: Path) -> None:
    ran = run("encode", data, "--model", model, "--out", "vectors.npz", "--json")
    assert json.loads(ran.out) == {"out": "vectors.npz", "windows": 8, "embedding": 8, "tokens": [4, 16]}


def test_evaluate(run: Run, archive: Path) -> None:
    ran = run("evaluate", "Waves", "--data-root", archive, "--seeds", "0-1", "--rows", "new/rows.jsonl", *TINY)
    assert ran.code == 0
    assert "Waves, class, default preset, seed 0" in ran.err
    assert "Waves, class, default preset, seed 1" in ran.err
    table = ran.out.splitlines()
    assert "retrieval on the test split (default)" in table[0]
    assert table[1].split() == ["data", "queries", "scorer", "R@1", "R@5", "MRR", "mAP", "seeds"]
    assert [line.split()[:3] for line in table if line.startswith("Waves")] == [
        ["Waves", stress, scorer] for stress in ("clean", "warped") for scorer in ("fused", "cosine")
    ]
    rows = read_rows(archive.parent / "new" / "rows.jsonl")
    assert [row.seed for row in rows] == [0] * 4 + [1] * 4
    assert {row.data for row in rows} == {"Waves_TEST"}


def test_evaluate_for_machines(run: Run, archive: Path) -> None:
    ran = run("evaluate", archive / "Waves", "--json", *TINY)
    assert (ran.code, ran.err) == (0, "")
    rows = json.loads(ran.out, parse_constant=pytest.fail)
    assert [(row["stress"], row["scorer"], row["queries"]) for row in rows] == [
        (stress, scorer, 6) for stress in ("clean", "warped queries") for scorer in ("fused", "cosine")
    ]


def test_evaluate_a_trained_model(run: Run, data: Path, model: Path) -> None:
    (first, *_), again = (
        json.loads(run("evaluate", data, data, "--model", model, "--json").out),
        run("evaluate", data, "--model", model).out,
    )
    assert (first["data"], first["seed"], first["queries"]) == ("waves", 0, 8)
    assert "retrieval on the test split" in again


def test_rows_are_kept_when_a_later_data_set_fails(run: Run, archive: Path) -> None:
    ran = run("evaluate", "Waves", "Wave", "--data-root", archive, "--rows", "rows.jsonl", "--json", *TINY)
    assert ran.code == 2
    assert len(read_rows(archive.parent / "rows.jsonl")) == 4


# Help and flags


def test_help_is_light() -> None:
    """It lists the verbs and loads nothing that takes a second to load."""
    code = "import sys\nfrom geopatch.cli import main\nmain(['--help'])\nprint('loaded', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told, _, loaded = done.stdout.rpartition("loaded")
    for verb, meaning in VERBS.items():
        assert f"{verb} " in told
        assert meaning in told
    assert {"torch", "rich", "sklearn", "scipy", "polars", "numpy"} & set(loaded.split()) == set()


@pytest.mark.parametrize("arguments", ["--help", "fit --help"])
def test_help_answers_within_300_ms_of_cpu_time(arguments: str) -> None:
    code = "import resource, sys\nfrom geopatch.cli import main\n"
    code += f"try: main({arguments.split()!r})\nexcept SystemExit: pass\n"
    code += "used = resource.getrusage(resource.RUSAGE_SELF)\nprint(used.ru_utime + used.ru_stime)"
    seconds = [float(subprocess.check_output([sys.executable, "-c", code], text=True).split()[-1]) for _ in range(3)]
    assert min(seconds) < 0.3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_verbs_flags_and_choices(shell: str) -> None:
    def completed(*words: str) -> str:
        number = words[-1] if shell == "fish" else str(len(words) - 1)  # fish gives the word, the others its number
        line = " ".join(words[:-1] if shell == "fish" else words)
        variables = {"_GEOPATCH_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": number}
        command = [sys.executable, "-m", "geopatch"]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}).stdout

    assert "fit" in completed("geopatch", "fi")
    assert "--preset" in completed("geopatch", "fit", "--pre")
    assert "paper" in completed("geopatch", "fit", "--preset", "p")


def test_without_a_verb_there_is_help(run: Run) -> None:
    assert run() == run("--help")
    assert run().code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, run: Run) -> None:
    ran = run(verb, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: geopatch {verb} ")


def test_version(run: Run) -> None:
    assert run("--version").out == f"geopatch, version {__version__}\n"


@pytest.mark.parametrize("verb", ["fit", "evaluate"])
def test_every_setting_is_a_flag(verb: str, run: Run) -> None:
    told = run(verb, "--help").out
    renamed = {"amplitude": "view-amplitude", "reconstruction": "reconstruction-weight"}
    flags = {field.name.replace("_", "-") for field in dataclasses.fields(ModelConfig)}
    flags |= {renamed.get(f.name, f.name.replace("_", "-")) for f in dataclasses.fields(TrainConfig)}
    missing = [
        flag
        for flag in flags - {"channels", "length", "patch-count", "bands"}
        if f"--{flag}" not in told.replace(",", " ").split()
    ]
    assert not missing
    assert "--no-gate" in told
    text = " ".join(told.split())
    assert "Largest learning rate, reached after the warm-up. [default: 0.001]" in text
    assert "Share of features dropped in training. [default: 0.05; paper: 0.2]" in text
    assert "What the encoder is made of. Of kernels, learned. [default: all; instant: kernels; paper: learned]" in text
    assert "or the paper's. [default: (default with labels, instant without)]" in text
    assert "[train]" not in text


def test_no_two_flags_have_one_name() -> None:
    names = [name for option in fit.command.params for name in (*option.opts, *option.secondary_opts)]
    assert len(names) == len(set(names))


def given(*flags: str) -> dict[str, Any]:
    """The flags as the command gets them."""

    @click.command()
    @options.config_flags
    def command(**found: Any) -> dict[str, Any]:
        return found

    found: dict[str, Any] = command.main(list(flags), standalone_mode=False)
    return found


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        ([], {}),
        (["--patch-length", "8"], {"patch_length": 8}),
        (["--no-gate"], {"gate": False}),
        (["--gate", "--curvature-channel"], {"gate": True, "curvature_channel": True}),
        (["--descriptors", "slope,curvature"], {"descriptors": ("slope", "curvature")}),
        (["--descriptors", ""], {"descriptors": ()}),
        (["--stride", "3"], {"stride": 3}),
        (["--amplitude", "both"], {"amplitude": "both"}),
        (["--reconstruction", "head"], {"reconstruction": "head"}),
        (["--dropout", "0"], {"dropout": 0.0}),
    ],
)
def test_flags_reach_the_model(flags: list[str], changes: dict[str, Any]) -> None:
    for preset in ("default", "paper"):
        assert options.model_config(preset, given(*flags)) == dataclasses.replace(PRESETS[preset], **changes)
    assert options.train_config(given(*flags)) == TrainConfig()


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (["--learning-rate", "0.01"], {"learning_rate": 0.01}),
        (["--view-amplitude", "0.3"], {"amplitude": 0.3}),
        (["--robust-to", "noise,drop"], {"robust_to": ("noise", "drop")}),
        (["--reconstruction-weight", "0.5"], {"reconstruction": 0.5}),
        (["--precision", "float32"], {"precision": "float32"}),
    ],
)
def test_flags_reach_the_training(flags: list[str], changes: dict[str, Any]) -> None:
    assert options.train_config(given(*flags)) == dataclasses.replace(TrainConfig(), **changes)
    assert options.model_config("default", given(*flags)) == PRESETS["default"]


@pytest.mark.parametrize("flag", ["--max-steps=3", "--no-gate", "--reconstruction-weight=1", "--kernel-share=0.4"])
def test_flags_of_the_trained_half_are_refused_without_one(flag: str) -> None:
    name = flag.partition("=")[0].replace("--no-", "--")
    with pytest.raises(ConfigError, match=f"^{name} is for the half that is trained.*or --preset default"):
        options.model_config("instant", given(flag))
    with pytest.raises(ConfigError, match=f"^{name} is for the half that is trained"):
        options.model_config("default", given(flag, "--halves=kernels"))


@pytest.mark.parametrize(
    "flag", ["--width=32", "--embedding=8", "--amplitude=zscore", "--patch-length=8", "--warp=0.1", "--robust-to=noise"]
)
def test_flags_of_both_halves_reach_fixed_kernels(flag: str) -> None:
    assert options.model_config("instant", given(flag)).halves == ("kernels",)


def test_the_preset_follows_the_labels() -> None:
    assert [options.preset_for(None, labelled=labelled) for labelled in (True, False)] == ["default", "instant"]
    assert options.preset_for("paper", labelled=False) == "paper"


def test_fit_without_labels_fits_fixed_kernels(run: Run, data: Path) -> None:
    write_npz(data.parent / "bare.npz", X=waves()[0])
    for command in (["waves.npz", "--unlabelled"], ["bare.npz"], ["waves.npz", "--preset", "instant"]):
        ran = run("fit", *command, "--out", "model", "--force", "--device=cpu", "--embedding=8", "--json")
        assert (ran.code, ran.err) == (0, "")
        loaded = GeoPatch.load(data.parent / "model")
        assert loaded.encoder_.config.halves == ("kernels",)
        assert loaded.encoder_.config.length == 20
    assert json.loads(ran.out)["classes"] == 2
    for command in (["waves.npz", "--unlabelled"], ["bare.npz"]):
        ran = run("fit", *command, "--out", "other", "--max-steps=3")
        assert (ran.code, ran.out) == (2, "")
        assert "--max-steps is for the half that is trained" in ran.err


def test_fit_takes_groups_from_a_column(run: Run, data: Path) -> None:
    signals, labels = waves()
    lines = ["sample,label,device," + ",".join(f"t{n}" for n in range(len(signals[0])))]
    for n, (signal, label) in enumerate(zip(signals, labels, strict=True)):
        lines.append(f"w{n},{label},box {n // 2}," + ",".join(map(str, np.ravel(signal))))
    (data.parent / "boxes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    small = ("--out", "model", "--force", "--device=cpu", "--embedding=8", "--preset=instant", "--json")
    ran = run("fit", "boxes.csv", "--groups", "device", *small)
    assert (ran.code, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert report["groups"] == 4
    assert set(report["amplitude"]["recall@1"]) == {"keep", "zscore"}
    ran = run("fit", "boxes.csv", "--groups", "nurse", *small)
    assert (ran.code, ran.out) == (2, "")
    assert "groups of boxes.csv must be one of" in ran.err


def test_fit_with_labels_fits_both_halves(run: Run, data: Path) -> None:
    flags = [flag for flag in TINY if not flag.startswith("--halves")]
    assert run("fit", data, "--out", "model", *flags).code == 0
    assert run("encode", data, "--model", "model", "--out", "codes.npz").code == 0
    with np.load(data.parent / "codes.npz") as codes:
        assert codes["embedding"].shape == (8, 16)


def test_flags_reach_the_saved_model(run: Run, data: Path) -> None:
    flags = ["--preset", "paper", "--patch-length", "8", "--no-gate", "--descriptors", "slope,curvature"]
    ran = run("fit", data, "--out", "model", *TINY, *flags, "--noise", "0.5", "--seed", "7", "--unlabelled", "--json")
    loaded = GeoPatch.load(data.parent / "model")
    config = loaded.encoder_.config
    assert (config.patch_length, config.gate, config.descriptors) == (8, False, ("slope", "curvature"))
    assert (config.stem, config.width, config.channels) == ("patch", 16, 1)
    assert (loaded.train_config.noise, loaded.train_config.batch_size, loaded.seed_) == (0.5, 4, 7)
    assert json.loads(ran.out)["classes"] == 0


@pytest.mark.parametrize(("text", "seeds"), [("3", [3]), ("0-2", [0, 1, 2]), ("0,5-6", [0, 5, 6])])
def test_seeds(text: str, seeds: list[int]) -> None:
    assert options.seed_list(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "-1", "2-1", "0,3-2", "1.5", "0..2", "0,", "1-x"])
def test_bad_seeds(text: str) -> None:
    with pytest.raises(ConfigError, match="seeds must"):
        options.seed_list(text)


# What goes wrong


def bad_npz(**arrays: Any) -> Callable[[Path], object]:
    return lambda folder: write_npz(folder / "bad.npz", **arrays)


def bad_file(name: str, content: str | bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def truncated(folder: Path) -> None:
    weights = folder / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])


def state_of_another_training(folder: Path) -> None:
    estimator = GeoPatch(model=MODEL, train=TRAIN, random_state=1, device="cpu")
    estimator.fit(*waves(), resume=folder / ".new.training")


def nothing(folder: Path) -> None:
    pass


X, Y = waves()
NAN = X.copy()
NAN[3] = np.nan
CSV = "id,x,label\n"
FIT = ["--out", "new", *TINY]
ENCODE = ["--model", "model", "--out", "vectors.npz"]

# what is prepared in the folder, the command, what the line must say
BAD: dict[str, tuple[Callable[[Path], object], Sequence[str], str]] = {
    "other channels": (bad_npz(X=waves(channels=2)[0]), ["encode", "bad.npz", *ENCODE], "trained on 1 channel(s)"),
    "other channels, evaluate": (
        bad_npz(X=waves(channels=2)[0], y=Y),
        ["evaluate", "bad.npz", "--model", "model"],
        "trained on 1 channel(s), these signals have 2",
    ),
    "all NaN": (bad_npz(X=NAN, y=Y), ["fit", "bad.npz", *FIT], "bad.npz: signal '3' is all NaN"),
    "inf": (bad_npz(X=X * np.inf, y=Y), ["fit", "bad.npz", *FIT], "contains inf"),
    "no signals": (bad_npz(X=X[:0]), ["fit", "bad.npz", *FIT], "bad.npz"),
    "empty file": (bad_file("bad.csv", ""), ["fit", "bad.csv", *FIT], "bad.csv is empty (0 bytes)"),
    "empty file, encode": (bad_file("bad.csv", ""), ["encode", "bad.csv", *ENCODE], "is empty (0 bytes)"),
    "no rows": (bad_file("bad.csv", CSV), ["fit", "bad.csv", *FIT], "column names but no rows"),
    "too few labels": (bad_npz(X=X, y=Y[:-1]), ["fit", "bad.npz", *FIT], "8 signals but labels of shape (7,)"),
    "two labels": (bad_file("bad.csv", f"{CSV}a,1,u\na,2,v\n"), ["fit", "bad.csv", *FIT], "'a' has two labels"),
    "text among numbers": (
        bad_file("bad.csv", f"{CSV}a,1,u\na,high,u\n"),
        ["fit", "bad.csv", *FIT],
        "bad.csv: line 3: expected a number in column 'x', got 'high'",
    ),
    "text among numbers, .ts": (
        bad_file("bad.ts", "@classLabel false\n@data\n1,2,x\n"),
        ["encode", "bad.ts", *ENCODE],
        "bad.ts line 3: expected a number, got 'x'",
    ),
    "no text": (bad_file("bad.tsv", b"a\t1\t\0\n"), ["fit", "bad.tsv", *FIT], "bad.tsv holds binary data"),
    "garbage": (bad_file("bad.npz", b"PK\x03\x04 nonsense"), ["fit", "bad.npz", *FIT], "bad.npz is no .npz archive"),
    "unknown suffix": (bad_file("bad.xyz", "1"), ["fit", "bad.xyz", *FIT], "cannot read .xyz; expected .csv, .tsv"),
    "unknown suffix, encode": (bad_file("bad.xyz", "1"), ["encode", "bad.xyz", *ENCODE], "cannot read .xyz"),
    "missing file": (nothing, ["fit", "gone.csv", *FIT], "gone.csv: no such file"),
    "missing file, encode": (nothing, ["encode", "gone.csv", *ENCODE], "gone.csv: no such file"),
    "missing file, evaluate": (nothing, ["evaluate", "gone.npz", "--model", "model"], "gone.npz: no such file"),
    "folder without data": (nothing, ["encode", "model", *ENCODE], "model has no file that can be read"),
    "unknown data set": (nothing, ["fit", "Waves", *FIT], "no data set 'Waves'"),
    "unknown data set, evaluate": (nothing, ["evaluate", "Waves", *TINY], "no data set 'Waves'"),
    "no data root": (nothing, ["fit", "Waves", "--data-root", "gone", *FIT], "gone is no folder"),
    "no labels": (bad_npz(X=X), ["evaluate", "bad.npz", "--model", "model"], "bad has no labels"),
    "lone labels": (
        bad_npz(X=X, y=np.arange(8)),
        ["evaluate", "bad.npz", "--model", "model"],
        "no two windows of bad have the same label",
    ),
    "truncated model": (truncated, ["encode", "waves.npz", *ENCODE], "weights.safetensors is truncated or changed"),
    "truncated model, evaluate": (truncated, ["evaluate", "waves.npz", "--model", "model"], "is truncated or changed"),
    "no model": (nothing, ["encode", "waves.npz", "--model", "gone", "--out", "v.npz"], "gone is no model folder"),
    "file as model": (nothing, ["encode", "waves.npz", "--model", "waves.npz", "--out", "v.npz"], "is no model folder"),
    "bad seeds": (nothing, ["evaluate", "waves", "--seeds", "2-1"], "seeds must name at least one, got '2-1'"),
    "seeds in words": (nothing, ["evaluate", "waves", "--seeds", "all"], "seeds must look like 0-2 or 0,1,2"),
    "bad seed": (nothing, ["fit", "waves.npz", *FIT, "--seed", "-1"], "'--seed': -1 is not in the range"),
    "huge seed": (nothing, ["fit", "waves.npz", *FIT, "--seed", "9" * 30], "is not in the range"),
    "bad device": (nothing, ["fit", "waves.npz", *FIT, "--device", "tpu"], "device must be auto, cpu, cuda or cuda:N"),
    "bad device, encode": (nothing, ["encode", "waves.npz", *ENCODE, "--device", "gpu0"], "device must be auto"),
    "no such GPU": (nothing, ["fit", "waves.npz", *FIT, "--device", "cuda:4096"], "usable CUDA GPU(s)"),
    "no devices": (nothing, ["fit", "waves.npz", *FIT, "--devices", "0"], "devices must be at least 1, got 0"),
    "bad config value": (nothing, ["fit", "waves.npz", *FIT, "--patch-length", "2"], "patch_length must be at least 3"),
    "bad choice": (nothing, ["fit", "waves.npz", *FIT, "--fuse", "glue"], "'glue' is not one of 'film'"),
    "bad descriptor": (nothing, ["fit", "waves.npz", *FIT, "--descriptors", "slope,colour"], "got 'colour'"),
    "bad width": (nothing, ["fit", "waves.npz", *FIT, "--width", "18"], "width must be a multiple of"),
    "bad dropout": (nothing, ["fit", "waves.npz", *FIT, "--dropout", "2"], "dropout must be at most 1"),
    "NaN rate": (nothing, ["fit", "waves.npz", *FIT, "--learning-rate", "nan"], "learning_rate must be at least"),
    "steps crossed": (nothing, ["fit", "waves.npz", *FIT, "--max-steps", "1"], "max_steps is 1 and min_steps 2"),
    "no number": (nothing, ["fit", "waves.npz", *FIT, "--epochs", "many"], "'many' is not a valid integer"),
    "unknown preset": (nothing, ["fit", "waves.npz", *FIT, "--preset", "best"], "'best' is not one of"),
    "unknown flag": (nothing, ["fit", "waves.npz", *FIT, "--colour", "red"], "No such option"),
    "unknown verb": (nothing, ["dance"], "No such command 'dance'"),
    "no data": (nothing, ["fit", *FIT], "Missing argument 'DATA'"),
    "no out": (nothing, ["fit", "waves.npz", *TINY], "Missing option '--out'"),
    "flags without training": (
        nothing,
        ["evaluate", "waves.npz", "--model", "model", "--epochs", "3"],
        "--model measures a model that is trained",
    ),
    "seeds without training": (
        nothing,
        ["evaluate", "waves.npz", "--model", "model", "--seeds", "0-2"],
        "leave --preset, --seeds and training flags out",
    ),
    "out is there": (nothing, ["fit", "waves.npz", "--out", "model", *TINY], "model is there already; choose another"),
    "out is a file": (nothing, ["fit", "waves.npz", "--out", "waves.npz", *TINY], "waves.npz is there already"),
    "out is a file, forced": (
        nothing,
        ["fit", "waves.npz", "--out", "waves.npz", "--force", *TINY],
        "expected a folder, but a file is there",
    ),
    "out holds something else": (
        nothing,
        ["fit", "waves.npz", "--out", ".", "--force", *TINY],
        "which is no part of a model; give another folder",
    ),
    "no parent": (nothing, ["fit", "waves.npz", "--out", "gone/new", *TINY], "there is no folder"),
    "parent is a file": (nothing, ["fit", "waves.npz", "--out", "waves.npz/new", *TINY], "there is no folder"),
    "no parent, encode": (
        nothing,
        ["encode", "waves.npz", "--model", "model", "--out", "gone/v.npz"],
        "there is no folder",
    ),
    "out is a folder, encode": (
        nothing,
        ["encode", "waves.npz", "--model", "model", "--out", "model"],
        "expected a file, but a folder is there",
    ),
    "rows are a folder": (
        nothing,
        ["evaluate", "waves.npz", "--model", "model", "--rows", "model"],
        "expected a file, but a folder is there",
    ),
    "rows below a file": (
        nothing,
        ["evaluate", "waves.npz", "--model", "model", "--rows", "waves.npz/rows.jsonl"],
        "there is no folder",
    ),
    "state of another training": (
        state_of_another_training,
        ["fit", "waves.npz", *FIT],
        ".new.training belongs to a training with other data or settings; delete it to start anew",
    ),
    "broken state": (
        bad_file(".new.training", "text"),
        ["fit", "waves.npz", *FIT],
        ".new.training is no training state",
    ),
}


@pytest.mark.parametrize(("prepare", "arguments", "message"), BAD.values(), ids=list(BAD))
def test_bad_input_is_one_line(
    prepare: Callable[[Path], object],
    arguments: Sequence[str],
    message: str,
    run: Run,
    data: Path,
    model: Path,
) -> None:
    prepare(data.parent)
    before = listing(data.parent)
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.err.startswith("geopatch: ")
    assert ran.err.count("\n") == 1
    assert ran.err.endswith("\n")
    assert message in ran.err
    assert ran.out == ""
    assert listing(data.parent) == before


WRITING = {
    "fit": ["fit", "../waves.npz", *FIT],
    "encode": ["encode", "../waves.npz", "--model", "../model", "--out", "vectors.npz"],
    "evaluate": ["evaluate", "../waves.npz", "--model", "../model", "--rows", "rows.jsonl"],
}


def forbid_writing(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Root may write everywhere, so the mode bits would not do."""
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda asked, mode: access(asked, mode) and (mode != os.W_OK or Path(asked).absolute() != path)
    )


@pytest.mark.parametrize("verb", WRITING)
def test_a_read_only_folder_is_one_line(
    verb: str, run: Run, data: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data.parent / "closed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    forbid_writing(monkeypatch, folder)
    before = listing(data.parent)
    ran = run(*WRITING[verb])
    assert (ran.code, ran.err.count("\n"), ran.out) == (2, 1, "")
    assert f"no permission to write in {folder}; give another path" in ran.err
    assert listing(data.parent) == before


def test_rows_that_are_read_only_are_one_line(
    run: Run, data: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data.parent / "rows.jsonl").write_text("")
    forbid_writing(monkeypatch, data.parent / "rows.jsonl")
    ran = run("evaluate", "waves.npz", "--model", "model", "--rows", "rows.jsonl")
    assert (ran.code, ran.err) == (2, "geopatch: cannot write rows.jsonl: no permission; give another path\n")


def test_a_disk_that_is_full_leaves_nothing(run: Run, data: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    before = listing(data.parent)
    ran = run("encode", data, *ENCODE)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "the disk is full" in ran.err
    assert listing(data.parent) == before


def test_a_message_of_several_lines_becomes_one(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise GeoPatchError("one\n  two\n")

    monkeypatch.setattr("geopatch.cli.sets.training_data", fail)
    assert run("fit", data, *FIT).err == "geopatch: one two\n"


def test_our_own_bugs_are_not_hidden(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geopatch.cli.sets.training_data", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("fit", data, *FIT)


# Interrupted, forced, resumed


class Watch:
    """Stands in for the progress bar: notes the steps, and presses Ctrl-C in the one that is told."""

    def __init__(self, press_at: int | None = None) -> None:
        self.press_at, self.steps = press_at, list[int]()

    def __enter__(self) -> Callable[[dict[str, Any]], None]:
        return self.report

    def __exit__(self, *_: object) -> None:
        pass

    def report(self, row: dict[str, Any]) -> None:
        self.steps.append(row["step"])
        if row["step"] == self.press_at:
            raise KeyboardInterrupt


def watch_training(monkeypatch: pytest.MonkeyPatch, press_at: int | None = None) -> list[int]:
    """The steps that the next training takes; each leaves its state behind."""
    watch = Watch(press_at)
    monkeypatch.setattr("geopatch.train.resume.EVERY_S", 0.0)
    monkeypatch.setattr(GeoPatch, "_report", lambda _: watch)
    return watch.steps


@pytest.fixture
def interrupted(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state that an interrupted `fit` left beside its --out."""
    watch_training(monkeypatch, press_at=2)
    ran = run("fit", data, *FIT)
    assert ran.code == 130
    assert ran.err.strip() == "geopatch: interrupted"
    assert ran.out == ""
    return data.parent / ".new.training"


def test_an_interrupted_training_leaves_its_state_and_nothing_else(interrupted: Path) -> None:
    assert {path.name for path in interrupted.parent.iterdir()} == {"waves.npz", ".new.training"}


def test_the_same_command_goes_on(
    interrupted: Path, run: Run, data: Path, trained: GeoPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = watch_training(monkeypatch)
    ran = run("fit", data, *FIT)
    assert (ran.code, steps) == (0, [2])
    assert digest(GeoPatch.load(data.parent / "new").encoder_) == digest(trained.encoder_)
    assert not interrupted.exists()


def test_force_goes_on_too(interrupted: Path, run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that replaces a model can be interrupted like any other."""
    (data.parent / "new").mkdir()
    steps = watch_training(monkeypatch)
    ran = run("fit", data, *FIT, "--force")
    assert (ran.code, steps) == (0, [2])
    assert not interrupted.exists()


def test_other_settings_are_refused_and_the_state_is_kept(interrupted: Path, run: Run, data: Path) -> None:
    before = interrupted.read_bytes()
    ran = run("fit", data, *FIT, "--seed", "1")
    assert ran.code == 2
    assert "belongs to a training with other data or settings" in ran.err
    assert interrupted.read_bytes() == before


@pytest.mark.parametrize("content", [None, b"text"], ids=["of another training", "broken"])
def test_force_drops_a_state_that_does_not_fit(
    content: bytes | None, interrupted: Path, run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        interrupted.write_bytes(content)
    steps = watch_training(monkeypatch)
    ran = run("fit", data, *FIT, "--seed", "1", "--force")
    assert (ran.code, steps) == (0, [1, 2])
    assert GeoPatch.load(data.parent / "new").seed_ == 1
    assert not interrupted.exists()


def test_force_replaces_a_model(run: Run, data: Path, model: Path) -> None:
    before = digest(GeoPatch.load(model).encoder_)
    assert run("fit", data, "--out", model, "--force", "--seed", "1", *TINY).code == 0
    assert digest(GeoPatch.load(model).encoder_) != before
    assert {path.name for path in data.parent.iterdir()} == {"waves.npz", "model"}


def test_an_interrupted_replacement_keeps_the_old_model(
    run: Run, data: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listing(model)
    watch_training(monkeypatch, press_at=2)
    assert run("fit", data, "--out", model, "--force", "--seed", "1", *TINY).code == 130
    assert listing(model) == before


def test_an_interrupted_evaluation_keeps_its_rows(run: Run, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(collection: Any, estimator: GeoPatch, preset: str) -> Any:
        if estimator.random_state == 1:
            raise KeyboardInterrupt
        return retrieval.train(collection, estimator, preset)

    monkeypatch.setattr("geopatch.evaluate.train", train)
    ran = run("evaluate", archive / "Waves", "--seeds", "0-1", "--rows", "rows.jsonl", "--json", *TINY)
    assert (ran.code, ran.out) == (130, "")
    assert [row.seed for row in read_rows(archive.parent / "rows.jsonl")] == [0] * 4


# As a program


def test_as_a_module(tmp_path: Path) -> None:
    done = in_process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"geopatch, version {__version__}\n", "")


def test_a_program_that_fails(tmp_path: Path) -> None:
    done = in_process("fit", "gone.csv", "--out", "new", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "geopatch: gone.csv: no such file; check the path\n"
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_works(data: Path) -> None:
    done = in_process("fit", "waves.npz", "--json", *FIT, cwd=data.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["digest"] == digest(GeoPatch.load(data.parent / "new").encoder_)


# Tables


def summary(data: str, seeds: int = 1, preset: str = "default") -> Summary:
    scores = {"recall@1": 0.9531, "recall@5": 1.0, "recall@10": 1.0, "mrr": 0.5, "map": 0.25}
    return Summary(data, preset, "cosine", "warped queries", seeds, scores, dict.fromkeys(scores, 0.0123), 33.0)


def shown(
    summaries: Sequence[Summary], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    print_summaries(summaries)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_is_legible_on_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ArticularyWordRecognition"
    lines = shown([summary(f"{name}_TEST", seeds=3)], capsys, monkeypatch)
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert lines[1].split() == ["data", "queries", "scorer", "R@1", "R@5", "MRR", "mAP", "seeds"]
    assert lines[3].split() == [name, "warped", "cosine", "0.953", "1.000", "0.500", "0.250", "3"]
    assert lines[4].split() == ["±.012"] * 4
    assert lines[3].index("0.953") == lines[4].index("±.012")


def test_one_seed_has_no_spread(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "±" not in "".join(shown([summary("Waves")], capsys, monkeypatch))


def test_a_longer_name_is_folded_not_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ANameThatIsAsLongAsNobodyWouldEverHaveThought"
    lines = shown([summary(name)], capsys, monkeypatch)
    assert max(map(len, lines)) <= 80
    assert "".join(line.split()[0] for line in lines[3:] if line) == name


def test_a_table_for_each_preset(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown([summary("Waves"), summary("Waves", preset="paper")], capsys, monkeypatch)
    assert [line for line in lines if line.startswith("retrieval")] == [
        "retrieval on the test split (default)",
        "retrieval on the test split (paper)",
    ]
