"""The page in a real browser: drop a file, mark a part, search, switch, explain, and open the same search again."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from serving import TOKEN, Server, make_place, server_of
from test_rhythm_search import SMALL as WITH_RHYTHM
from test_rhythm_search import windows

from geopatch.data.sample import mitdb_minutes
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.indexing import index
from geopatch.signal import Signal

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, Route

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
PATHS = "nodes => nodes.map(node => node.getAttribute('d'))"  # of ribbons
AT_REST = """() => new Promise(done => {
    let last = scrollY, frames = 0;
    const check = () => {
        frames = scrollY === last ? frames + 1 : 0;
        last = scrollY;
        frames < 20 ? requestAnimationFrame(check) : done();
    };
    check();
})"""  # scrolling has come to an end
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


@contextmanager
def new_page(browser: Any, **options: Any) -> Iterator[Page]:
    """A page in a context of its own, on which no error may go unseen."""
    context = browser.new_context(**options)
    context.set_default_timeout(30_000)
    made = context.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.on("console", lambda line: errors.append(line.text) if "Content Security" in line.text else None)
    yield made
    context.close()
    assert errors == []


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    with new_page(browser, viewport={"width": 1280, "height": 900}) as made:
        yield made


@pytest.fixture
def phone(browser: Any) -> Iterator[Page]:
    with new_page(browser, viewport=PHONE, has_touch=True, is_mobile=True) as made:
        yield made


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
    mark(page, 3, 5)
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

    page.click("#scorers label:has-text('fused-aligned')")
    until(page, "location.hash.includes('scorer=fused-aligned')")
    hits(page)
    page.locator("#hits .hit").nth(1).click()
    page.wait_for_selector("#match .figure")
    until(page, "document.querySelector('#match').innerText.includes('in the order of time')")
    corners = [re.findall(r"[\d.]+", shape) for shape in page.locator("#match .ribbon").evaluate_all(PATHS)]
    spans = sorted((float(corner[0]), float(corner[-2])) for corner in corners)  # along the query
    assert all(one[1] == pytest.approx(other[0], abs=0.01) for one, other in itertools.pairwise(spans))


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


def test_shape_and_rhythm_are_weighed(page: Page, server: Server, tmp_path: Path) -> None:
    opened(page, server)
    assert not page.is_visible("#clock")  # the windows of this gallery have no relative tempo
    model = GeoPatch(model=WITH_RHYTHM, device="cpu").fit(windows())
    model.save(tmp_path / "model")
    with Gallery.create(tmp_path / "gallery", model) as gallery:
        gallery.add(windows())
    with server_of(tmp_path) as running:
        opened(page, running)
        page.click("#records li:has-text('b')")
        page.wait_for_selector("#plot .u-over")
        page.click("#search")
        hits(page)
        assert page.inner_text("#clock-value") == "as fitted"
        page.evaluate("document.querySelector('#clock').value = 1")
        page.dispatch_event("#clock", "input")
        page.dispatch_event("#clock", "change")
        until(page, "location.hash.includes('clock=1')")
        assert page.inner_text("#clock-value") == "rhythm 100 %"
        assert all(id[0] in "bd" for id in hits(page))  # the records whose marks are uneven too
        page.click("#hits .hit")
        page.wait_for_selector("#match .figure")
        assert page.locator("#match .anchor").count() >= 4
        assert "of which rhythm" in page.inner_text("#match .note")
        opened(page, running, page.evaluate("location.hash"))
        hits(page)
        assert page.input_value("#clock") == "1"


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
    bad.write_text("a,b\n1,2\n3\n4,5\n")
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


def selected(page: Page, plot: str) -> list[float]:
    """Where the selection of a plot starts and stops, in shares of the plot's width."""
    over, select = (page.locator(f"{plot} {part}").bounding_box() for part in (".u-over", ".u-select"))
    assert over is not None
    assert select is not None
    return [(edge - over["x"]) / over["width"] for edge in (select["x"], select["x"] + select["width"])]


def mark(page: Page, start: float, stop: float) -> None:
    """Type the edges of the mark; the first one past the second moves the whole mark."""
    for name, value in (("#start", start), ("#stop", stop)):
        page.fill(name, f"{value:g}")
        page.locator(name).blur()
    assert [float(page.input_value(name)) for name in ("#start", "#stop")] == [start, stop]


def assert_mark_is_drawn(page: Page) -> None:
    """The first 2 of the visible 12 s are marked on the plot, and these 12 s on the overview."""
    page.wait_for_timeout(200)
    assert selected(page, "#plot") == pytest.approx([0, 2 / 12], abs=0.01)
    assert selected(page, "#overview") == pytest.approx([0, 12 / 13], abs=0.01)


def test_the_mark_is_drawn_on_every_record_and_in_every_theme(page: Page, server: Server) -> None:
    opened(page, server)
    for name in ("100", "106", "119"):
        page.click(f"#records li:has-text('{name}')")
        page.wait_for_selector(f"#query-summary:has-text('record {name}')")
        assert_mark_is_drawn(page)
    for _ in range(2):
        page.click("#theme")
        assert_mark_is_drawn(page)
    page.set_viewport_size({"width": 1000, "height": 800})
    assert_mark_is_drawn(page)


def test_hits_of_an_older_mark_cannot_be_chosen(page: Page, server: Server) -> None:
    opened(page, server, "#record=119&start=2&stop=4")
    hits(page)
    page.locator("#hits .hit").first.click()
    page.wait_for_selector("#match .figure")
    explained: list[str] = []
    page.on("request", lambda request: explained.append(request.url) if "/api/explain" in request.url else None)
    mark(page, 7, 9)
    assert page.evaluate("document.querySelector('#hits').inert")
    assert page.locator("#match").count() == 0
    assert "search again" in page.inner_text("#took")
    assert page.is_disabled("#link")
    box = page.locator("#hits .hit").nth(4).bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 20, box["y"] + 20)
    page.wait_for_timeout(300)
    assert explained == []
    assert page.is_hidden("#problem")
    page.click("#search")
    hits(page)
    assert not page.evaluate("document.querySelector('#hits').inert")
    page.locator("#hits .hit").last.click()
    page.wait_for_selector("#match .figure")
    assert page.is_hidden("#problem")


def hold(page: Page, pattern: str) -> Callable[[], None]:
    """Keep the answer to the next request until the returned function is called."""
    held: list[Route] = []
    page.route(pattern, lambda route: held.append(route), times=1)

    def release() -> None:
        assert len(held) == 1
        with suppress(playwright_api.Error):  # the page may have given it up
            held[0].continue_()
        page.wait_for_timeout(700)

    return release


def test_a_late_answer_is_dropped(page: Page, server: Server) -> None:
    opened(page, server, "#record=119&start=2&stop=4")
    hits(page)
    release = hold(page, "**/api/search")
    page.click("#search")
    mark(page, 7, 9)
    release()
    assert page.locator("#hits .hit").count() == 0
    assert page.locator("#hits .ghost").count() == 0
    assert "search again" in page.inner_text("#took")
    release = hold(page, "**/api/record?name=100*")
    page.click("#records li:has-text('100')")
    page.click("#records li:has-text('208')")
    page.wait_for_selector("#query-summary:has-text('record 208')")
    release()
    assert "record 208" in page.inner_text("#query-summary")
    assert page.is_hidden("#problem")


@pytest.fixture(scope="module")
def long_server(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A gallery with one more record: 12,070 windows of a quarter of a second."""
    copy = tmp_path_factory.mktemp("long")
    shutil.copytree(place, copy, dirs_exist_ok=True)
    with Gallery.open(copy / "gallery") as gallery:
        encoded = next(gallery.scan())
        for part in range(170):
            numbers = np.arange(len(encoded)) + part * len(encoded)
            gallery.add(
                replace(
                    encoded,
                    ids=tuple(f"long@{n}" for n in numbers),
                    records=("long",) * len(numbers),
                    start_s=numbers / 4,
                    stop_s=(numbers + 1) / 4,
                    windows=tuple(quarter_second(int(n)) for n in numbers),
                )
            )
    with server_of(copy) as running:
        yield running


def quarter_second(n: int) -> Signal:
    t = np.arange(n * 32, n * 32 + 32) / 128
    values = np.stack([np.sin(2 * np.pi * t) * (1 + 0.5 * np.sin(t / 100)), np.cos(5 * t)], axis=1)
    return Signal(values.astype(np.float32), f"long@{n}", 128.0, ("MLII", "V1"), "long", n / 4)


def test_a_long_record_opens_with_detail_where_one_looks(page: Page, long_server: Server) -> None:
    opened(page, long_server)
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(len(answer.body())) if "/api/record?" in answer.url else None)
    page.click("#records li:has-text('long')")
    page.wait_for_selector("#query-summary:has-text('3017.5 s at 128 Hz')")
    page.wait_for_selector("#plot[data-bucket='1']")  # 12 s are shown
    page.mouse.wheel(0, -2000)
    box = page.locator("#overview .u-over").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + 20)
    page.wait_for_selector("#plot:not([data-bucket='1'])")
    page.wait_for_selector("#plot[data-bucket='1']")
    middle = page.locator("#plot .u-over").bounding_box()
    assert middle is not None
    page.mouse.click(middle["x"] + middle["width"] / 2, middle["y"] + 40)
    assert float(page.input_value("#start")) == pytest.approx(3017.5 * 0.9 - 1, abs=5)
    for _ in range(12):
        page.click("#zoom-out")
    page.wait_for_selector("#plot:not([data-bucket='1'])")
    page.click("#search")
    assert len(hits(page)) == 12
    assert max(sizes) < 400_000


def touch(page: Page, *points: tuple[float, float]) -> None:
    """One finger down at the first point, over the others, and up."""
    session = page.context.new_cdp_session(page)
    for n, (x, y) in enumerate(points):
        kind = "touchMove" if n else "touchStart"
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_finger_marks_a_span(phone: Page, server: Server) -> None:
    opened(phone, server, "#record=119&start=2&stop=4")
    hits(phone)
    phone.locator("#plot").scroll_into_view_if_needed()
    box = phone.locator("#plot .u-over").bounding_box()
    assert box is not None
    view = 12.0
    first = float(phone.input_value("#start")) - selected(phone, "#plot")[0] * view
    xs = [box["x"] + box["width"] * share for share in (0.5, 0.55, 0.6, 0.7, 0.75)]
    touch(phone, *((x, box["y"] + 50) for x in xs))
    assert float(phone.input_value("#start")) == pytest.approx(first + 0.5 * view, abs=0.3)
    assert float(phone.input_value("#stop")) == pytest.approx(first + 0.75 * view, abs=0.3)
    assert selected(phone, "#plot") == pytest.approx([0.5, 0.75], abs=0.03)
    marked = [phone.input_value(name) for name in ("#start", "#stop")]
    touch(phone, *((xs[0], box["y"] + down) for down in (120, 100, 70, 30, 0)))  # a swipe scrolls
    assert [phone.input_value(name) for name in ("#start", "#stop")] == marked
    phone.evaluate(AT_REST)  # it rolls on after the finger has gone
    low = phone.locator("#overview .u-over").bounding_box()
    assert low is not None
    touch(phone, *((low["x"] + low["width"] * share, low["y"] + 20) for share in (0.1, 0.3, 0.5)))
    assert selected(phone, "#overview") == pytest.approx([0.1, 0.5], abs=0.05)


def test_a_pen_marks_a_span(page: Page, server: Server) -> None:
    opened(page, server, "#record=119&start=2&stop=4")
    hits(page)
    box = page.locator("#plot .u-over").bounding_box()
    assert box is not None
    session = page.context.new_cdp_session(page)
    for kind, share, buttons in (("mousePressed", 0.5, 1), ("mouseMoved", 0.6, 1), ("mouseReleased", 0.75, 0)):
        event = {"x": box["x"] + box["width"] * share, "y": box["y"] + 50, "button": "left", "buttons": buttons}
        session.send("Input.dispatchMouseEvent", {"type": kind, **event, "clickCount": 1, "pointerType": "pen"})
    assert selected(page, "#plot")[0] == pytest.approx(0.5, abs=0.02)
    assert selected(page, "#plot")[1] > 0.59


def signal_of(request: Request) -> dict[str, Any]:
    body: Any = request.post_data_json
    signal: dict[str, Any] = body["query"]["signal"]
    return signal


def test_times_are_samples_where_the_rate_is_not_known(page: Page, server: Server, tmp_path: Path) -> None:
    def without_rate(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "rate_hz": None, "window_s": 256.0})

    page.route("**/api/info", without_rate)
    table = tmp_path / "plain.csv"
    values = np.sin(np.arange(1536) / 9)
    table.write_text("MLII,V1\n" + "\n".join(f"{value:.4f},{-value:.4f}" for value in values))
    opened(page, server)
    assert page.inner_text("#gallery-summary") == "71 windows of 256 samples, 2 channels"
    assert "Minimum gap, samples" in page.inner_text("#settings")
    drop(page, table)
    assert page.inner_text("#query-summary") == "plain · 1536 samples"
    assert page.locator(".query-unit").all_inner_texts() == ["samples", "samples"]
    assert [page.input_value(name) for name in ("#start", "#stop")] == ["0", "256"]
    with page.expect_request("**/api/search") as sent:
        page.click("#search")
    signal = signal_of(sent.value)
    assert (signal["rate_hz"], len(signal["values"])) == (None, 256)
    assert len(hits(page)) == 12


def test_channels_are_sent_by_name_and_a_refusal_is_readable(page: Page, server: Server, beat: Path) -> None:
    detail = "signal 'beat' has the channels MLII, V1; expected V5, MLII: rename its channels"
    page.route("**/api/search", lambda route: route.fulfill(status=422, json={"detail": detail}))
    opened(page, server)
    drop(page, beat)
    with page.expect_request("**/api/search") as sent:
        page.click("#search")
    assert signal_of(sent.value)["channels"] == ["MLII", "V1"]
    page.wait_for_selector("#problem:not([hidden])")
    lines = page.inner_text("#problem span").splitlines()
    assert lines == ["signal 'beat' has the channels MLII, V1;", "expected V5, MLII: rename its channels"]
    assert page.locator("#hits .ghost").count() == 0


def test_what_repeats_and_what_is_odd_lead_to_a_search(page: Page, server: Server) -> None:
    opened(page, server)
    page.click("#anomalies")
    odd = hits(page)
    assert len(odd) == 12
    assert "distance" in page.inner_text("#hits .hit:first-child .tags")
    page.click("#motifs")
    until(page, "document.querySelector('#hits .hit .tags')?.innerText.includes('times')")
    repeated = hits(page)
    page.click("#hits .hit:first-child")
    until(page, "location.hash !== ''")
    assert repeated[0] not in hits(page)  # it is the query now
    page.wait_for_selector("#plot .u-over")


def test_sound_is_drawn_as_a_picture_of_its_bands(page: Page, tmp_path: Path) -> None:
    """Forty lines over each other show nothing: bands are painted, in the query, in hits and in what explains them."""
    sounds = pytest.importorskip("soundfile", reason="needs soundfile")
    folder, at = tmp_path / "tones", np.arange(16_000) / 16_000
    folder.mkdir()
    for n, (low, high) in enumerate([(300, 900), (900, 300), (500, 2500), (2500, 500)]):
        sweep = np.sin(2 * np.pi * (low + (high - low) * at / 2) * at) * np.hanning(len(at))
        sounds.write(folder / f"tone{n}.wav", 0.5 * sweep, 16_000)
    with index(folder, tmp_path / "gallery", whole=True) as gallery:
        assert gallery.model is not None
        gallery.model.save(tmp_path / "model")
    with server_of(tmp_path) as server:
        opened(page, server)
        page.set_input_files("input[type=file]", folder / "tone2.wav")
        page.wait_for_selector("#plot .u-over")
        assert page.locator("#plot .lane").count() == 0
        painted = """() => {
            const canvas = document.querySelector("#plot canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return data.filter((value, n) => n % 4 === 3 && value > 0).length / (canvas.width * canvas.height);
        }"""
        assert page.evaluate(painted) > 0.3  # more than lines and axes cover
        page.click("#search")
        assert hits(page)[0].startswith("tone2@")
        assert page.locator("#hits .hit image.bands").count() == page.locator("#hits .hit").count() == 4
        assert page.locator("#hits .hit .line-hit").count() == 0
        page.click("#hits .hit")
        page.wait_for_selector(".match .figure image.bands")
        assert page.locator(".match .figure image.bands").count() == 2
