"""What the server counts, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from geopatch.engines.engine import ShardInfo

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32)
KNOWN_METHODS = ("GET", "HEAD", "POST", "DELETE")


class Metrics:
    """Counters of one server; a second server in the same process has its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "geopatch_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "geopatch_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, registry=self.registry
        )
        self._batch_sizes = Histogram(
            "geopatch_searched_together", "Searches in one batch.", buckets=SIZES, registry=self.registry
        )
        self._wrong_tokens = Counter("geopatch_wrong_tokens", "Requests with a wrong token.", registry=self.registry)
        self._refused_connections = Counter(
            "geopatch_connections_refused", "Connections beyond the cap.", registry=self.registry
        )
        self._latency = Histogram(
            "geopatch_watch_latency_seconds",
            "From the samples that decide a match to its event.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._written = Counter("geopatch_windows_written", "Windows added.", registry=self.registry)
        self._removed = Counter("geopatch_windows_removed", "Windows removed.", registry=self.registry)

    def watch(self, name: str, help: str, value: Callable[[], float]) -> None:
        """A number that is looked up at each request for the metrics."""
        Gauge(name, help, registry=self.registry).set_function(value)

    def watch_shards(self, shards: Callable[[], Sequence[ShardInfo]]) -> None:
        """The state of each shard, looked up at each request for the metrics."""
        self.registry.register(ShardCollector(shards))

    def request(self, scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def searched(self, batch_size: int) -> None:
        self._batch_sizes.observe(batch_size)

    def wrong_token(self) -> None:
        self._wrong_tokens.inc()

    def connection_refused(self) -> None:
        self._refused_connections.inc()

    def event(self, seconds: float) -> None:
        self._latency.observe(seconds)

    def written(self, windows: int) -> None:
        self._written.inc(windows)

    def removed(self, windows: int) -> None:
        self._removed.inc(windows)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class ShardCollector(Collector):
    """Gauges by shard."""

    def __init__(self, shards: Callable[[], Sequence[ShardInfo]]) -> None:
        self._shards = shards

    def describe(self) -> list[Metric]:
        """None: else each shard would be queried when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        shards = self._shards()
        for name, help, value in SHARD_GAUGES:
            gauge = GaugeMetricFamily(f"geopatch_shard_{name}", help, labels=["shard"])
            for shard in shards:
                gauge.add_metric([shard.name], value(shard))
            yield gauge


def _lag_bytes(shard: ShardInfo) -> float:
    return max((replica.lag_bytes or 0 for replica in shard.replicas), default=0)


SHARD_GAUGES: tuple[tuple[str, str, Callable[[ShardInfo], float]], ...] = (
    ("answers", "Whether a shard answers.", lambda shard: float(shard.answers)),
    ("windows", "Windows on a shard.", lambda shard: shard.windows),
    ("bytes", "Size of a shard on disk.", lambda shard: shard.bytes),
    ("replicas", "Replicas that follow a shard.", lambda shard: len(shard.replicas)),
    ("lag_bytes", "Log that the slowest replica of a shard has not applied.", _lag_bytes),
)
