"""The files of the page, read once from the package: what a client names is looked up among them, never opened."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    content: bytes
    kind: str
    digest: str


def page_files() -> dict[str, PageFile]:
    """By their names."""
    found = {}
    for item in (files("geopatch.server") / "page").iterdir():
        ending = f".{item.name.rpartition('.')[2]}"
        if item.is_file() and ending in KINDS:
            content = item.read_bytes()
            found[item.name] = PageFile(content, KINDS[ending], hashlib.sha256(content).hexdigest()[:16])
    return found
