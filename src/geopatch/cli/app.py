"""The verbs, each a module that is imported when it is called, and errors as one line.

Shell completion is click's own: `_GEOPATCH_COMPLETE=bash_source geopatch` prints the script for bash (zsh_source and
fish_source those for zsh and fish).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from geopatch.errors import GeoPatchError, MissingExtraError
from geopatch.version import __version__

VERBS = {
    "index": "Make a searchable gallery of a folder of recordings.",
    "demo": "Search the built-in sample: no label, no training.",
    "inspect": "Show what would be read of files or folders.",
    "data": "List, describe and prepare the data sets that have a name.",
    "fit": "Train an encoder on a collection.",
    "encode": "Turn a collection into embeddings and tokens.",
    "gallery": "Make and tend a searchable collection of encoded windows.",
    "search": "Find the windows of a gallery nearest to a query.",
    "motifs": "Find what happens most often in a gallery.",
    "anomalies": "Find what happens nowhere else in a gallery.",
    "watch": "Say when something happens again in a running stream.",
    "serve": "Serve a gallery: a REST API and a page to search it on.",
    "evaluate": "Measure retrieval on a test split, clean and with warped queries.",
    "stress": "Measure what warps, noise, gaps and shuffling cost, and draw it.",
    "stability": "Measure drift, bounds and margins of the theorems (lab).",
    "reproduce": "Run the study: every table, figure and claim (lab).",
}
LABORATORY = ("stability", "reproduce")  # verbs of the package geopatch_lab, which is installed on request


class Verbs(click.Group):
    """Lists the verbs without importing them, so that help and completion answer fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = _module(cmd_name).command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs that start so. None is imported, so those of the laboratory complete without it."""
        verbs = [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _module(verb: str) -> Any:
    if verb not in LABORATORY:
        return importlib.import_module(f"geopatch.cli.{verb}")
    try:
        return importlib.import_module(f"geopatch_lab.cli.{verb}")
    except ModuleNotFoundError as error:
        if error.name != "geopatch_lab":
            raise
        raise MissingExtraError("geopatch-lab", "lab", f"geopatch {verb}") from error


@click.group(cls=Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="geopatch")
@click.pass_context
def geopatch(context: click.Context) -> None:
    """Search collections of time series by example, whatever clock each one was recorded on."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb. What a user can cure is one line on stderr and exit code 2.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words of the command line after `geopatch`; by default those of this process.
    """
    try:
        geopatch.main(arguments, prog_name="geopatch", standalone_mode=False)
    except click.ClickException as error:
        _fail(error.format_message())
    except GeoPatchError as error:
        _fail(str(error))
    except (KeyboardInterrupt, click.Abort):
        click.echo("geopatch: interrupted", err=True)
        sys.exit(130)


def _fail(message: str) -> None:
    click.echo(f"geopatch: {' '.join(message.split())}", err=True)
    sys.exit(2)
