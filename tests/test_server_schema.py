"""Schemathesis over the OpenAPI document: no 5xx, and no answer that the document does not tell of."""

from __future__ import annotations

import os
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

from geopatch.server import Settings

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
    assert len(names) == 17


def _check(operation: Any) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy())
    def sent(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, headers=HOME)

    sent()
