"""The HTML report as Chromium shows it."""

import shutil
from pathlib import Path

import pytest
from golden.record import RUNS
from report.browser import Browser
from report.made_up import VARIANTS
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

import feedline

PAPER = 688  # px of an A4 page between its margins of 14 mm
WIDTHS = (400, 520, 700, 1280)

OVERLAPPING = """
const found = [];
for (const figure of document.querySelectorAll('figure')) {
  const all = [...figure.querySelectorAll('text')].map((it) => [it.textContent, it.getBoundingClientRect()]);
  const labels = all.filter(([, box]) => box.width > 0);
  labels.forEach(([one, a], i) => labels.slice(i + 1).forEach(([other, b]) => {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left), height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (width > 0.5 && height > 0.5) found.push(`${one} | ${other}`);
  }));
  for (const [one, box] of labels) if (box.left < 0 || box.right > innerWidth) found.push(`${one} is cut`);
}
return found;
"""
WIDER_THAN_PAGE = """
const inside = (it) => it.closest('.scroll') && getComputedStyle(it.closest('.scroll')).overflowX === 'auto';
return [...document.body.querySelectorAll('*')].filter((it) => it.getBoundingClientRect().right > innerWidth + 0.5)
  .filter((it) => !inside(it) && !it.closest('.definitions'))
  .map((it) => it.tagName + '.' + it.className + ' ' + it.textContent.slice(0, 40));
"""
TEXT_OUT_OF_SEGMENT = """
const segments = [...document.querySelectorAll('#step rect.segment')].map((it) => it.getBoundingClientRect());
return [...document.querySelectorAll('#step text.in')].filter((it) => it.getBoundingClientRect().width > 0).filter((it) => {
  const box = it.getBoundingClientRect();
  return !segments.some((segment) => segment.left <= box.left && box.right <= segment.right);
}).map((it) => it.textContent);
"""


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_asked_for_but_the_file_and_the_console_is_silent(
    browser: Browser, variant: str
) -> None:
    browser.open(variant)

    assert [url for url in browser.requests() if not url.startswith("data:,")] == [
        browser.driver.current_url
    ]
    assert browser.js("return performance.getEntriesByType('resource').length") == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_labels_neither_overlap_nor_leave_the_page_at_any_width(
    browser: Browser, variant: str
) -> None:
    browser.open(variant)
    wrong = {}
    for width in WIDTHS:
        browser.resize(width)
        wrong[width] = browser.js(OVERLAPPING)

    assert not any(wrong.values()), wrong


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_page_never_scrolls_sideways(browser: Browser, variant: str) -> None:
    browser.open(variant)
    wrong = {}
    for width in WIDTHS:
        browser.resize(width)
        wrong[width] = browser.js(WIDER_THAN_PAGE)
        assert browser.js("return document.documentElement.scrollWidth") <= width, wrong

    assert not any(wrong.values()), wrong


@pytest.mark.parametrize("run", ["h100-transformer", "ranks"])
def test_the_page_of_a_recorded_run_never_scrolls_sideways(
    browser: Browser, run: str, tmp_path: Path
) -> None:
    shutil.copytree(RUNS / run, tmp_path / run)
    feedline.load(tmp_path / run).to_html(tmp_path / "report.html")
    browser.show(tmp_path / "report.html")
    browser.js("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
    for width in WIDTHS:
        browser.resize(width)
        assert browser.js("return document.documentElement.scrollWidth") <= width
        assert browser.js(WIDER_THAN_PAGE) == []


def test_labels_in_the_step_bar_stay_inside_their_segments(browser: Browser) -> None:
    browser.open("full")
    for width in WIDTHS:
        browser.resize(width)
        assert browser.js(TEXT_OUT_OF_SEGMENT) == []
    labels = browser.js(
        "return [...document.querySelectorAll('#step text.in')].map((it) => "
        "it.getBoundingClientRect().width)"
    )
    assert sum(width > 0 for width in labels) >= 6


def test_a_script_in_a_name_does_not_run_and_shows_as_text(browser: Browser) -> None:
    browser.open("nasty names")

    assert browser.js("return document.scripts.length") == 2
    assert browser.js("return document.querySelector('h1').textContent").startswith(
        '<script>alert("x")</script>'
    )


def test_the_first_screen_holds_verdict_throughput_step_and_top_finding_with_its_fix(
    browser: Browser,
) -> None:
    browser.open("full")

    parts = ["h1", ".figures", "#step", ".finding", ".fix", ".evidence"]
    bottoms = [
        browser.js(
            "return document.querySelector(arguments[0]).getBoundingClientRect().bottom", part
        )
        for part in parts
    ]

    assert max(bottoms) <= 720


def test_the_arrow_keys_read_out_every_figure_and_escape_closes_the_tip(browser: Browser) -> None:
    browser.open("full")
    reached: list[str] = []
    while len(reached) < 4:
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        assert not browser.js("return document.activeElement.matches('#recording summary')"), (
            "figures were passed over"
        )
        if not browser.js("return document.activeElement.matches('svg')"):
            continue
        first = browser.js("return document.getElementById('tip').textContent")
        assert browser.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
        second = browser.js("return document.getElementById('tip').textContent")
        assert first and second and first != second
        ActionChains(browser.driver).send_keys(Keys.ESCAPE).perform()
        assert browser.js("return document.getElementById('tip').hidden")
        reached.append(first)

    assert reached[0] == "1 epoch_start: 2.3 ms, 1.3 % of the step"
    assert reached[1].startswith("steps 0 to 1 of 1,200")
    assert reached[2].startswith("read: 1.77 ms = 0.31 CPU + 0.02 waiting for CPU + 1.44 blocked")


ROOFS = """
return [...document.querySelectorAll('#roofline g.roof')].map((it) => {
  const line = it.querySelector('.line').getBoundingClientRect();
  const labels = [...it.querySelectorAll('text')].filter((text) => text.getBoundingClientRect().width > 0);
  return [line.right, labels.map((text) => text.textContent), labels.map((text) => text.getBoundingClientRect().left)];
});
"""


@pytest.mark.parametrize(("width", "wide"), [(1280, True), (400, False)])
def test_every_roof_has_one_label_right_of_its_end_a_number_alone_where_there_is_no_room(
    browser: Browser, width: int, wide: bool
) -> None:
    browser.open("crowded", width=width)
    roofs = browser.js(ROOFS)

    assert len(roofs) == 33
    assert all(len(labels) == 1 and labels[0].isdecimal() != wide for _, labels, _ in roofs)
    assert all(left[0] >= end for end, _, left in roofs)


def test_the_arrow_keys_read_out_the_roofs_from_the_lowest_to_the_run(browser: Browser) -> None:
    browser.open("full")
    figure = browser.driver.find_element("css selector", "#roofline svg.marks")
    browser.js("arguments[0].focus({focusVisible: true})", figure)

    def tip(key: str) -> str:
        figure.send_keys(key)
        return browser.js("return document.getElementById('tip').textContent")

    assert tip(Keys.HOME).startswith(
        "1 pillow v1: 148 samples/s. loader/pillow v1; feedline compare"
    )
    assert tip(Keys.ARROW_RIGHT).startswith("2 pillow v2 uint8")
    assert browser.js("return document.querySelectorAll('.roof.at').length") == 1
    assert tip(Keys.END) == "this run: 176 samples/s (174 to 178) at 5.46 GFLOP per sample"


def test_the_diagonals_fall_and_all_other_roofs_are_level(browser: Browser) -> None:
    browser.open("full")
    script = (
        "return [...document.querySelectorAll('#roofline .roof .line')].filter((it) => "
        "it.y1.baseVal.value < it.y2.baseVal.value)"
    )
    falling = browser.js(f"{script}.map((it) => it.parentNode.dataset.tip.split(':')[0])")

    assert falling == ["10 step", "13 device"]


def test_the_batch_sweep_is_read_out_and_names_its_knee(browser: Browser) -> None:
    browser.open("full")
    figure = browser.driver.find_element("css selector", "#sweep svg.marks")
    browser.js("arguments[0].focus({focusVisible: true})", figure)
    figure.send_keys(Keys.END, Keys.ARROW_LEFT)

    tip = browser.js("return document.getElementById('tip').textContent")
    assert tip == "batch of 512: 2,394 samples/s (2,322 to 2,442), the knee"
    assert "knee: 512" in figure.text


def test_the_pointer_reads_out_a_column_of_the_series(browser: Browser) -> None:
    browser.open("full")
    series = browser.driver.find_element("css selector", "svg.columns")

    ActionChains(browser.driver).scroll_to_element(series).move_to_element(series).perform()

    tip = browser.js("return document.getElementById('tip').textContent")
    assert tip.startswith(("steps 598 to 599 of 1,200", "steps 600 to 601 of 1,200"))
    assert (
        browser.js("return document.querySelector('.cursor').getAttribute('visibility')")
        == "visible"
    )


def test_details_open_by_keyboard(browser: Browser) -> None:
    browser.open("full")
    browser.driver.find_element("css selector", "summary").send_keys(Keys.ENTER)

    assert browser.js("return document.querySelector('details').open")


@pytest.mark.parametrize(("scheme", "darker"), [("light", "color"), ("dark", "background")])
def test_light_and_dark_follow_the_system_with_contrast_to_read(
    browser: Browser, scheme: str, darker: str
) -> None:
    browser.open("full", scheme=scheme)

    for selector in (
        "body",
        ".quiet",
        ".tick",
        "a",
        ".finding.high .severity",
        ".finding.low .severity",
        ".finding.info .severity",
    ):
        shown = browser.js(
            "const it = document.querySelector(arguments[0]); const style = getComputedStyle(it);"
            "return [it instanceof SVGElement ? style.fill : style.color, "
            "getComputedStyle(document.body).backgroundColor]",
            selector,
        )
        text, background = (luminance(color) for color in shown)
        assert (text < background) == (darker == "color")
        assert (max(text, background) + 0.05) / (min(text, background) + 0.05) >= 4.5, selector


def test_print_is_dark_on_white_with_details_open_and_nothing_cut(browser: Browser) -> None:
    browser.open("full", width=PAPER, scheme="dark", media="print")

    assert (
        browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    assert browser.js("return getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.js(
        "return [...document.querySelectorAll('details .settings, details .hooks')].every((it) => "
        "it.offsetHeight > 0)"
    )
    assert browser.js(WIDER_THAN_PAGE) == []
    assert browser.js(OVERLAPPING) == []
    assert browser.js(
        "return [...document.querySelectorAll('figure, table, tr')].every((it) => "
        "getComputedStyle(it).breakInside === 'avoid')"
    )


def test_printing_opens_the_details(browser: Browser) -> None:
    browser.open("full")
    browser.command("Page.printToPDF")

    assert browser.js("return [...document.querySelectorAll('details')].every((it) => it.open)")


def luminance(color: str) -> float:
    from feedline.analysis.report import palette

    red, green, blue = (int(part) for part in color[color.index("(") + 1 : -1].split(",")[:3])
    return palette._luminance(f"#{red:02x}{green:02x}{blue:02x}")
