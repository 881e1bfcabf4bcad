"""The command line as a test sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from geopatch.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


def runner(capsys: pytest.CaptureFixture[str], *verb: str) -> Run:
    """`geopatch`, or one verb of it, called in this process."""

    def call(*arguments: object) -> Ran:
        code = 0
        try:
            main([*verb, *map(str, arguments)])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        return Ran(code, *capsys.readouterr())

    return call
