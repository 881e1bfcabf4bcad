"""The files of deploy/ can be read, and name what the engine needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from geopatch.engines.postgres_shard_sql import shard_fields, shown_place

yaml = pytest.importorskip("yaml", reason="needs pyyaml")
DEPLOY = Path(__file__).parent.parent / "deploy"


def parsed(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def addresses(name: str) -> list[str]:
    """The addresses of shards in the comments."""
    return re.findall(r"--add (postgresql://\S+)", (DEPLOY / name).read_text(encoding="utf-8"))


def test_the_compose_file_starts_what_its_command_names() -> None:
    parts = parsed("compose.yaml")
    services = parts["services"]
    hosts = [host for url in addresses("compose.yaml") for host in shard_fields(url)["host"].split(",")]
    assert set(hosts) == set(services) - {"coordinator"}
    assert {volume.split(":")[0] for one in services.values() for volume in one["volumes"]} == set(parts["volumes"])
    for name, service in services.items():
        assert re.fullmatch(r"pgvector/pgvector:[\d.]+-pg(\d+)", service["image"])
        assert name.endswith("-replica") == ("PRIMARY" in service["environment"])
        primary = service["environment"].get("PRIMARY")
        assert primary is None or (f"{primary}-replica" == name and primary in service["depends_on"])
    assert {config["source"] for one in services.values() for config in one.get("configs", ())} == set(parts["configs"])


def test_the_values_of_the_chart_have_the_extensions() -> None:
    cluster = parsed("shard-values.yaml")["cluster"]
    assert cluster["instances"] > 1
    statements = " ".join(cluster["initdb"]["postInitApplicationSQL"])
    assert all(f"CREATE EXTENSION IF NOT EXISTS {name}" in statements for name in ("vector", "postgres_fdw"))
    fields = shard_fields(addresses("shard-values.yaml")[0])
    assert shown_place(fields) == "shard1-cluster-rw:5432,shard1-cluster-r:5432/geopatch"
    assert fields["dbname"] == cluster["initdb"]["database"]
