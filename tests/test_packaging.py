"""What `pip install` brings: the product without the laboratory, the laboratory as a distribution of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from geopatch.version import __version__

ROOT = Path(__file__).parents[1]
PROJECTS = {"geopatch_ts": ROOT, "geopatch_lab": ROOT / "lab"}
# Builds by the declared backend, as pip does, without pip's copies and environments.
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheels")
    opened = {}
    for name, project in PROJECTS.items():
        command = [sys.executable, "-c", BUILD, str(folder)]
        built = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
        assert built.returncode == 0, built.stderr
        opened[name] = zipfile.ZipFile(folder / built.stdout.split()[-1])
    return opened


def packages(wheel: zipfile.ZipFile) -> set[str]:
    """The top-level folders of a wheel besides its own description."""
    return {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}


def metadata(wheel: zipfile.ZipFile) -> Message:
    (path,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(path).decode())


def requirements(wheel: zipfile.ZipFile) -> list[str]:
    return metadata(wheel).get_all("Requires-Dist") or []


def test_the_product_comes_without_the_laboratory(wheels: dict[str, zipfile.ZipFile]) -> None:
    assert packages(wheels["geopatch_ts"]) == {"geopatch"}
    always = [one for one in requirements(wheels["geopatch_ts"]) if "extra ==" not in one]
    assert not [one for one in always if re.match("geopatch|aeon|matplotlib", one)]


@pytest.mark.parametrize("folder", ["data/samples", "server/page"])
def test_the_product_has_all_its_files(wheels: dict[str, zipfile.ZipFile], folder: str) -> None:
    names = set(wheels["geopatch_ts"].namelist())
    files = {f"geopatch/{folder}/{path.name}" for path in (ROOT / "src/geopatch" / folder).iterdir() if path.is_file()}
    assert files
    assert files <= names
    assert "geopatch/py.typed" in names


def test_the_laboratory_is_only_itself_and_wants_the_product_of_its_version(
    wheels: dict[str, zipfile.ZipFile],
) -> None:
    lab = wheels["geopatch_lab"]
    assert packages(lab) == {"geopatch_lab"}
    assert "geopatch_lab/py.typed" in lab.namelist()
    assert requirements(lab) == [f"geopatch-ts[archive,plot]=={__version__}"]
    assert f"geopatch-lab=={__version__}; extra == 'lab'" in requirements(wheels["geopatch_ts"])
    assert {metadata(wheel)["Version"] for wheel in wheels.values()} == {__version__}


def test_verbs_of_the_laboratory_say_how_to_get_it(tmp_path: Path, wheels: dict[str, zipfile.ZipFile]) -> None:
    """With the product's wheel alone on the path, as in an environment without the laboratory."""
    wheels["geopatch_ts"].extractall(tmp_path)
    code = f"""
import sys
from pathlib import Path
sys.path = [{str(tmp_path)!r}, *(one for one in sys.path if not (Path(one) / "geopatch_lab").is_dir())]
import geopatch
assert geopatch.__file__.startswith({str(tmp_path)!r}), geopatch.__file__
from geopatch.cli import main
main(sys.argv[1:])
"""
    for verb in ("reproduce", "stability"):
        done = run(code, verb)
        assert done.returncode == 2
        assert done.stderr == (
            f"geopatch: geopatch {verb} needs geopatch-lab, which is not installed; pip install 'geopatch-ts[lab]'\n"
        )
    done = run(code, "--help")
    assert done.returncode == 0, done.stderr
    assert "reproduce" in done.stdout


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_lock_is_made_from_every_extra(wheels: dict[str, zipfile.ZipFile]) -> None:
    """`lab` and `all` name the projects themselves, and `dev` stands beside the list."""
    (line,) = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    extras = set(metadata(wheels["geopatch_ts"]).get_all("Provides-Extra") or [])
    assert set(line.split()) == extras - {"all", "dev", "lab"}
