"""The verbs of the laboratory: `geopatch stability` and `geopatch reproduce`."""
