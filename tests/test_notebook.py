"""What notebooks show: small tables of escaped text, and lines with gaps."""

from __future__ import annotations

import re

import numpy as np
import pytest

from geopatch.notebook import HEIGHT, MAX_ROWS, WIDTH, sparkline, table


def points(svg: str) -> list[tuple[str, float, float]]:
    return [(pen, float(x), float(y)) for pen, x, y in re.findall(r"([ML])([-\d.]+) ([-\d.]+)", svg)]


def test_a_table_escapes_text_and_keeps_drawings() -> None:
    html = table([{"id": "<b>", "score": 0.123456, "drawn": sparkline([1.0, 2.0])}, {"id": None}], "a & b")
    assert "<td>&lt;b&gt;</td><td>0.1235</td><td><svg" in html
    assert "<caption>a &amp; b</caption>" in html
    assert table([]) == "<table><thead><tr></tr></thead><tbody></tbody></table>"


def test_a_long_table_is_cut() -> None:
    html = table({"n": n} for n in range(MAX_ROWS + 3))
    assert html.count("<td>") == MAX_ROWS
    assert html.endswith("<p>... and 3 more</p>")


@pytest.mark.parametrize("length", [1, 2, 50, WIDTH, 5000])
def test_a_line_stays_in_its_box_and_keeps_its_extremes(length: int) -> None:
    values = np.random.default_rng(0).normal(size=(length, 2))
    drawn = points(sparkline(values))
    assert len(drawn) <= 2 * WIDTH
    assert all(0 <= x <= WIDTH and 0 < y < HEIGHT for _, x, y in drawn)
    if length > 1:
        assert {min(y for *_, y in drawn), max(y for *_, y in drawn)} == {1.0, HEIGHT - 1.0}


def test_gaps_break_the_line() -> None:
    assert [pen for pen, *_ in points(sparkline([1.0, 2.0, np.nan, 3.0, 1.0]))] == ["M", "L", "M", "L"]
    assert points(sparkline([np.nan, np.nan])) == []
