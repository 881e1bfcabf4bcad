"""Watch streams: say when what a query shows happens again, at a rate of false alarms that is chosen."""

from __future__ import annotations

from geopatch.watching.alarms import AlarmRate
from geopatch.watching.picking import StreamMatch
from geopatch.watching.watch import Watch
from geopatch.watching.watcher import Watcher

__all__ = ["AlarmRate", "StreamMatch", "Watch", "Watcher"]
