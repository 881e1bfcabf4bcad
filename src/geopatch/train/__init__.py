"""Training an encoder."""

from geopatch.train.fit import Fitted, Progress, fit
from geopatch.train.objective import TrainConfig

__all__ = ["Fitted", "Progress", "TrainConfig", "fit"]
