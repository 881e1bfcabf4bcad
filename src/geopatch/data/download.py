"""Downloads from the public homes of the data sets, by the libraries that know the way."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from http.client import HTTPException
from pathlib import Path

from geopatch.errors import DataError, GeoPatchError, MissingExtraError
from geopatch.storage import atomic_folder

Fetch = Callable[[str, Path], None]  # a name, and the empty folder to fill

PHYSIONET = "https://physionet.org/content/"
PATIENCE_S = 10.0  # for the home to answer at all
LONGEST_REASON = 200
FAILURES = (OSError, ValueError, LookupError, TypeError, HTTPException, zipfile.BadZipFile)


def download_into(folder: Path, name: str, fetch: Fetch) -> None:
    """Fill `folder` whole or not at all; whatever hinders it is one line that begins with the reason."""
    with _parent(folder.parent), atomic_folder(folder) as partial:
        try:
            with redirect_stdout(sys.stderr):  # what the libraries say is no result
                fetch(name, partial)
        except GeoPatchError:
            raise
        except FAILURES as error:
            raise DataError(_short(error)) from error


@contextmanager
def _parent(folder: Path) -> Iterator[None]:
    """The folder for the time of a download; it stays if that brings something, or if it was there before."""
    made = not folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror}") from error
    try:
        yield
    finally:
        if made and not any(folder.iterdir()):
            folder.rmdir()


def check_reachable(home: str) -> None:
    """Refuse within seconds where there is no network: wfdb sets itself no time limit."""
    try:
        urllib.request.urlopen(urllib.request.Request(home, method="HEAD"), timeout=PATIENCE_S).close()
    except urllib.error.HTTPError as answer:
        answer.close()  # somebody is there, whatever he says to this question
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DataError(_short(reason)) from error


def fetch_physionet(name: str, folder: Path) -> None:
    """Every record and annotation, by wfdb."""
    try:
        import wfdb
    except ImportError as error:
        raise MissingExtraError("wfdb", "ecg", f"downloading {name}") from error
    check_reachable(PHYSIONET)
    wfdb.dl_database(name, str(folder))


def fetch_archive(name: str, folder: Path) -> None:
    """The train and test files of a set, by aeon, which knows the names and gives up by itself."""
    try:
        from aeon.datasets import load_classification
    except ImportError as error:
        raise MissingExtraError("aeon", "archive", f"downloading {name}") from error
    load_classification(name, extract_path=str(folder))
    for file in (folder / name).iterdir():
        file.rename(folder / file.name)
    (folder / name).rmdir()


def _short(reason: object) -> str:
    text = " ".join(str(reason).split()) or type(reason).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."
