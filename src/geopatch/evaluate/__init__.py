"""Honest evaluation: protocols, metrics, stress and result rows. The names below are loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "RetrievalScores",
    "Row",
    "Stress",
    "Summary",
    "Trained",
    "append_rows",
    "curve",
    "default_stresses",
    "distortions",
    "evaluate",
    "read_rows",
    "retrieval_scores",
    "summarise",
    "train",
]

_HOMES = {
    "RetrievalScores": "metrics",
    "Row": "rows",
    "Stress": "stress",
    "Summary": "rows",
    "Trained": "retrieval",
    "append_rows": "rows",
    "curve": "stress",
    "default_stresses": "stress",
    "distortions": "stress",
    "evaluate": "retrieval",
    "read_rows": "rows",
    "retrieval_scores": "metrics",
    "summarise": "rows",
    "train": "retrieval",
}

if TYPE_CHECKING:
    from geopatch.evaluate.metrics import RetrievalScores, retrieval_scores
    from geopatch.evaluate.retrieval import Trained, evaluate, train
    from geopatch.evaluate.rows import Row, Summary, append_rows, read_rows, summarise
    from geopatch.evaluate.stress import Stress, curve, default_stresses, distortions
else:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"geopatch.evaluate.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"import_module"})
