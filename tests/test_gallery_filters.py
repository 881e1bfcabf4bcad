"""Filters: what they mean, how they are written, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geopatch.engines import as_filter
from geopatch.engines.filters import parse_where
from geopatch.errors import GalleryError

ROW: dict[str, Any] = {
    "sex": "F",
    "age": 40,
    "noise": 0.5,
    "paced": True,
    "record": "100",
    "start_s": 2.0,
    "id": "100@2s",
}


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ({"sex": "F"}, True),
        ({"sex": "M"}, False),
        ({"age": 40.0}, True),
        ({"age": "40"}, False),
        ({"paced": True}, True),
        ({"paced": 1}, False),
        ({"age": True}, False),
        ({"age": {">=": 40, "<": 41}}, True),
        ({"age": {">": 40}}, False),
        ({"sex": {"<": 5}}, False),
        ({"sex": {"in": ["M", "F"]}}, True),
        ({"sex": {"not in": ["M", "F"]}}, False),
        ({"nothing": "F"}, False),
        ({"nothing": {"!=": "F"}}, True),
        ({"not": {"nothing": {"<": 1}}}, True),
        ({"sex": "F", "age": 41}, False),
        ({"or": [{"sex": "M"}, {"age": 40}]}, True),
        ({"and": [{"sex": "F"}, {"not": {"age": 40}}]}, False),
        ({"and": [{"sex": "F"}, "age == 40"]}, True),
        ({}, True),
        ({"or": []}, False),
        ("age >= 40 and sex in ('F', 'M')", True),
        ("30 <= age < 40", False),
        ("not (sex == 'M') and paced == true", True),
        ("noise == 0.5 or age == -1", True),
        ("sex != 'F' or record == '100'", True),
        ("'F' == sex and 2 >= start_s", True),
        ("sex not in ['F']", False),
    ],
    ids=str,
)
def test_what_a_filter_lets_through(where: Any, passes: bool) -> None:
    found = as_filter(where)
    assert found is not None
    assert found.matches(ROW) == passes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("age >=", "cannot read the filter"),
        ("", "cannot read the filter"),
        ("__import__('os').system('x') == 1", "expected a name on one side"),
        ("age == open('x')", "expected a value, got"),
        ("age", "expected a comparison, got 'age'"),
        ("age + 1 == 2", "expected a name on one side"),
        ("[age for age in (1,)] == 1", "expected a name on one side"),
        ("sex == F", "text values need quotes"),
        ("age is 3", "expected one of == != < <= > >= in, not in; got 'is'"),
        ("sex < 'F'", "only numbers have an order"),
        ("3 in age", "expected a name on one side"),
        ("sex in 'F'", "expected a list of values, got str"),
        ("age == None", "must be text, a number, true or false, got NoneType"),
        ("age == 1e999", "must be a finite number"),
        ("age == 99999999999999999999", "write it as text"),
        ("(" * 300 + "age == 1" + ")" * 300, "cannot read the filter"),
        ("age == 1 and " * 2000 + "age == 1", "may have 10000 characters"),
    ],
    ids=lambda text: text[:30],
)
def test_text_that_is_no_filter_is_refused(text: str, told: str) -> None:
    with pytest.raises(GalleryError, match=told.replace("(", r"\(")):
        parse_where(text)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ({"age": {"~": 3}}, "expected one of == != < <= > >= in, not in; got '~'"),
        ({"age": [1, 2]}, "must be text, a number"),
        ({"a.b": 1}, "expected a metadata name"),
        ({"a\"'; DROP TABLE entry": 1}, "expected a metadata name"),
        ({3: 1}, "expected a metadata name"),
        ({"or": {"a": 1}}, "expected a list of filters, got dict"),
        ({"not": None}, "expected a filter, got nothing"),
        ({"age": {"in": "abc"}}, "expected a list of values, got str"),
        ({"age": {"<": True}}, "only numbers have an order"),
        ({"age": {"<": float("nan")}}, "must be a finite number"),
        (3, "expected a filter as a mapping or as text, got int"),
    ],
    ids=str,
)
def test_mappings_that_are_no_filter_are_refused(where: Any, told: str) -> None:
    with pytest.raises(GalleryError, match=told):
        as_filter(where)


@given(st.text(max_size=40))
def test_any_text_is_a_filter_or_a_gallery_error(text: str) -> None:
    with suppress(GalleryError):
        parse_where(text)
