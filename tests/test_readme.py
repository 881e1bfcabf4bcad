"""What the README shows is real."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_python_examples_run_and_print_what_they_say(tmp_path: Path) -> None:
    """One after the other, as a reader would: the second searches with the model that the first saved."""
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert printed(first, tmp_path) == said(first)
    assert (tmp_path / "motions-model" / "weights.safetensors").is_file()
    found, score, *matches = printed(second, tmp_path)
    assert [found] == said(second)
    assert re.match(r"fused \d\.\d+, cosine", score)
    assert len(matches) >= 5  # patches of a window of 100 samples
    assert all(re.match(r"query \d.* s ~ hit \d.* s  similarity", line) for line in matches)


def printed(example: str, folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", example], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def said(example: str) -> list[str]:
    """What the comments say is printed."""
    return re.findall(r"# (\[.*\])", example)


def test_links_and_pictures_of_the_docs_are_there() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} points to {target}"
