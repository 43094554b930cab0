"""The HTML pages in Chromium: what is hostile in them is seen, and nothing else of it is there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from text.hostile import BIDI, CLEAR, CLIPBOARD, NAME, unsafe
from warm_python import WarmPython

from feedline.analysis.report.figures.axis import tag
from feedline.analysis.report.html_report import _embedded
from feedline.profiler.printable import printable

ESCAPED = r"\x1b]52;c;ZXZpbA==\x07"


@pytest.fixture
def make(warm_python: WarmPython) -> Callable[..., None]:
    """Run a command in a folder."""

    def command(*arguments: object, folder: Path) -> None:
        done = warm_python.run("-m", "feedline", *arguments, folder=folder)
        assert done.returncode == 0, done.stderr

    return command


def test_the_report_of_a_hostile_run(run: Path, shown, make) -> None:
    make("report", run, "-q", "-f", "-o", run / "report.html", folder=run.parent)
    page = run / "report.html"
    said, complaints = shown(page)

    assert not unsafe(page.read_text())
    assert not unsafe(said), {ascii(c) for c in unsafe(said)}
    assert complaints == []
    for text in (
        f"hook {NAME}",
        f"because {NAME}",
        f"setting {NAME}",
        f"kind {NAME}",
        CLEAR + "[bold]" + BIDI,
    ):
        assert printable(text) in said
    assert printable(run.name) in said  # in the title, too


def test_the_report_of_hostile_traces(traces: list[Path], shown, make) -> None:
    make("ingest", "--processes", "1", *traces, "-q", "-o", "out", folder=traces[0].parent)
    make("report", "out", "-q", "-o", "report.html", folder=traces[0].parent)
    page = traces[0].parent / "report.html"
    said, complaints = shown(page)

    assert not unsafe(page.read_text())
    assert not unsafe(said)
    assert complaints == []
    assert f"gemm_kerneln{ESCAPED}" in said


def test_json_and_trace_keep_the_true_names(run: Path, make) -> None:
    make("report", run, "-q", folder=run.parent)
    report = json.loads((run / "report.json").read_text())
    names = [event["name"] for event in json.loads(gunzipped(run / "trace.json.gz"))["traceEvents"]]

    assert CLEAR + "[bold]" + BIDI in report["step"]["stages"]
    assert f"because {NAME}" in [hook["why"] for hook in report["hooks"]]
    assert CLEAR + "[bold]" + BIDI in names
    assert any(
        name.startswith("\\udcff" + CLIPBOARD) for name in names
    )  # bytes that are not UTF-8 cannot be kept: as text


def gunzipped(path: Path) -> bytes:
    import gzip

    return gzip.decompress(path.read_bytes())


def test_the_page_of_a_study_of_scaling(run: Path, shown, make) -> None:
    make("scale", "--throughput", "1=10,2=19,4=35", "-o", run / "scaling", folder=run.parent)
    said, complaints = shown(run / "scaling" / "scale.html")

    assert not unsafe(said) and complaints == []


@pytest.mark.parametrize("text", [NAME, "\u2028</script><!--", "javascript:alert(1)\udcff"])
def test_figures_and_embedded_data_pass_nothing_on(text: str) -> None:
    drawn = tag("g", tag("text", text), data_tip=text, class_=text)
    data = _embedded({text: [text]})

    assert not unsafe(drawn) and not unsafe(json.dumps(json.loads(data), ensure_ascii=False))
    assert "</script" not in data and "<!--" not in data
    assert drawn.count(printable(text).split("<")[0].split("&")[0]) == 3


def test_a_template_passes_nothing_on() -> None:
    from feedline.analysis.report import page

    made = (
        page.environment()
        .from_string("<a title='{{ it }}'>{{ it }}{{ path }}</a>")
        .render(it=NAME + "<b>", path=Path("x" + CLEAR))
    )

    assert not unsafe(made)
    assert made.count(printable(NAME)) == 2 and r"x\x1b[2J" in made and "<b>" not in made
