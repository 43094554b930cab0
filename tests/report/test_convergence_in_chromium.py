"""The section on convergence as Chromium shows it."""

import pytest
from report.browser import Browser
from report.test_html_in_chromium import OVERLAPPING, PAPER, WIDER_THAN_PAGE
from selenium.webdriver.common.keys import Keys

SHOWN = (
    "return [...document.querySelectorAll('#curves .plot')].filter((it) => it.offsetHeight > "
    "0).map((it) => it.className)"
)
TIP = "return document.getElementById('tip').textContent"


def test_the_axis_across_is_chosen_with_the_arrow_keys(browser: Browser) -> None:
    browser.open("training")
    assert browser.js(SHOWN) == ["plot named by-samples"]

    browser.driver.find_element("css selector", "[value=samples]").send_keys(Keys.ARROW_RIGHT)
    assert browser.js(SHOWN) == ["plot named by-updates"]

    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert browser.js(SHOWN) == ["plot named by-time"]


@pytest.mark.parametrize("width", [400, 1280])
def test_every_axis_is_as_tidy_as_the_first(browser: Browser, width: int) -> None:
    browser.open("training", width=width)
    for axis in ("updates", "time"):
        browser.js("document.querySelector(`[value=${arguments[0]}]`).checked = true", axis)

        assert browser.js(OVERLAPPING) == []
        assert browser.js(WIDER_THAN_PAGE) == []


def test_print_shows_the_first_axis_without_its_switch(browser: Browser) -> None:
    browser.open("training", width=PAPER, media="print")

    assert browser.js(SHOWN) == ["plot named by-samples"]
    assert browser.js("return document.querySelector('.across').offsetHeight") == 0
    assert browser.js(WIDER_THAN_PAGE) == []
    assert browser.js(OVERLAPPING) == []


@pytest.mark.parametrize(
    ("figure", "last"),
    [
        ("#curves .by-samples", "5,017,600 samples, 9,799 updates"),
        ("#noise-scale", "noise scale at least 2,900"),
        ("#efficiency", "a batch of 4,096: 9.53 times"),
    ],
)
def test_the_arrow_keys_read_out_each_figure(browser: Browser, figure: str, last: str) -> None:
    browser.open("training")
    drawn = browser.driver.find_element("css selector", f"{figure} svg.marks")
    browser.js("arguments[0].focus({focusVisible: true})", drawn)

    drawn.send_keys(Keys.HOME)
    first = browser.js(TIP)
    drawn.send_keys(Keys.END)

    assert browser.js(TIP).startswith(last) and first != browser.js(TIP)
