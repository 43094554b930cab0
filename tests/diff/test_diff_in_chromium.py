"""The page of ``feedline diff -o FILE`` as Chromium shows it."""

import shutil
from pathlib import Path

import pytest
from golden.record import RUNS
from report.browser import Browser
from report.test_html_in_chromium import WIDER_THAN_PAGE, luminance

from feedline.__main__ import main

NASTY = "<script>alert(1)<" + "a-name-without-a-space-" * 8


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison with all that a page can have: batches of two sizes, findings that went,
    settings that differ, notes.
    """
    folder = tmp_path_factory.mktemp("diff")
    for run, name in (("batch32", "a"), ("batch256", NASTY)):
        shutil.copytree(RUNS / run, folder / name)
    assert (
        main(
            ["diff", str(folder / "a"), str(folder / NASTY), "-q", "-o", str(folder / "diff.html")]
        )
        == 0
    )
    return folder / "diff.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_the_page_fits_the_window_asks_for_nothing_and_can_be_read(
    browser: Browser, page: Path, width: int, scheme: str
) -> None:
    browser.show(page, width, scheme)

    assert browser.js("return document.documentElement.scrollWidth") <= width
    assert browser.js(WIDER_THAN_PAGE) == []
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:,")] == [
        browser.driver.current_url
    ]
    assert browser.js("return document.scripts.length") == 2  # none came from the name of a run
    titles = browser.js("return [...document.querySelectorAll('h2')].map((it) => it.textContent)")
    assert titles == [
        "What changed",
        "Findings",
        "Settings, versions and hardware that differ",
        "Notes",
    ]
    for selector in ("h1", ".quiet", "h3", "td", "th[scope=row]", "li"):
        shown = browser.js(
            "return [getComputedStyle(document.querySelector(arguments[0])).color, "
            "getComputedStyle(document.body).backgroundColor]",
            selector,
        )
        text, background = map(luminance, shown)
        assert (text < background) == (scheme == "light"), selector
        assert (max(text, background) + 0.05) / (min(text, background) + 0.05) >= 4.5, selector


def test_tables_scroll_by_keyboard_inside_a_narrow_page(browser: Browser, page: Path) -> None:
    browser.show(page, width=400)

    scrolled = (
        "return [...document.querySelectorAll('.scroll')].filter((it) => it.scrollWidth > "
        "it.clientWidth)"
    )
    assert browser.js(f"{scrolled}.length") > 0
    assert browser.js(
        f"{scrolled}.every((it) => it.tabIndex === 0 && it.getAttribute('aria-label'))"
    )
