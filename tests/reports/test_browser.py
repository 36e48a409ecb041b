"""The page in a real browser: it fits a phone and a desk, shows its plots, and has enough contrast."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reports.conftest import Told

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
]  # fmt: skip
WIDTHS = (360, 1280)
MEASURE = """
<!DOCTYPE html><body style="margin:0"><iframe srcdoc="{page}" width="{width}" height="900" style="border:0"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const shown = [...page.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().width > 0);
  const text = shown.flatMap(svg => [...svg.querySelectorAll("text")]).map(label => label.getBoundingClientRect().height);
  document.title = JSON.stringify({{
    viewport: root.clientWidth, content: root.scrollWidth, height: root.scrollHeight, plots: shown.length,
    smallest: Math.min(...text), heading: page.querySelector("h1").getBoundingClientRect().height,
  }});
}});
</script>
"""


def chromium(page: Path, *options: str) -> str:
    """Standard output of one headless run.  The page is a frame of `width`, because a window cannot be as narrow as a phone."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory(prefix="mx-browser-", ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def measure(text: str, width: int, folder: Path) -> dict[str, float]:
    """Sizes in CSS pixels of the page in a window of the given width."""
    page = folder / f"measure-{width}.html"
    page.write_text(MEASURE.format(page=html.escape(text), width=width), encoding="utf-8")
    dom = chromium(page, "--window-size=1400,1000", "--virtual-time-budget=3000", "--dump-dom")
    (title,) = re.findall(r"<title>(\{.*?\})</title>", dom)
    sizes: dict[str, float] = json.loads(html.unescape(title))
    return sizes


@browser
@pytest.mark.slow
@pytest.mark.parametrize("name", ["openmp", "hang", "workers", "partial"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_has_no_horizontal_overflow_and_shows_each_plot_once(
    tell: Callable[[str], Told], tmp_path: Path, name: str, width: int
) -> None:
    told = tell(name)
    sizes = measure(told.html, width, tmp_path)
    assert sizes["viewport"] == width and sizes["content"] <= width
    assert sizes["plots"] == len(list(told.folder.glob("plots/*.svg")))
    assert sizes["heading"] > 10 and sizes["height"] > 1500
    assert sizes["smallest"] >= 8  # the box of the smallest label of a plot


@browser
@pytest.mark.slow
@pytest.mark.control
def test_the_measurement_sees_an_overflow_that_is_planted(tell: Callable[[str], Told], tmp_path: Path) -> None:
    wide = tell("empty").html.replace("<h1>", '<h1 style="width:700px">')
    assert measure(wide, 360, tmp_path)["content"] >= 700


@browser
@pytest.mark.slow
def test_a_screenshot_in_light_and_dark_shows_the_page(tell: Callable[[str], Told], tmp_path: Path) -> None:
    from matplotlib.image import imread

    brightness = []
    for mode in ("light", "dark"):
        shot = tmp_path / f"{mode}.png"
        dark = ["--blink-settings=preferredColorScheme=0"] if mode == "dark" else ["--blink-settings=preferredColorScheme=1"]
        chromium(tell("openmp").folder / "report.html", "--window-size=1280,3000", f"--screenshot={shot}", *dark)
        pixels = imread(shot)
        assert pixels.shape[:2] == (3000, 1280)
        assert len({tuple(pixel) for pixel in pixels[::7, ::7].reshape(-1, pixels.shape[2]).round(2).tolist()}) > 20
        brightness.append(float(pixels[..., :3].mean()))
    assert brightness[0] > 0.85 and brightness[1] < 0.25


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
def test_every_colour_of_text_has_the_contrast_that_small_text_needs(tell: Callable[[str], Told], mode: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", tell("empty").html, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", dark if mode == "dark" else light))
    pairs = [(text, ground) for text in ("ink", "soft", "link", "died", "survived", "warn") for ground in ("paper", "code")]
    pairs += [("ink", "changed"), ("ink", "page"), ("other", "paper")]
    assert {
        pair: round(contrast(colours[pair[0]], colours[pair[1]]), 1) for pair in pairs if contrast(colours[pair[0]], colours[pair[1]]) < 4.5
    } == {}
