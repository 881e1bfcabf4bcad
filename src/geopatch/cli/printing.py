"""What verbs print: one line or one JSON object, and bars on stderr meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from geopatch.errors import ConfigError

if TYPE_CHECKING:
    from geopatch.engines import Value


def print_line(as_json: bool, fields: Mapping[str, Any], line: str) -> None:
    """The line, or the fields as JSON."""
    click.echo(json.dumps(fields) if as_json else line)


@contextmanager
def window_bar(title: str, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """Counts windows on stderr."""
    from geopatch.progress import counting_bar

    with nullcontext(None) if quiet else counting_bar(title) as report:
        yield report


@contextmanager
def late_bar(title: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Shown from the first count on: before, another bar may be there."""
    with ExitStack() as stack:
        bars = list[Callable[[int], None] | None]()

        def report(count: int) -> None:
            if not bars:
                bars.append(stack.enter_context(window_bar(title, quiet)))
            if bars[0] is not None:
                bars[0](count)

        yield report


def settings_of(settings: Sequence[str]) -> dict[str, Value]:
    """NAME=VALUE; a value that reads as a number, true or false is one."""
    values: dict[str, Value] = {}
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign:
            raise ConfigError(f"--set takes NAME=VALUE, got {setting!r}")
        values[name] = value_of(text)
    return values


def value_of(text: str) -> Value:
    """A number, true or false where the text reads as one."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text
