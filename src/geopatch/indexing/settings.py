"""What an index is made with, and who is told how it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from geopatch.data.metadata import MetadataTable, PathPattern
from geopatch.data.recording import ANCHORS
from geopatch.errors import ConfigError, at_least, one_of
from geopatch.read_options import ReadOptions

LENGTHS = ("shortest_s", "window_s", "longest_s")


@dataclass(frozen=True)
class IndexSettings:
    """How files become a gallery; what was left out is guessed, or as the gallery has it already."""

    reading: ReadOptions = field(default_factory=ReadOptions)
    window_s: float | None = None
    shortest_s: float | None = None  # of the windows, where they have several lengths
    longest_s: float | None = None
    whole: bool = False  # each recording is one window
    overlap: float | None = None
    band_hz: tuple[float, float] | None = None
    table: MetadataTable | None = None
    pattern: PathPattern | None = None
    labels: str | None = None  # the name of the metadata that `default` is trained on
    anchors: str | None = None  # where marks of a clock come from; None: as they are annotated
    prune: bool = False
    device: str = "auto"
    cluster: str | None = None  # the scheduler whose workers encode; None: this process does

    def __post_init__(self) -> None:
        lengths = {"window_s": self.window_s, "shortest_s": self.shortest_s, "longest_s": self.longest_s}
        if self.whole and any(value is not None for value in lengths.values()):
            name = next(name for name, value in lengths.items() if value is not None)
            raise ConfigError(f"each recording is one window, or windows have a length: give {name} or whole, not both")
        check_levels(self.window_s, self.shortest_s, self.longest_s)
        if self.anchors is not None:
            one_of("anchors", self.anchors, ANCHORS)
        if self.overlap is not None:
            at_least("overlap", self.overlap, 0)
            at_least("1 - overlap", 1 - self.overlap, 0.01)

    @property
    def has_metadata(self) -> bool:
        """Whether it says where metadata comes from, besides the files themselves."""
        return self.table is not None or self.pattern is not None


def check_levels(window_s: float | None, shortest_s: float | None, longest_s: float | None) -> None:
    """Refuse lengths that are not in order; None is not known yet."""
    known = [(name, value) for name, value in zip(LENGTHS, (shortest_s, window_s, longest_s), strict=True) if value]
    for name, value in zip(LENGTHS, (shortest_s, window_s, longest_s), strict=True):
        if value is not None:
            at_least(name, value, 1e-6)
    for (low, short), (high, long) in pairwise(known):
        if short > long:
            raise ConfigError(f"{low} must be at most {high}, got {short:g} and {long:g}")


@dataclass(frozen=True)
class Listener:
    """Who is told how it goes; each call does nothing by default."""

    say: Callable[[str], None] = lambda text: None
    refuse: Callable[[str], None] = lambda text: None  # a file that was left out, and why, in one line
    progress: Callable[[float, int], None] = lambda share, windows: None  # share of the bytes, windows so far


@dataclass
class IndexReport:
    """What became of the files.

    Parameters
    ----------
    place : str
        The gallery.
    windows : int
        How many windows it has now.
    written, removed : int
        Windows that were written, and that were taken out.
    added, changed, unchanged, gone : list of str
        Files by what became of them; those that are gone were removed where that was asked for.
    refused : list of str
        A line for each file that was left out.
    relabelled : list of str
        Files with the same bytes of which a table or the path says something else now.
    recordings : int
        How many recordings were taken.
    duration_s : float
        How long they last together.
    gaps_s : dict
        By file, for how long nothing was measured.
    resampled : dict
        By file, the rate of a recording that was brought to the gallery's.
    untimed : list of str
        Files whose rate is not known, and was taken to be the gallery's.
    """

    place: str
    windows: int = 0
    written: int = 0
    removed: int = 0
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    relabelled: list[str] = field(default_factory=list)
    recordings: int = 0
    duration_s: float = 0.0
    gaps_s: dict[str, float] = field(default_factory=dict)
    resampled: dict[str, float] = field(default_factory=dict)
    untimed: list[str] = field(default_factory=list)

    def as_dict(self) -> Mapping[str, object]:
        return dict(vars(self))
