"""`geopatch index --cluster`: real workers on loopback make the gallery that one process makes, whoever is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars
import pytest
from recordings import write_folder
from test_indexing import assert_same, contents

from geopatch.cli import main
from geopatch.errors import ConfigError
from geopatch.gallery import Gallery
from geopatch.indexing.folder import index_files
from geopatch.indexing.settings import IndexReport, IndexSettings, Listener
from geopatch.kernels import fitting

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

FILES = 10


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A scheduler with two worker processes; one that is killed is started again, as clusters do."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`folder`, with a file that cannot be read and one with two recordings, and its `gallery` by one process."""
    base = tmp_path_factory.mktemp("cluster")
    write_folder(base / "folder", FILES, 60.0, 18)
    frame = polars.read_csv(base / "folder" / "rec00.csv").head(1500)
    halves = [frame.with_columns(id=polars.lit(name)) for name in ("early", "late")]
    polars.concat(halves).write_csv(base / "folder" / "both.csv")
    (base / "folder" / "text.csv").write_text("one,two\nno,number\nat,all\n")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VIEWS": 2000, "SAMPLE_VIEWS": 512, "RANK": 128}.items():
            patch.setattr(fitting, name, value)
        index_files(base / "folder", base / "gallery", IndexSettings(window_s=4.0), Listener())
    return base


def empty(made: Path, place: Path) -> Path:
    """A gallery with the same model, and nothing in it."""
    with Gallery.open(made / "gallery", read_only=True) as gallery:
        model = gallery.model
    assert model is not None
    Gallery.create(place, model).close()
    return place


def test_workers_make_the_gallery_of_one_process(made: Path, address: str, tmp_path: Path) -> None:
    place, shares, refused = empty(made, tmp_path / "gallery"), list[float](), list[str]()
    listener = Listener(refuse=refused.append, progress=lambda share, _: shares.append(share))
    report = index_files(made / "folder", place, IndexSettings(cluster=address), listener)
    assert_same(contents(made / "gallery"), contents(place))
    assert report.recordings == FILES + 2
    assert len(refused) == 1
    assert "text.csv" in refused[0]
    assert shares == pytest.approx(sorted(shares))
    assert shares[-1] == 1.0
    again = index_files(made / "folder", place, IndexSettings(cluster=address), Listener())
    assert (again.written, len(again.unchanged)) == (0, FILES + 1)


def test_parts_of_a_file_make_the_whole(
    made: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With batches of 8 windows and parts of 2 batches, here and on the workers."""
    from geopatch.gallery import adding
    from geopatch.indexing import cluster_worker

    def small(batch: int = 8, part: int = 2) -> None:
        adding.BATCH = cluster_worker.BATCH = batch  # type: ignore[attr-defined]
        cluster_worker.PART = part

    monkeypatch.setattr(adding, "BATCH", 8)
    one, two = empty(made, tmp_path / "one"), empty(made, tmp_path / "two")
    index_files(made / "folder", one, IndexSettings(), Listener())
    with distributed.Client(address, set_as_default=False) as client:
        client.run(small)
        try:
            index_files(made / "folder", two, IndexSettings(cluster=address), Listener())
        finally:
            client.run(small, 256, 32)
    assert_same(contents(one), contents(two))


def test_a_changed_file_replaces_what_it_was(made: Path, address: str, tmp_path: Path) -> None:
    shutil.copytree(made / "folder", tmp_path / "folder")
    places = [empty(made, tmp_path / name) for name in ("one", "two")]
    for place in places:
        index_files(tmp_path / "folder", place, IndexSettings(), Listener())
        with Gallery.open(place) as gallery:
            gallery.relabel({"seen": True}, record="rec01")
    frame = polars.read_csv(tmp_path / "folder" / "rec01.csv")
    frame.with_columns(x=polars.col("x") * 2).head(2000).write_csv(tmp_path / "folder" / "rec01.csv")
    reports: list[IndexReport] = []
    for place, cluster in zip(places, (None, address), strict=True):
        reports.append(index_files(tmp_path / "folder", place, IndexSettings(cluster=cluster), Listener()))
    assert reports[1].changed == ["rec01"]
    assert reports[1].removed == reports[0].removed > 0
    assert_same(contents(places[0]), contents(places[1]))


def test_a_worker_that_is_killed_changes_nothing(made: Path, address: str, tmp_path: Path) -> None:
    place, killed = empty(made, tmp_path / "gallery"), list[int]()
    with distributed.Client(address, set_as_default=False) as client:

        def progress(share: float, windows: int) -> None:
            if not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        report = index_files(made / "folder", place, IndexSettings(cluster=address), Listener(progress=progress))
        client.wait_for_workers(2, timeout=30)
        assert killed[0] not in client.run(os.getpid).values()
    assert len(report.refused) == 1
    assert_same(contents(made / "gallery"), contents(place))


DRIVER = """
import os, signal, sys
from geopatch.indexing.folder import index_files
from geopatch.indexing.settings import IndexSettings, Listener
def progress(share, windows):
    if share > 0.4:
        os.kill(os.getpid(), signal.SIGKILL)
index_files(sys.argv[1], sys.argv[2], IndexSettings(cluster=sys.argv[3]), Listener(progress=progress))
"""


def test_a_driver_that_was_killed_goes_on(made: Path, address: str, tmp_path: Path) -> None:
    place = empty(made, tmp_path / "gallery")
    command = [sys.executable, "-c", DRIVER, str(made / "folder"), str(place), address]
    assert subprocess.run(command, timeout=120).returncode == -signal.SIGKILL
    with Gallery.open(place, read_only=True) as gallery:
        before = len(gallery)
    report = index_files(made / "folder", place, IndexSettings(cluster=address), Listener())
    assert before > 0
    assert len(report.unchanged) > 0
    assert report.written == report.windows - before > 0
    assert_same(contents(made / "gallery"), contents(place))


def test_an_address_without_a_scheduler_is_one_line(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from geopatch.indexing import cluster

    monkeypatch.setattr(cluster, "CONNECT_S", 1)
    with pytest.raises(ConfigError, match="no Dask scheduler answers at 'tcp://127"):
        index_files(made / "folder", tmp_path / "gallery", IndexSettings(cluster="tcp://127.0.0.1:9"), Listener())
    assert not (tmp_path / "gallery").exists()


def test_a_missing_library_is_one_line(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    command = ["index", str(made / "folder"), "--out", str(tmp_path / "gallery"), "--cluster", "tcp://127.0.0.1:9"]
    with pytest.raises(SystemExit, match="2"):
        main(command)
    assert "geopatch-ts[cluster]" in capsys.readouterr().err.splitlines()[-1]


def test_without_a_cluster_nothing_of_it_is_imported(made: Path) -> None:
    code = (
        "import sys\nfrom geopatch.indexing.folder import index_files\n"
        "from geopatch.indexing.settings import IndexSettings, Listener\n"
        "index_files(sys.argv[1], sys.argv[2], IndexSettings(), Listener())\n"
        "print(sorted({'dask', 'distributed', 'tornado', 'geopatch.indexing.cluster'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(made / "folder"), str(made / "gallery")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
