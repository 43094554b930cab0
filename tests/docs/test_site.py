"""The site as it is built and opened: offline, at two widths, light and dark."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import ROOT
from report.browser import Browser
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.long

FETCHED = re.compile(
    r"""<(?:script|link|img|source|iframe)[^>]+(?:src|href)=["'](?:https?:)?//[^"']+"""
)
BACKGROUND = "return getComputedStyle(document.body).backgroundColor"
OPENED = [
    "index",
    "jobs/slow-input",
    "jobs/which-loader",
    "gallery",
    "rules/index",
    "rules/decode_bound",
    "report",
    "commands",
    "python-api",
    "architecture",
    "measured/step-cost",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `scripts/docs` builds it: a warning is an error, such as a link or a name
    that leads nowhere.
    """
    out = tmp_path_factory.mktemp("site")
    options = [
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "--fresh-env",
        "-d",
        str(out / "trees"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "docs", str(out / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_page_is_built_and_asks_the_network_for_nothing(site):
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path != ROOT / "docs" / "README.md"]
    built = {path: (site / path.relative_to(ROOT / "docs")).with_suffix(".html") for path in pages}

    assert [str(path) for path, html in built.items() if not html.exists()] == []
    fetched = {html.name: FETCHED.findall(html.read_text()) for html in site.rglob("*.html")}
    assert {name: found for name, found in fetched.items() if found} == {}
    assert [
        path.name for path in (site / "_static").rglob("*.css") if "url(http" in path.read_text()
    ] == []


def test_the_gallery_has_six_reports_and_the_site_holds_them(site):
    linked = re.findall(r'href="(recorded/[\w-]+\.html)"', (site / "gallery.html").read_text())

    assert len(set(linked)) == 6
    assert [name for name in linked if "<svg" not in (site / name).read_text()] == []


def test_the_reference_has_every_public_name(site):
    import feedline

    text = "".join(
        (site / f"{name}.html").read_text()
        for name in ("python-api", "api")
        if (site / f"{name}.html").exists()
    )

    assert [name for name in feedline.__all__ if name != "__version__" and name not in text] == []
    assert "the run folder to create" in text  # of the docstring of feedline.record


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_pages_fit_the_window_and_have_its_colors(
    site: Path, browser: Browser, width: int, scheme: str
) -> None:
    browser.command(
        "Emulation.setEmulatedMedia",
        media="",
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    browser.resize(width)
    for name in OPENED:
        browser.driver.get_log("browser")
        browser.driver.get_log("performance")
        browser.driver.get((site / f"{name}.html").as_uri())
        WebDriverWait(browser.driver, 20).until(
            lambda _: browser.js(BACKGROUND) != "rgba(0, 0, 0, 0)", f"{name} has no styles"
        )
        light = sum(map(int, re.findall(r"\d+", browser.js(BACKGROUND))[:3])) > 384

        assert browser.js("return document.documentElement.scrollWidth") <= width, name
        assert light == (scheme == "light"), name
        assert all(
            url.startswith("file:") or url.startswith("data:") for url in browser.requests()
        ), name
        assert browser.complaints() == [], name
        broken = browser.js(
            "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        )
        assert broken == [], name
