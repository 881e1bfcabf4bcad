"""Training an encoder."""

from geopatch.config import TrainConfig
from geopatch.train.fit import Fitted, fit

__all__ = ["Fitted", "TrainConfig", "fit"]
