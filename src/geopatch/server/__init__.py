"""The server: a REST API over a gallery, and a page on which a person finds the window they mean."""

from geopatch.server.settings import Limits, Settings
from geopatch.server.start import serve

__all__ = ["Limits", "Settings", "serve"]
