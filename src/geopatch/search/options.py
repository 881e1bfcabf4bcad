"""What a search does besides its query: declared once; the REST schema and the flags of the CLI are made from it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from geopatch.dtw import BAND
from geopatch.errors import ConfigError, at_least, one_of
from geopatch.protocol import MEANING, Protocol
from geopatch.scoring import DEFAULT_SCORER, SCORERS, SHORTLIST, Scorer, default_scorer, scorer_names

if TYPE_CHECKING:
    from geopatch.engines.filters import Filter, Where
else:  # filters need numpy, and flags are made from this class without it
    Where = Any


TOKENS = "tokens"  # what a shortlist may come from, beside embeddings
LENGTH = re.compile(rf"(?:{TOKENS}|(?:{TOKENS}:)?([1-9]\d*))")


def _option(
    default: Any, help: str, low: float | None = None, choices: Callable[[], tuple[str, ...]] | None = None
) -> Any:
    """A field with its help text, its least value and its choices, for whoever makes a schema or a flag of it."""
    return field(default=default, metadata={"help": help, "low": low, "choices": choices})


def protocol_names() -> tuple[str, ...]:
    """The names of all protocols."""
    return tuple(MEANING)


@dataclass(frozen=True)
class SearchOptions:
    """How a search ranks, what it leaves out, and what its hits carry.

    Parameters
    ----------
    k : int, default=10
        How many hits to return; fewer when filters leave fewer.
    scorer : {"cosine", "maxsim", "fused", "bridge", "dtw", "aligned", "fused-aligned"}, optional
        What ranks the shortlist; by default "fused", and of sound "aligned".
    shortlist : int or str, optional
        How many candidates, the nearest by cosine, the scorer ranks; by default 50, or `k` where that is more. With
        ``"tokens"`` they are the nearest by the tokens (MaxSim) instead, ``"tokens:200"`` so many of them: for signals
        unlike those that the model was fitted to, and the default of sound.
    where : str, mapping or Filter, optional
        A filter over metadata, such as ``"sex == 'F' and 40 <= age < 60"``.
    protocol : str or Protocol, optional
        A strict protocol leaves out windows of the query's own record; by default only the query itself is left out.
    guard_s : float, default=0.0
        Seconds round the query that still count as overlapping it, for the protocols on overlap.
    min_gap_s : float, default=0.0
        Seconds between the starts of two hits of one record, at least.
    overlapping : bool, default=False
        Whether hits of one record may overlap, each other and the query. Only galleries of recordings leave out what
        overlaps a better hit; in others, windows are hits by themselves.
    min_score : float, optional
        Leave out hits that score less.
    max_chance : float, optional
        Leave out hits that more windows than this would be as near as by chance; 0.01 leaves one false hit in a hundred
        searches for something that is not there. Needs the model.
    band : float, default=0.1
        How far a dtw path may leave the diagonal, as a share of the longer signal.
    clock : float, optional
        Shape or rhythm: the share, from 0 to 1, that relative tempo has in the cosine of the embeddings; by default as
        the fit chose it. Needs a model that was fitted on windows with anchors.
    certify : bool, default=False
        Say of each hit how far embeddings may drift before it leaves the top `k`.
    tempos : bool, default=False
        Search the query a little faster and slower too; each candidate keeps its best score.
    whole : bool, default=False
        Where a part of the gallery cannot be reached, fail; by default the rest is searched, and a note says what was
        missing.
    windows : bool, default=True
        Whether hits bring their values.

    Examples
    --------
    >>> SearchOptions(k=3, scorer="cosine").depth
    50
    """

    k: int = _option(10, "How many hits to return.", low=1)
    scorer: str | None = _option(
        None, "What ranks the shortlist; by default fused, of sound aligned.", choices=scorer_names
    )
    shortlist: int | str | None = _option(
        None, "How many candidates by cosine the scorer ranks; or by tokens: tokens, tokens:200."
    )
    where: Where = _option(None, "Filter over metadata, such as: sex == 'F' and 40 <= age < 60")  # noqa: RUF009
    protocol: Protocol | str | None = _option(  # noqa: RUF009
        None, "Which candidates count; a strict one leaves out the query's own record.", choices=protocol_names
    )
    guard_s: float = _option(0.0, "Seconds round the query that count as overlapping it.", low=0)
    min_gap_s: float = _option(0.0, "Seconds between the starts of two hits of one record.", low=0)
    overlapping: bool = _option(False, "Let hits of one record overlap each other and the query.")
    min_score: float | None = _option(None, "Leave out hits that score less.")
    max_chance: float | None = _option(None, "Leave out hits that more windows would be as near as by chance.", low=0)
    band: float = _option(BAND, "How far a dtw path may leave the diagonal, as a share of the longer signal.", low=0)
    clock: float | None = _option(None, "Share of the cosine that relative tempo has, from 0 to 1.", low=0)
    certify: bool = _option(False, "Say of each hit how far embeddings may drift before it leaves the top k.")
    tempos: bool = _option(False, "Search the query a little faster and slower too; takes three times as long.")
    whole: bool = _option(False, "Fail where a part of the gallery cannot be reached, instead of searching the rest.")
    windows: bool = _option(True, "Let hits bring their values.")

    def __post_init__(self) -> None:
        for item in fields(self):
            low, value = item.metadata["low"], getattr(self, item.name)
            if low is not None and value is not None:
                at_least(item.name, value, low)
        if self.scorer is not None:
            one_of("scorer", self.scorer, scorer_names())
        if self.min_score is not None and math.isnan(self.min_score):
            raise ConfigError("min_score must be a number, got nan")
        if self.clock is not None and not self.clock <= 1:
            raise ConfigError(f"clock must lie within 0 and 1, got {self.clock}")
        if self.depth < self.k:
            raise ConfigError(f"shortlist must be at least k = {self.k}, got {self.shortlist}")
        _ = self.filter, self.rule  # a filter or protocol that cannot be read is refused here, before any work

    @property
    def depth(self) -> int:
        """How many candidates the scorer ranks."""
        return self._shortlist[1] or max(SHORTLIST, self.k)

    @property
    def by_tokens(self) -> bool:
        """Whether candidates are the nearest by tokens."""
        return self._shortlist[0]

    @cached_property
    def _shortlist(self) -> tuple[bool, int | None]:
        """Whether the shortlist comes from tokens, and its length where that is said."""
        if self.shortlist is None:
            return False, None
        text = str(self.shortlist)
        match = LENGTH.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"shortlist must be a number from 1 on, {TOKENS}, or a number of these such as {TOKENS}:200, got {text}"
            )
        return text.startswith(TOKENS), int(match[1]) if match[1] else None

    @cached_property
    def filter(self) -> Filter | None:
        """The filter that `where` describes."""
        from geopatch.engines.filters import as_filter

        return as_filter(self.where)

    @cached_property
    def rule(self) -> Protocol | None:
        """The protocol, with its guard."""
        if self.guard_s and isinstance(self.protocol, Protocol) and self.protocol.guard_s != self.guard_s:
            raise ConfigError(
                f"guard_s is {self.guard_s:g} here and {self.protocol.guard_s:g} in the protocol; give it in one place"
            )
        return Protocol(self.protocol, self.guard_s) if isinstance(self.protocol, str) else self.protocol

    @property
    def ranking(self) -> Scorer:
        """The scorer itself."""
        return SCORERS[self.scorer or DEFAULT_SCORER]

    def deeper(self, depth: int) -> SearchOptions:
        """The same options with so many candidates.

        Parameters
        ----------
        depth : int
            How many candidates the scorer ranks.

        Returns
        -------
        SearchOptions
            Options whose shortlist has this length and comes from the same source.
        """
        return replace(self, shortlist=f"{TOKENS}:{depth}" if self.by_tokens else depth)

    def completed(self, *, sound: bool) -> SearchOptions:
        """The same options, with what was left open as it is best for such a gallery.

        Parameters
        ----------
        sound : bool
            Whether the windows are frames of sound: they are told by their tokens in the order of time.

        Returns
        -------
        SearchOptions
            Options whose scorer is set.
        """
        scorer = self.scorer or default_scorer(sound=sound)
        shortlist = TOKENS if sound and self.shortlist is None else self.shortlist
        return replace(self, scorer=scorer, shortlist=shortlist)

    def changed(self, **overrides: Any) -> SearchOptions:
        """The same options with some of them changed.

        Parameters
        ----------
        **overrides
            Fields of `SearchOptions` by their names.

        Returns
        -------
        SearchOptions
            The changed options, checked.

        Raises
        ------
        ConfigError
            When a name is no option, or a value lies outside its range.
        """
        names = [item.name for item in fields(self)]
        for name in overrides:
            if name not in names:
                raise ConfigError(f"a search has no option {name!r}; it has {', '.join(names)}")
        return replace(self, **overrides)
