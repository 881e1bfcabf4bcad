"""The command line: `geopatch VERB`."""

from geopatch.cli.app import main

__all__ = ["main"]
