"""The page in a real browser: it fits, its plots answer, its tables sort, and nothing that a program printed can act in it."""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import reports
from benchmarks.run_folder import write_run
from matrix.records import Observation, read, write
from tests.reports.chromium import CHROMIUM, Browser, Page, chromium
from tests.reports.conftest import Told
from tests.reports.stories import openmp
from tests.reports.test_rendering import HOSTILE, hostile_story

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)")
STORIES = ["openmp", "hang", "workers", "partial"]
Tell = Callable[[str], Told]
Open = Callable[..., Page]
CHART = "document.querySelector('figure[data-chart={name}] .chart > svg')"
MEASURE = """(() => {
  const root = document.documentElement, shown = [...document.querySelectorAll(".chart > svg")];
  const text = shown.flatMap(svg => [...svg.querySelectorAll("text")]).map(label => label.getBoundingClientRect());
  return { viewport: root.clientWidth, content: root.scrollWidth, plots: shown.length, figures: document.querySelectorAll("figure").length,
    smallest: Math.min(...text.map(box => Math.max(box.height, box.width))),
    heading: document.querySelector("h1").getBoundingClientRect().height };
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    pages: list[Page] = []

    def open_(path: Path, **look: Any) -> Page:
        pages.append(Page(browser, **look))
        return pages[-1].open(path)

    yield open_
    for page in pages:
        page.close()


def place(page: Page, name: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
    """A point inside a plot that is scrolled into view."""
    box = page.run(
        f"(() => {{ const svg = {CHART.format(name=name)}; svg.scrollIntoView({{block: 'center', behavior: 'instant'}});"
        " const box = svg.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; })()"
    )
    return box[0] + box[2] * across, box[1] + box[3] * down


@in_browser
@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", STORIES)
def test_the_page_fits_its_window_and_draws_each_plot(tell: Tell, opened: Open, name: str, width: int) -> None:
    page = opened(tell(name).folder / "report.html", width=width)
    sizes = page.run(MEASURE)
    assert sizes["viewport"] == width and sizes["content"] <= width
    assert sizes["plots"] == sizes["figures"] == len([path for path in tell(name).folder.glob("plots/*.svg") if path.stem != "matrix"])
    assert sizes["heading"] > 10 and sizes["smallest"] >= 6
    assert page.run("[...document.querySelectorAll('.still')].every(still => still.offsetHeight === 0)")


@in_browser
@pytest.mark.slow
@pytest.mark.control
def test_the_measurement_sees_an_overflow_that_is_planted(tell: Tell, opened: Open, tmp_path: Path) -> None:
    (tmp_path / "wide.html").write_text(tell("empty").html.replace("<h1>", '<h1 style="width:700px">'))
    assert opened(tmp_path / "wide.html", width=360).run(MEASURE)["content"] >= 700


@in_browser
@pytest.mark.slow
@pytest.mark.parametrize("name", [*STORIES, "healthy", "inconclusive", "empty"])
def test_from_a_file_there_is_no_complaint_and_no_request_leaves(tell: Tell, opened: Open, name: str) -> None:
    page = opened(tell(name).folder / "report.html")
    assert page.complaints() == []
    assert page.requests() == [(tell(name).folder / "report.html").resolve().as_uri()]


@in_browser
@pytest.mark.slow
def test_a_curve_shows_its_value_under_the_pointer_and_a_death_how_it_came(tell: Tell, opened: Open) -> None:
    page = opened(tell("openmp").folder / "report.html")
    page.move(*place(page, "memory", 0.3, 0.4))
    said = page.run("document.querySelector('.tip').innerText")
    assert re.search(r"^[\d.]+ s: [\d.]+ [GM]iB, .*(died: SIGABRT|survived)", said, re.MULTILINE), said
    x, y = place(page, "pattern", 0, 0)
    mark = page.run("(() => { const at = document.querySelector('figure[data-chart=pattern] .chart > svg .cross').getBoundingClientRect();"
                    " return [at.x + at.width / 2, at.y + at.height / 2]; })()")  # fmt: skip
    page.move(*mark)
    assert re.search(r"\d{4} died: SIGABRT at step \d+ after", page.run("document.querySelector('.tip').innerText"))
    page.move(x, y)


@in_browser
@pytest.mark.slow
def test_a_plot_is_read_and_zoomed_from_the_keyboard(tell: Tell, opened: Open) -> None:
    page = opened(tell("openmp").folder / "report.html")
    ticks = f"[...{CHART.format(name='memory')}.querySelectorAll('text')].map(text => text.textContent).join('|')"
    place(page, "memory")
    page.run(f"{CHART.format(name='memory')}.focus()")
    whole = page.run(ticks)
    page.press("ArrowRight")
    first = page.run("document.querySelector('figure[data-chart=memory] [aria-live]').textContent")
    page.press("ArrowRight")
    assert re.match(r"[\d.]+ s: [\d.]+ [GMK]iB", first)
    assert page.run("document.querySelector('figure[data-chart=memory] [aria-live]').textContent") != first
    page.press("+")
    assert page.run(ticks) != whole
    page.press("0")
    assert page.run(ticks) == whole


@in_browser
@pytest.mark.slow
def test_dragging_zooms_and_the_key_hides_a_curve(tell: Tell, opened: Open) -> None:
    page = opened(tell("openmp").folder / "report.html")
    curves = "document.querySelectorAll('figure[data-chart=memory] .chart > svg path.curve').length"
    labels = f"[...{CHART.format(name='memory')}.querySelectorAll('text')].map(text => text.textContent).join('|')"
    whole, before = page.run(labels), page.run(curves)
    page.drag(place(page, "memory", 0.3), place(page, "memory", 0.5))
    assert page.run(labels) != whole
    page.run("document.querySelector('figure[data-chart=memory] .key').click()")
    assert page.run(curves) < before
    assert page.run("document.querySelector('figure[data-chart=memory] .key').getAttribute('aria-pressed')") == "false"


@in_browser
@pytest.mark.slow
def test_many_attempts_are_paged_sorted_and_filtered(opened: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 240)
    reports.write(run)
    page = opened(run / "report.html")
    rows = "[...document.querySelectorAll('#attempts tbody tr')].filter(row => !row.hidden)"
    assert page.run(f"{rows}.length") == 50
    assert page.run("document.querySelector('#attempts [role=status]').textContent") == "1 to 50 of 240"
    page.run("[...document.querySelectorAll('#attempts .sort')].find(head => head.textContent === 'Last step').click()")
    steps = page.run(f"{rows}.map(row => Number(row.cells[5].dataset.v))")
    assert steps == sorted(steps) and page.run("document.querySelectorAll('#attempts [aria-sort=ascending]').length") == 1
    page.run("(() => { const choice = document.querySelector('#attempts select'); choice.value = 'bad';"
             " choice.dispatchEvent(new Event('change')); })()")  # fmt: skip
    assert set(page.run(f"{rows}.map(row => row.cells[3].textContent)")) == {"died"}
    page.run("(() => { const search = document.querySelector('#attempts input'); search.value = 'mining=thread threads=1';"
             " search.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert all("mining=thread" in text and "threads=1" in text for text in page.run(f"{rows}.map(row => row.cells[1].textContent)"))
    assert page.complaints() == []


# ------------------------------------------------------------------ what a child printed
BOMB = ["<script>window.acted = 1</script>", "<img src=x onerror='window.acted = 1'>", "</script><script>window.acted = 1</script>",
        "\x1b]8;;javascript:window.acted=1\x07click\x1b]8;;\x07 \x1b[2J\x00\x00 null", "\ufffe\u2028\u202e", "<svg onload=window.acted=1>",
        "<" * 2_000_000, "A" * 2_000_000]  # fmt: skip


@in_browser
@pytest.mark.slow
def test_nothing_that_a_child_printed_can_act_in_the_page_or_break_it(opened: Open, tmp_path: Path) -> None:
    openmp(tmp_path / "run")
    for path in (tmp_path / "run").glob("attempts/*/observation.json"):
        seen = read(Observation, path)
        progress = dataclasses.replace(seen.progress, last_line="".join(BOMB))
        write(path, dataclasses.replace(seen, output_tail=[*BOMB, *HOSTILE], crash_stack=BOMB, kernel_lines=BOMB, progress=progress))
    hostile_story(tmp_path / "texts")
    for run in (tmp_path / "run", tmp_path / "texts"):
        reports.write(run)
        assert (run / "report.html").stat().st_size < 3_000_000
        page = opened(run / "report.html")
        page.move(*place(page, "endings", 0.4, 0.1))
        assert page.complaints() == [] and len(page.requests()) == 1
        assert page.run("[window.acted === undefined, document.images.length, document.scripts.length > 1]") == [True, 0, True]
        assert page.run("document.querySelector('#reproduce pre') !== null && document.querySelector('.chart') !== null")
        assert page.run(MEASURE)["content"] <= 1280


@in_browser
@pytest.mark.slow
@pytest.mark.control
def test_the_policy_of_the_page_stops_a_script_that_is_planted_past_the_escaping(tell: Tell, opened: Open, tmp_path: Path) -> None:
    planted = tell("openmp").html.replace("</h1>", "</h1><script>window.acted = 1</script><img src='http://127.0.0.1:9/x.png'>", 1)
    (tmp_path / "planted.html").write_text(planted, encoding="utf-8")
    page = opened(tmp_path / "planted.html")
    assert page.run("window.acted === undefined && document.querySelector('.chart') !== null")
    assert len(page.complaints()) >= 2


# ------------------------------------------------------------------ other ways to read it
@in_browser
@pytest.mark.slow
def test_a_screen_reader_finds_a_name_on_every_plot_table_and_control(tell: Tell, opened: Open) -> None:
    page = opened(tell("openmp").folder / "report.html")
    page.call("Accessibility.enable")
    nodes = [node for node in page.call("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
    named = {"image", "img", "table", "button", "textbox", "searchbox", "combobox", "link", "navigation"}
    found = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if node["role"]["value"] in named]
    assert [role for role, name in found if not name.strip()] == []
    roles = [role for role, _ in found]
    assert roles.count("table") >= 6 and (roles.count("image") + roles.count("img")) >= 5 and roles.count("button") > 20


@in_browser
@pytest.mark.slow
def test_printing_opens_what_is_folded(tell: Tell, opened: Open) -> None:
    page = opened(tell("openmp").folder / "report.html")
    page.run("addEventListener('beforeprint', () => { window.open_ = document.querySelectorAll('details:not([open])').length; })")
    assert page.run("document.querySelectorAll('details:not([open])').length") > 0
    pdf = base64.b64decode(page.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF") and page.run("window.open_") == 0


@in_browser
@pytest.mark.slow
def test_a_screenshot_in_light_and_dark_shows_the_page(tell: Tell, opened: Open, tmp_path: Path) -> None:
    from matplotlib.image import imread

    brightness = []
    for scheme in ("light", "dark"):
        shot = opened(tell("openmp").folder / "report.html", height=3000, scheme=scheme).screenshot(tmp_path / f"{scheme}.png")
        pixels = imread(shot)
        assert pixels.shape[:2] == (3000, 1280)
        assert len({tuple(pixel) for pixel in pixels[::7, ::7].reshape(-1, pixels.shape[2]).round(2).tolist()}) > 20
        brightness.append(float(pixels[..., :3].mean()))
    assert brightness[0] > 0.85 and brightness[1] < 0.25


@in_browser
@pytest.mark.slow
def test_without_scripts_every_plot_is_still_there(tell: Tell, browser: Browser) -> None:
    page = Page(browser)
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.call("Page.navigate", url=(tell("openmp").folder / "report.html").resolve().as_uri())
    browser.wait(page.session, "Page.loadEventFired")
    page.call("DOM.enable")
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    stills = page.call("DOM.querySelectorAll", nodeId=root, selector="figure .still > svg")["nodeIds"]
    heights = [page.call("DOM.getBoxModel", nodeId=node)["model"]["height"] for node in stills]
    assert len(heights) >= 5 and min(heights) > 100
    page.close()


# ------------------------------------------------------------------ contrast, from the style sheet
def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_colour_of_text_has_the_contrast_that_small_text_needs(tell: Tell, mode: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", tell("empty").html, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", dark if mode == "dark" else light))
    pairs = [(text, ground) for text in ("ink", "soft", "link", "died", "survived", "warn") for ground in ("paper", "code")]
    pairs += [("ink", "changed"), ("ink", "page"), *(("paper", hue) for hue in ("died", "survived", "other", "third", "fourth", "ink"))]
    assert {
        pair: round(contrast(colours[pair[0]], colours[pair[1]]), 1) for pair in pairs if contrast(colours[pair[0]], colours[pair[1]]) < 4.5
    } == {}
