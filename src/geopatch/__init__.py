"""GeoPatch: search collections of time series by example, whatever clock each was recorded on.

The names below are loaded when first used, so that `import geopatch` costs milliseconds and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from geopatch.version import __version__

__all__ = [
    "Collection",
    "Encoding",
    "Gallery",
    "GeoPatch",
    "GeoPatchError",
    "ModelConfig",
    "Signal",
    "TrainConfig",
    "__version__",
    "index",
    "read",
]

_HOMES = {
    "Collection": "geopatch.data",
    "Encoding": "geopatch.encoding",
    "Gallery": "geopatch.gallery",
    "GeoPatch": "geopatch.estimator",
    "GeoPatchError": "geopatch.errors",
    "ModelConfig": "geopatch.config",
    "Signal": "geopatch.signal",
    "TrainConfig": "geopatch.config",
    "index": "geopatch.indexing",
    "read": "geopatch.data",
}

if TYPE_CHECKING:
    from geopatch.config import ModelConfig, TrainConfig
    from geopatch.data import Collection, read
    from geopatch.encoding import Encoding
    from geopatch.errors import GeoPatchError
    from geopatch.estimator import GeoPatch
    from geopatch.gallery import Gallery
    from geopatch.indexing import index
    from geopatch.signal import Signal
else:  # hidden from type checkers, which would take any name at all for granted

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
