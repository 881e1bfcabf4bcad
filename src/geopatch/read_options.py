"""What a reader is told of a file or a frame that it cannot find out by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geopatch.errors import ConfigError

NONE = "none"  # instead of a column's name: there is no such column


@dataclass(frozen=True)
class ReadOptions:
    """What a reader is told where names cannot be guessed.

    Parameters
    ----------
    time : str, optional
        The column of times; "none" where there is none.
    id : str, optional
        The column that names the recording of each row; "none" where there is none.
    channels : tuple of str, optional
        The channels to read, in this order; by default all. Names for them, where a table has no header.
    units : mapping or tuple of str, optional
        The unit of each channel, by name or in their order; one alone is that of all. By the name of the time column:
        its unit, which is s, ms, us or ns.
    rate_hz : float, optional
        Samples a second, for files that do not say it.

    Raises
    ------
    ConfigError
        If the rate is not more than 0.

    Examples
    --------
    >>> ReadOptions(channels=("x", "y"), units=("g",)).unit("y", 1)
    'g'
    """

    time: str | None = None
    id: str | None = None
    channels: tuple[str, ...] | None = None
    units: Mapping[str, str] | tuple[str, ...] | None = None
    rate_hz: float | None = None

    def __post_init__(self) -> None:
        if self.rate_hz is not None and not 0 < self.rate_hz < float("inf"):
            raise ConfigError(f"rate_hz must be more than 0, got {self.rate_hz}")

    def unit(self, channel: str, place: int) -> str | None:
        """Tell the unit of a channel.

        Parameters
        ----------
        channel : str
            Its name.
        place : int
            Its place among the channels, from 0.

        Returns
        -------
        str or None
            The unit; None where none was named.
        """
        if isinstance(self.units, Mapping):
            return self.units.get(channel)
        if not self.units:
            return None
        return self.units[0] if len(self.units) == 1 else self.units[place] if place < len(self.units) else None
