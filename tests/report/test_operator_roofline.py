"""Operators by FLOP/s and FLOP/byte."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.browser import Browser
from report.made_up import operator, operators
from selenium.webdriver.common.keys import Keys

from feedline.analysis.explain.model import OperatorTime
from feedline.analysis.report.figures.axis import WIDTHS, Box, clear_from
from feedline.analysis.report.figures.roofline_chart import operator_roofline
from feedline.analysis.report.html_report import render

LABELS_ON_CIRCLES = """
const [circles, labels] = ['circle', 'text'].map((name) => [...document.querySelectorAll(`#operators .point ${name}`)]);
return labels.filter((it) => it.getBoundingClientRect().width > 0).map((label) => {
  const a = label.getBoundingClientRect();
  const covered = circles.filter((it) => {
    const b = it.getBoundingClientRect();
    return Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;
  });
  return [label.textContent, covered.length];
});
"""


def drawn(*given: OperatorTime) -> ElementTree.Element:
    figure = operator_roofline(given)
    assert figure is not None
    return ElementTree.fromstring(figure)


def circles(figure: ElementTree.Element) -> dict[str, ElementTree.Element]:
    marks = [(mark.get("data-tip", ""), mark.find("circle")) for mark in figure.iter("g")]
    return {tip.split(": ")[0]: circle for tip, circle in marks if circle is not None}


def test_nothing_is_drawn_without_an_operator_of_known_cost() -> None:
    assert (
        operator_roofline([operator("aten::conv", 6e12, None), operator("aten::copy_", None, 3.0)])
        is None
    )


def test_only_operators_of_known_cost_have_a_mark() -> None:
    assert list(
        circles(drawn(operator("aten::conv", 6e12, None), operator("aten::mm", 6e12, 70.0)))
    ) == ["aten::mm"]


def test_a_mark_sits_at_the_ticks_of_its_figures() -> None:
    figure = drawn(operator("aten::mm", 1e12, 10.0), operator("aten::bmm", 5e12, 50.0))
    ticks = {text.text: text for text in figure.iter("text") if "tick" in text.get("class", "")}
    at = circles(figure)["aten::mm"]

    assert at.get("cx") == ticks["10"].get("x")
    assert float(at.get("cy", "")) == pytest.approx(
        float(ticks["1.00 T"].get("y", "")) - 4, abs=0.02
    )


def test_more_flop_a_second_is_higher_and_more_flop_a_byte_further_right() -> None:
    found = circles(drawn(operator("aten::mm", 1e12, 10.0), operator("aten::bmm", 5e12, 50.0)))

    assert float(found["aten::bmm"].get("cy", "")) < float(found["aten::mm"].get("cy", ""))
    assert float(found["aten::bmm"].get("cx", "").rstrip("%")) > float(
        found["aten::mm"].get("cx", "").rstrip("%")
    )


def test_the_area_of_a_mark_is_its_time_on_the_device() -> None:
    found = circles(
        drawn(operator("aten::mm", 1e12, 10.0, 0.04), operator("aten::bmm", 5e12, 50.0, 0.01))
    )

    assert float(found["aten::mm"].get("r", "")) == pytest.approx(
        2 * float(found["aten::bmm"].get("r", ""))
    )


def test_the_tip_has_all_figures_of_an_operator() -> None:
    (mark,) = drawn(operator("aten::mm", 30.4e12, 71.9, 0.0421)).iter("g")

    assert (
        mark.get("data-tip")
        == "aten::mm: 30.4 TFLOP/s at 71.9 FLOP/byte; 100 calls, 42.1 ms on the device"
    )


def test_the_page_of_a_trace_has_the_figure_and_says_why_no_limit_is_in_it() -> None:
    page = render(operators())

    assert page.index("Operators by FLOP per byte") < page.index("<summary>Operators</summary>")
    assert "No limits are drawn" in page


boxes = st.builds(
    lambda x, left, wide, top, high: Box(x, left, left + wide, top, top + high),
    st.floats(0, 1), st.floats(-200, 20), st.floats(20, 180), st.floats(0, 200), st.floats(8, 30),
)  # fmt: skip


@given(boxes, st.lists(st.tuples(st.sampled_from(WIDTHS), boxes), max_size=4), st.floats(0, 1))
def test_a_label_touches_nothing_at_any_width_from_which_it_is_shown(
    label: Box, taken: list[tuple[int, Box]], share: float
) -> None:
    since = clear_from(label, taken, 240)
    if since is not None:
        width = since + share * (1000 - since)
        assert label.inside(width, 240)
        assert all(label.apart(other, width) for shown, other in taken if shown <= width)


@pytest.mark.parametrize("width", [400, 520, 700, 1280])
def test_names_cover_no_mark_and_one_that_stands_alone_is_named(
    browser: Browser, width: int
) -> None:
    browser.open("operators", width=width)
    labels = dict(browser.js(LABELS_ON_CIRCLES))

    assert "aten::mm" in labels
    assert set(labels.values()) == {0}


def test_longer_operators_without_room_for_a_name_do_not_use_up_the_names(browser: Browser) -> None:
    browser.open("operators")

    assert "aten::corner_of_the_pla…" in dict(browser.js(LABELS_ON_CIRCLES))


def test_the_arrow_keys_read_out_the_operators_from_the_longest(browser: Browser) -> None:
    browser.open("operators", width=400)
    figure = browser.driver.find_element("css selector", "#operators svg.marks")
    browser.js("arguments[0].focus({focusVisible: true})", figure)
    first = browser.js("return document.getElementById('tip').textContent")
    figure.send_keys(Keys.ARROW_RIGHT)

    assert first.startswith("aten::mm: 30.0 TFLOP/s")
    assert browser.js("return document.getElementById('tip').textContent").startswith(
        "aten::one_of_the_crowd_0: "
    )
