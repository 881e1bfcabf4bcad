"""The server: a REST API over a gallery, and a page to search it on."""

from geopatch.server.settings import Limits, Settings
from geopatch.server.start import serve

__all__ = ["Limits", "Settings", "serve"]
