"""What a gallery knows of records and files as a whole, kept as texts beside its entries."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

RECORD, FILE = "record", "file"  # kinds of documents


@dataclass(frozen=True)
class RecordFacts:
    """What is known of a record.

    Parameters
    ----------
    start_time : datetime, optional
        The wall-clock time of its first sample; None where that is not known.
    units : tuple of str, default=()
        The unit of each channel; empty where not known.
    """

    start_time: datetime | None = None
    units: tuple[str, ...] = ()

    def as_text(self) -> str:
        """JSON, as a gallery keeps it.

        Returns
        -------
        str
            What `from_text` reads.
        """
        return json.dumps({"start_time": self.start_time and self.start_time.isoformat(), "units": self.units})

    @classmethod
    def from_text(cls, text: str) -> RecordFacts:
        """Read what `as_text` wrote.

        Parameters
        ----------
        text : str
            The JSON.

        Returns
        -------
        RecordFacts
            The facts.
        """
        fields = json.loads(text)
        start = fields["start_time"]
        return cls(None if start is None else datetime.fromisoformat(start), tuple(fields["units"]))


def card_of(blob: bytes) -> dict[str, Any]:
    """What a packed checkpoint says of itself, without the library that computes with it."""
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        config = json.loads(archive.read("config.json"))
    return {
        "halves": "+".join(config["model"]["halves"]),
        "version": config["card"]["version"],
        **config["card"]["data"],
    }


@dataclass(frozen=True)
class FileFacts:
    """A file whose recordings were added: what it held, and whether all of it is there."""

    digest: str
    path: str
    records: tuple[str, ...]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # what a table and its path said of each record
    windows: int = 0
    whole: bool = False  # all windows were written
    fresh: bool = True  # none of its records was in the gallery before, so what is there came from this digest

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> FileFacts:
        fields = json.loads(text)
        return cls(**{**fields, "records": tuple(fields["records"])})
