"""`python -m geopatch` is the command `geopatch`."""

from geopatch.cli import main

main()
