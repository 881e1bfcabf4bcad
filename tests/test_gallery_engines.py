"""A further engine is a module and a line in a table; a search among numpy vectors needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from galleries import ABOUT, agrees, entries_of, naive_shortlist, same

from geopatch.engines import place
from geopatch.errors import ExistsError, NotFoundError
from geopatch.gallery import Gallery

IDS = [f"w {n}" for n in range(20)]


def test_an_engine_is_added_by_a_module_and_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(place.ENGINES, "memory", "memory_engine:Memory")
    entries = entries_of(IDS)
    with Gallery.create("memory://toy", ABOUT) as gallery:
        gallery.add(entries)
        assert same(gallery.fetch(IDS), entries)
        found = gallery.shortlist(entries.embedding[:1], 5)[0]
        assert agrees(found, naive_shortlist(entries, entries.embedding[0], 5, None))
        assert [hit.id for hit in gallery.search(IDS[0], 3)] == [hit.id for hit in gallery.search(IDS[0], 3)]
        with pytest.raises(NotFoundError, match="no entry has a field 'x'"):
            gallery.count("x == 1")
        gallery.copy(tmp_path / "copy")
        assert gallery.info().engine == "memory"
    with pytest.raises(ExistsError):
        Gallery.create("memory://toy", ABOUT)


@pytest.mark.parametrize("text", ["C:\\galleries\\ecg", "ecg:2", "./exact", "postgres"])
def test_paths_that_look_like_schemes_are_paths(text: str) -> None:
    assert place._split(text) == ("embedded", text)


LIGHT = """
import sys
from galleries import ABOUT, entries_of
from geopatch.engines.place import create_engine
engine = create_engine(sys.argv[1], ABOUT)
entries = entries_of([str(n) for n in range(50)])
engine.put(entries)
assert engine.shortlist(entries.embedding[:3], 1)[2].ids == ("2",)
print("torch" in sys.modules)
"""


@pytest.mark.parametrize("prefix", ["exact:", ""], ids=["exact", "embedded"])
def test_comparing_vectors_needs_no_torch(prefix: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIGHT, f"{prefix}{tmp_path / 'g'}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=120)
    assert done.stdout == "False\n", done.stderr
