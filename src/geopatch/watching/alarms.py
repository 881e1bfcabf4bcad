"""How often a threshold is passed on signal that has nothing to do with a query: false alarms an hour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import ConfigError

BEYOND = 40  # of the largest peaks, by which the rate beyond them is extrapolated
LEAST_PEAKS = 40
UNLIKELY = 0.01  # a peak of which fewer are expected is what was looked for, and no false alarm
CLOSEST = 1e-9


@dataclass(frozen=True)
class AlarmRate:
    """The rate at which an excess of nearness is passed by chance.

    It is counted where enough was seen. Beyond, it falls as a power of 1 - s², as that of directions drawn at random
    does; the power is that of the largest scores seen. Scores come as nearness, -log(1 - s²), less a stream's level.

    Parameters
    ----------
    floor : float
        The excess from which on it is extrapolated.
    scale : float
        By how much the excess grows while the rate falls to 1/e.
    per_hour_at_floor : float
        Alarms an hour at the floor.
    hours : float
        Hours of signal that it was measured on.
    """

    floor: float
    scale: float
    per_hour_at_floor: float
    hours: float

    @classmethod
    def of_peaks(cls, excess: npt.ArrayLike, hours: float) -> AlarmRate:
        """Measure the rate from the best windows of so many hours, none of which overlap.

        Parameters
        ----------
        excess : array
            How far the nearness of each lies above the level of its stream.
        hours : float
            How long the signal lasted.

        Returns
        -------
        AlarmRate
            The rate; peaks that stand far out are taken for what was looked for, and left out.

        Raises
        ------
        ConfigError
            When there are too few to say.
        """
        near = np.sort(np.asarray(excess, dtype=np.float64))
        if len(near) < LEAST_PEAKS or hours <= 0:
            raise ConfigError(
                "the threshold of a watch is set on signal without what it watches for, and the gallery has too little "
                f"of it: {len(near)} places where {LEAST_PEAKS} are needed; index more recordings"
            )
        while True:
            beyond = min(BEYOND, len(near) // 2)
            floor = float(near[-beyond - 1])
            scale = max(float((near[-beyond:] - floor).mean()), CLOSEST)
            if beyond * math.exp(-(float(near[-1]) - floor) / scale) >= UNLIKELY or len(near) <= LEAST_PEAKS:
                return cls(floor, scale, beyond / hours, hours)
            near = near[:-1]

    def per_hour(self, excess: float) -> float:
        """Alarms an hour at a threshold.

        Parameters
        ----------
        excess : float
            The threshold.

        Returns
        -------
        float
            How many times an hour signal without the pattern is as near.
        """
        return self.per_hour_at_floor * math.exp(-max(excess - self.floor, 0.0) / self.scale)

    def threshold(self, per_hour: float) -> float:
        """The excess that is passed so many times an hour by chance.

        Parameters
        ----------
        per_hour : float
            False alarms an hour.

        Returns
        -------
        float
            The excess of nearness.

        Raises
        ------
        ConfigError
            When that many would say nothing any more.
        """
        if not 0 < per_hour <= self.per_hour_at_floor:
            raise ConfigError(
                f"false alarms an hour must lie above 0 and within {self.per_hour_at_floor:.3g}, got {per_hour:g}: "
                "with more, nearly everything would be an alarm"
            )
        return self.floor + self.scale * math.log(self.per_hour_at_floor / per_hour)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them.

        Returns
        -------
        dict
            What the class is made from.
        """
        return dict(vars(self))
