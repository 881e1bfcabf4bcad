"""Result rows: what is written comes back, and a summary joins only what differs by seed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from geopatch.config import ModelConfig, TrainConfig
from geopatch.errors import DataError, GeoPatchError
from geopatch.evaluate.rows import Row, append_rows, config_digest, read_rows, summarise

ROW = Row(
    data="Waves_TEST",
    data_digest="d1",
    preset="default",
    config_digest="c1",
    seed=0,
    protocol="standard",
    protocol_digest="p1",
    scorer="fused",
    stress="clean",
    scores={"recall@1": 0.5, "map": 0.25},
    queries=8,
    without_positive=1,
    fit_s=2.0,
    encode_s=0.5,
    peak_memory_mb=100.0,
    device="cpu",
)


def test_rows_come_back(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, seed=1, peak_memory_mb=None)]
    append_rows(tmp_path / "rows.jsonl", rows)
    assert read_rows(tmp_path / "rows.jsonl") == rows


def test_rows_are_added(tmp_path: Path) -> None:
    file = tmp_path / "new" / "rows.jsonl"
    append_rows(file, [ROW])
    append_rows(file, [replace(ROW, seed=1)])
    assert [row.seed for row in read_rows(file)] == [0, 1]
    assert len(file.read_text().splitlines()) == 2


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    append_rows(file, [ROW])
    file.write_text(f"\n{file.read_text()}\n\n")
    assert read_rows(file) == [ROW]


def test_a_row_tells_the_versions() -> None:
    assert set(ROW.versions) == {"geopatch", "python", "torch", "numpy"}


@pytest.mark.parametrize(
    "line", ["{", "5", "[1]", '{"data": "x"}', json.dumps({**ROW.as_dict(), "colour": "red"}), '"text"']
)
def test_a_bad_line_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    append_rows(file, [ROW])
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(DataError, match=r"rows\.jsonl line 2 is no result row .*; delete or mend that line"):
        read_rows(file)


def test_a_file_of_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is no file of result rows"):
        read_rows(tmp_path / "rows.jsonl")


def test_a_packed_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(b"{}")
    with pytest.raises(DataError, match=r"cannot read rows from .*: Not a gzipped file"):
        read_rows(tmp_path / "rows.jsonl.gz")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read rows from .*: No such file"):
        read_rows(tmp_path / "rows.jsonl")


def test_a_place_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GeoPatchError, match=r"cannot write rows to .*; give another path"):
        append_rows(tmp_path, [ROW])


def test_a_summary_is_mean_and_spread_over_seeds() -> None:
    found = [0.5, 0.7, 0.9]
    rows = [replace(ROW, seed=seed, scores={"map": value}, fit_s=seed) for seed, value in enumerate(found)]
    (line,) = summarise(rows)
    assert (line.data, line.preset, line.scorer, line.stress) == ("Waves_TEST", "default", "fused", "clean")
    assert line.seeds == 3
    assert line.scores == pytest.approx({"map": mean(found)})
    assert line.spread == pytest.approx({"map": stdev(found)})
    assert line.fit_s == 1.0


def test_one_seed_has_no_spread() -> None:
    assert summarise([ROW])[0].spread == {"recall@1": 0.0, "map": 0.0}


@pytest.mark.parametrize(
    "field", ["data", "data_digest", "preset", "config_digest", "protocol_digest", "scorer", "stress"]
)
def test_only_seeds_are_joined(field: str) -> None:
    changed: dict[str, Any] = {field: "another"}
    other = replace(ROW, **changed)
    assert len(summarise([ROW, other])) == 2
    assert len(summarise([ROW, replace(ROW, seed=1)])) == 1


def test_rows_from_before_classes_still_read(tmp_path: Path) -> None:
    told = {name: value for name, value in ROW.as_dict().items() if name not in ("per_class", "stress_digest")}
    (tmp_path / "rows.jsonl").write_text(json.dumps(told) + "\n")
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert (row.per_class, row.stress_digest) == ({}, "")


def test_classes_are_joined_over_seeds(tmp_path: Path) -> None:
    classes = [{"N": {"recall@1": value, "map": 0.5, "queries": 8.0}, "V": {"recall@1": 0.0}} for value in (0.5, 0.7)]
    rows = [replace(ROW, seed=seed, per_class=found) for seed, found in enumerate(classes)]
    append_rows(tmp_path / "rows.jsonl", rows)
    (line,) = summarise(read_rows(tmp_path / "rows.jsonl"))
    assert line.per_class["N"] == pytest.approx({"recall@1": 0.6, "map": 0.5, "queries": 8.0})
    assert line.per_class["V"] == {"recall@1": 0.0}
    assert line.protocol == "standard"


def test_old_and_new_rows_are_joined_by_what_both_have() -> None:
    new = replace(ROW, seed=1, scores={**ROW.scores, "class_mean_map": 0.1}, per_class={"N": {"map": 0.1}})
    for rows in ([ROW, new], [new, ROW]):
        (line,) = summarise(rows)
        assert (set(line.scores), line.per_class) == ({"recall@1", "map"}, {})


@pytest.mark.parametrize(
    ("sizes", "imbalanced"),
    [
        ([], False),
        ([9], False),
        ([5, 5], False),
        ([10, 5], False),
        ([11, 5], True),
        ([20, 9, 11], False),
        ([21, 9, 11], True),
    ],
)
def test_a_class_of_twice_the_others_is_too_large(sizes: list[int], imbalanced: bool) -> None:
    classes = {str(n): {"queries": float(size)} for n, size in enumerate(sizes)}
    assert summarise([replace(ROW, per_class=classes)])[0].imbalanced == imbalanced


def test_summaries_keep_the_order_of_the_rows() -> None:
    rows = [replace(ROW, scorer=scorer, seed=seed) for seed in (0, 1) for scorer in ("fused", "cosine")]
    assert [line.scorer for line in summarise(rows)] == ["fused", "cosine"]


def changes(config: ModelConfig | TrainConfig) -> Iterator[tuple[str, Any]]:
    """The config with one field after another changed, checks left aside: what counts is that it differs."""
    for field in dataclasses.fields(config):
        other = object.__new__(type(config))
        other.__dict__.update(config.__dict__, **{field.name: "changed"})
        yield field.name, other


def test_the_config_digest_ignores_what_comes_from_the_data_and_nothing_else() -> None:
    model, train = ModelConfig(), TrainConfig()
    own = config_digest(model, train)
    found = {name: config_digest(other, train) for name, other in changes(model)}
    found |= {f"train {name}": config_digest(model, other) for name, other in changes(train)}
    assert [name for name, digest in found.items() if digest == own] == ["patch_count", "channels", "length"]
    assert len({own, *found.values()}) == len(found) - 2


def test_the_config_digest_is_the_same_for_the_same_config() -> None:
    assert config_digest(ModelConfig(width=32)) == config_digest(ModelConfig(width=32))
