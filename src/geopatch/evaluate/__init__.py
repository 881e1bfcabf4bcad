"""Honest evaluation: protocols, metrics, stress and result rows."""

from geopatch.evaluate.metrics import RetrievalScores, retrieval_scores
from geopatch.evaluate.retrieval import Trained, evaluate, train
from geopatch.evaluate.rows import Row, Summary, append_rows, read_rows, summarise
from geopatch.evaluate.stress import Stress, curve, default_stresses

__all__ = [
    "RetrievalScores",
    "Row",
    "Stress",
    "Summary",
    "Trained",
    "append_rows",
    "curve",
    "default_stresses",
    "evaluate",
    "read_rows",
    "retrieval_scores",
    "summarise",
    "train",
]
