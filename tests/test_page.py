"""The page in a real browser: drop a file, mark a part, search, switch, explain, and open the same search again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from serving import TOKEN, Server, make_place, server_of

from geopatch.data.sample import mitdb_minutes

if TYPE_CHECKING:
    from playwright.sync_api import Page

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
PHONE = {"width": 390, "height": 844}


def chromium() -> str:
    """Debian's chromium; installed where that can be done, else the tests say why they are skipped."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for name in names if (path := shutil.which(name))), None)
    if program is None and hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, timeout=300, check=False)
        program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium: apt-get install chromium")
    return program


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    with server_of(place) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as started:
        running = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(30_000)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
    yield opened
    context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def beat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seconds of record 119 as a table."""
    signal = next(one.signal for one in mitdb_minutes() if one.signal.id == "119")
    path = tmp_path_factory.mktemp("files") / "beat.csv"
    rows = (f"{n / 360:.6f},{a:.4f},{b:.4f}" for n, (a, b) in enumerate(signal.values[: 360 * 12].tolist()))
    path.write_text("time,MLII,V1\n" + "\n".join(rows))
    return path


def opened(page: Page, server: Server, hash: str = "") -> Page:
    page.goto("about:blank")
    page.goto(f"{server.url}/{hash}")
    page.wait_for_selector("body[data-ready]")
    return page


def drop(page: Page, path: Path) -> None:
    """As a hand does it: the file falls onto the page."""
    data = page.evaluate_handle(
        """([name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name));
            return data;
        }""",
        [path.name, path.read_text()],
    )
    page.dispatch_event("#drop", "dragover", {"dataTransfer": data})
    page.dispatch_event("#drop", "drop", {"dataTransfer": data})
    page.wait_for_selector("#plot .u-over")


def brush(page: Page, start_s: float, stop_s: float) -> None:
    """Drag over the plot, whose view is 12 s wide here."""
    box = page.locator("#plot .u-over").bounding_box()
    assert box is not None
    at = [box["x"] + box["width"] * second / 12 for second in (start_s, stop_s)]
    middle = box["y"] + box["height"] / 2
    page.mouse.move(at[0], middle)
    page.mouse.down()
    page.mouse.move((at[0] + at[1]) / 2, middle, steps=5)
    page.mouse.move(at[1], middle, steps=5)
    page.mouse.up()


def until(page: Page, expression: str) -> None:
    """Wait for something to be true on the page, whose policy lets nobody evaluate text inside it."""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def hits(page: Page) -> list[str]:
    page.wait_for_selector("#hits .hit")
    page.wait_for_selector("#hits:not([aria-busy])")
    return [node.get_attribute("data-id") or "" for node in page.query_selector_all("#hits .hit")]


def test_drop_mark_search_switch_explain_and_reopen(page: Page, server: Server, beat: Path) -> None:
    opened(page, server)
    assert page.is_visible("#query-empty")
    drop(page, beat)
    assert "beat · 12 s at 360 Hz" in page.inner_text("#query-summary")
    assert page.is_hidden("#query-empty")
    brush(page, 3.0, 5.0)
    assert float(page.input_value("#start")) == pytest.approx(3, abs=0.1)
    assert float(page.input_value("#stop")) == pytest.approx(5, abs=0.1)
    page.fill("#start", "3")
    page.fill("#stop", "5")
    page.click("#search")
    ids = hits(page)
    assert ids[0] == "119@3s"
    assert len(ids) == 12
    assert re.search(r"12 of 71 windows in [\d.]+ ms", page.inner_text("#took"))
    assert page.locator("#hits .hit .line-query").count() == page.locator("#hits .hit .line-hit").count() == 12

    page.click("#scorers label:has-text('dtw')")
    until(page, "location.hash.includes('scorer=dtw')")
    assert hits(page)[0] == "119@3s"

    page.click("#scorers label:has-text('maxsim')")
    until(page, "location.hash.includes('scorer=maxsim')")
    ranked = hits(page)
    page.locator("#hits .hit").nth(1).click()
    page.wait_for_selector("#match .figure")
    assert page.locator("#match .ribbon").count() >= 8
    assert "Why hit 2" in page.inner_text("#match-title")
    assert "certificate" in page.inner_text("#match")
    assert "best patch of the hit" in page.inner_text("#match")

    until(page, "location.hash.includes('hit=')")
    link = page.url
    again = page.context.new_page()
    again.goto(link)
    again.wait_for_selector("#match .figure")
    assert hits(again) == ranked
    assert "Why hit 2" in again.inner_text("#match-title")
    assert again.is_checked("#scorers input[value=maxsim]")
    assert "beat" in again.inner_text("#query-summary")


def test_pick_a_record_and_filter(page: Page, server: Server) -> None:
    opened(page, server)
    page.fill("#record-find", "20")
    until(page, "document.querySelectorAll('#records li').length === 2")
    page.click("#records li:has-text('208')")
    page.wait_for_selector("#plot .u-over")
    page.select_option("#protocol", "strict-cross-record")
    page.check("#tempos")
    page.click("#search")
    assert all(not id.startswith("208@") for id in hits(page))
    page.click("#fields .chip:has-text('V')")
    until(page, "location.hash.includes('where=')")
    page.wait_for_selector("#hits:not([aria-busy])")
    assert all("beat V" in node.inner_text() for node in page.query_selector_all("#hits .hit .tags"))
    opened(page, server, page.evaluate("location.hash"))
    hits(page)
    assert page.is_checked("#fields .chip:has-text('V') input")
    assert page.input_value("#protocol") == "strict-cross-record"
    assert page.is_checked("#tempos")


def test_the_keyboard_is_enough(page: Page, server: Server) -> None:
    opened(page, server)
    page.focus("#records")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#plot .u-over")
    assert "record 106" in page.inner_text("#query-summary")
    page.focus("#plot")
    page.keyboard.press("ArrowRight")
    assert float(page.input_value("#start")) == pytest.approx(0.25)
    page.keyboard.press("Shift+ArrowRight")
    assert float(page.input_value("#stop")) == pytest.approx(2.5)
    page.keyboard.press("Enter")
    ids = hits(page)
    page.focus("#hits .hit")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#match .figure")
    assert "Why hit 3" in page.inner_text("#match-title")
    page.focus("#close-match")
    page.keyboard.press("Enter")
    assert page.locator("#match").count() == 0
    assert page.evaluate("document.activeElement.dataset.id") == ids[2]


def test_errors_and_empty_results_are_shown(page: Page, server: Server, beat: Path, tmp_path: Path) -> None:
    opened(page, server, "#record=119&start=2&stop=4")
    hits(page)
    page.fill("#where", "beat ==")
    page.dispatch_event("#where", "change")
    page.wait_for_selector("#problem:not([hidden])")
    assert "cannot read the filter" in page.inner_text("#problem")
    page.fill("#where", "beat == 'nothing'")
    page.dispatch_event("#where", "change")
    page.wait_for_selector(".nothing")
    assert page.is_hidden("#problem")
    page.click(".nothing button")
    assert len(hits(page)) == 12
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b\n1,2\n3\n")
    page.set_input_files("#file", str(bad))
    page.wait_for_selector("#problem:not([hidden])")
    assert "expected 2 fields" in page.inner_text("#problem")
    page.route("**/api/search", lambda route: None)  # never answered
    page.set_input_files("#file", str(beat))
    page.wait_for_selector("#query-summary:has-text('beat')")
    page.click("#search")
    assert page.locator("#hits .ghost").count() == 12
    assert "searching" in page.inner_text("#took")


def test_a_phone_needs_no_sideways_scrolling(page: Page, server: Server) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    opened(page, server, "#record=119&start=2&stop=4")
    hits(page)
    page.locator("#hits .hit").first.click()
    page.wait_for_selector("#match .figure")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.goto(f"{server.url}/api")
    page.wait_for_selector("article")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_token_is_requested(page: Page, place: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with server_of(place, "--token-file", str(tmp_path / "token")) as server:
        page.goto(server.url)
        page.wait_for_selector("#token-dialog[open]")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-ready]")
        assert "71 windows" in page.inner_text("#gallery-summary")


def test_the_pictures_are_of_the_values(page: Page, server: Server) -> None:
    """The first hit of a stored window's neighbour overlaps it by half: both lines are drawn, and not the same."""
    opened(page, server, "#record=119&start=2&stop=4")
    hits(page)
    lines = [page.locator(f"#hits .hit .line-{kind}").first.get_attribute("d") or "" for kind in ("query", "hit")]
    points = [np.asarray(re.findall(r"-?[\d.]+", line), dtype=float) for line in lines]
    assert [len(line) for line in points] == [512, 512]
    assert not np.array_equal(points[0], points[1])
