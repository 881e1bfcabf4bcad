"""The examples of README and docs run as they stand, and print what they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from geopatch import Gallery, GeoPatch, errors
from geopatch.cli import main
from geopatch.cli.app import VERBS, geopatch
from geopatch.data.cache import window_pairs, write_cache
from geopatch.data.recording import WindowConfig, cut_windows
from geopatch.data.sample import ecg_windows, mitdb_minutes
from geopatch.kernels import fitting

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SAYS = re.compile(r"^ *print\(.*\)  # ((?:[\[({'\"]|\d|True|False|None|[A-Z]\w+Error).*)$", re.MULTILINE)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
MARK = "--- the next example ---"
RUN = ("data list", "encode", "gallery", "search")  # verbs whose examples take seconds

# Runs each block of its own: none may rest on a name of the one before it.
DRIVER = f"""
import sys
from pathlib import Path
for block in Path(sys.argv[1]).read_text(encoding="utf-8").split({MARK!r}):
    print({MARK!r})
    exec(compile(block, sys.argv[1], "exec"), {{"__name__": "__main__"}})
"""


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every `geopatch ...` in the shell blocks of a page."""
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["geopatch"]:
                yield words[1:]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader of the docs has: a hardly trained model, files, records and a cache, named as in the docs."""
    folder = tmp_path_factory.mktemp("docs")
    beats = ecg_windows()
    some = beats.subset(np.arange(0, len(beats), 8))
    GeoPatch(max_steps=2, device="cpu").fit(some.signals, some.labels).save(folder / "model")
    windows = cut_windows("mitdb", mitdb_minutes()[1:3], WindowConfig(rate_hz=128.0))  # with the same leads
    (folder / "cache").mkdir()
    write_cache(folder / "cache" / "mitdb", "mitdb", {"train": window_pairs(windows)}, length=256)
    write_records(folder / "mitdb")
    values = windows.signals[0].values
    rows = ":".join(",".join(f"{value:.3f}" for value in channel) for channel in values.T)
    (folder / "test.ts").write_text(
        f"@problemName test\n@timestamps false\n@univariate false\n@classLabel true N\n@data\n{rows}:N\n"
    )
    lines = "\n".join(f"beat,{first:.3f},{second:.3f}" for first, second in values)
    (folder / "query.csv").write_text(f"id,MLII,V5\n{lines}\n")
    return folder


@pytest.fixture
def workspace(prepared: Path, tmp_path: Path) -> Path:
    """A copy of it, for one page."""
    return Path(shutil.copytree(prepared, tmp_path / "workspace"))


def write_records(folder: Path) -> None:
    """Two WFDB records with beats."""
    import wfdb

    folder.mkdir()
    for name, recording in zip(("100", "101"), mitdb_minutes(), strict=False):
        signal = recording.signal
        values = signal.values.astype(np.float64)
        wfdb.wrsamp(name, signal.rate_hz, ["mV", "mV"], ["MLII", "V5"], values, fmt=["16", "16"], write_dir=str(folder))
        wfdb.wrann(name, "atr", recording.beat_samples, list(recording.beat_symbols), write_dir=str(folder))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_examples_run_without_a_warning_and_print_what_they_say(page: Path, workspace: Path) -> None:
    if page.name == "search.md":
        with Gallery.create(workspace / "ecg", GeoPatch.load(workspace / "model", device="cpu")) as gallery:
            for recording in mitdb_minutes()[:2]:
                gallery.add_recording(recording)
    examples = blocks(page, "python")
    for example, output in zip(examples, printed(examples, workspace), strict=True):
        lines = iter(output.splitlines())
        for line in SAYS.findall(example):
            assert line in lines, f"{page.name} says {line!r}; the example prints\n{output}"


def printed(examples: list[str], folder: Path) -> list[str]:
    """What each of the examples prints, run one after the other in one folder, with warnings as errors."""
    (folder / "examples.txt").write_text(MARK.join(examples), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-c", DRIVER, "examples.txt"]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(f"{MARK}\n")[1:]


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))], ids=lambda page: page.name)
def test_commands_have_these_verbs_and_options(page: Path) -> None:
    for words in commands(page):
        context = click.Context(geopatch, info_name="geopatch")
        command: click.Command = geopatch
        rest = words
        while isinstance(command, click.Group) and rest:
            found = command.get_command(context, rest[0])
            assert found is not None, f"{page.name}: geopatch {' '.join(words)}: no verb {rest[0]!r}"
            command, rest = found, rest[1:]
        command.make_context("geopatch", list(rest), parent=context)  # raises on what it does not know


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name in ("README.md", "data.md", "gallery.md")], ids=lambda page: page.name
)
def test_commands_run(page: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.delenv("GEOPATCH_DATA", raising=False)
    if page.name == "gallery.md":
        Gallery.create("ecg", GeoPatch.load("model", device="cpu")).close()
    monkeypatch.setattr(fitting, "VIEWS", 2000)
    monkeypatch.setattr(fitting, "SAMPLE_VIEWS", 1000)
    more = ("demo --recordings", "index recordings --out", "motifs", "anomalies") if page.name == "README.md" else ()
    for words in commands(page):
        if (
            " ".join(words).startswith((*RUN, *more)) and "refit" not in words
        ):  # which takes long, and has tests of its own
            main(words)  # what a user can cure is a SystemExit
    if page.name == "README.md":
        assert {"test.npz", "ecg", "hits.png"} <= {path.name for path in workspace.iterdir()}


def test_the_tree_of_errors_is_that_of_the_code() -> None:
    assert errors.__doc__ is not None
    tree = re.search(r"^GeoPatchError.*?(?=\n\n|\Z)", errors.__doc__, re.DOTALL | re.MULTILINE)
    assert tree is not None
    assert tree[0].rstrip() in (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


COMPLETE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "geopatch_lab":
            raise ModuleNotFoundError("No module named 'geopatch_lab'", name=name)
sys.meta_path.insert(0, Missing())
from geopatch.cli import main
sys.argv = ["geopatch"]
try:
    main()
finally:
    assert not {"torch", "numpy"} & set(sys.modules)
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_verbs_complete_at_once_and_without_the_laboratory(shell: str) -> None:
    environment = {**ENVIRONMENT, "_GEOPATCH_COMPLETE": f"{shell}_complete", "COMP_WORDS": "geopatch st"}
    environment["COMP_CWORD"] = "st" if shell == "fish" else "1"
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert [verb for verb in VERBS if re.search(rf"\b{verb}\b", done.stdout)] == ["stress", "stability"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_for_bash_completes_a_verb(tmp_path: Path) -> None:
    """As bash calls it when the Tab key is pressed."""
    source = "import sys; sys.argv = ['geopatch']; from geopatch.cli import main; main()"
    command = tmp_path / "geopatch"
    command.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(source)}\n")
    command.chmod(0o755)
    script = """
eval "$(_GEOPATCH_COMPLETE=bash_source geopatch)"
complete -p geopatch
COMP_WORDS=(geopatch gal) COMP_CWORD=1
_geopatch_completion geopatch
echo "${COMPREPLY[@]}"
"""
    environment = {**ENVIRONMENT, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    registered, completed = done.stdout.splitlines()
    assert "-F _geopatch_completion geopatch" in registered
    assert completed == "gallery"


def test_every_shell_has_its_line_in_the_docs() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert all(f"_GEOPATCH_COMPLETE={shell}_source geopatch" in page for shell in ("bash", "zsh", "fish"))
