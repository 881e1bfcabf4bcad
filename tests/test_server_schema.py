"""Schemathesis over the OpenAPI document: no 5xx, and no answer that the document does not tell of."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import WRITE_TOKEN, client_of, make_place

from geopatch.scoring import scorer_names
from geopatch.search import SearchOptions
from geopatch.server import Settings
from geopatch.server.schema import SearchIn

EXAMPLES = int(os.environ.get("GEOPATCH_EXAMPLES", "8"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
HOME = {"Host": "127.0.0.1", "Authorization": f"Bearer {WRITE_TOKEN}"}


def test_every_answer_is_documented(tmp_path: Path) -> None:
    with client_of(make_place(tmp_path), Settings(token=WRITE_TOKEN, write_token=WRITE_TOKEN)) as client:
        schema = schemathesis.openapi.from_asgi("/api/openapi.json", client.app, headers=HOME)
        names = []
        for found in schema.get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]
            names.append(operation.label)
            _check(operation)
    assert {"POST /api/search", "DELETE /api/windows", "POST /api/streams", "GET /metrics"} <= set(names)
    assert len(names) == 26


def _check(operation: Any) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy())
    def sent(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, headers=HOME)

    sent()


def test_the_options_of_a_search_are_those_of_python() -> None:
    properties = SearchIn.model_json_schema()["properties"]
    assert set(properties) - {"query", "explain"} == {item.name for item in fields(SearchOptions)}
    for item in fields(SearchOptions):
        assert properties[item.name]["description"] == item.metadata["help"]
        if item.name != "windows":  # values make an answer a hundred times larger
            assert properties[item.name]["default"] == item.default
    assert properties["scorer"]["enum"] == [None, *scorer_names()]


def test_every_route_says_what_it_does(tmp_path: Path) -> None:
    with client_of(make_place(tmp_path)) as client:
        paths = client.get("/api/openapi.json").json()["paths"]
    operations = [operation for methods in paths.values() for operation in methods.values()]
    assert all(len(operation["description"]) > 15 for operation in operations)
