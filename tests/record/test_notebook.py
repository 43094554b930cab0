"""``feedline.record`` in a notebook that is really executed: the report below the cell, and the
cell again.
"""

import html
import re
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

TRAINING = """
import pathlib, sys, torch, feedline
sys.path.append(pathlib.Path("library"))  # Python ignores what is no text
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))

def train(fails=False):
    for x, y in DataLoader(data, batch_size=8):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    if fails:
        raise RuntimeError("planted")
"""
AGAIN = "with feedline.record('mine'):\n    train()"
FAILS = "with feedline.record('mine'):\n    train(fails=True)"
INTERRUPTED = "with feedline.record('mine'):\n    train()\n    raise KeyboardInterrupt"
RECORDS_STILL = "from feedline.profiler.record.recorder import recorder\nprint(recorder.main)"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """The outputs of each cell after the first."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "json.py").write_text(
        "raise SystemExit('a module of the notebook, taken for a library')"
    )
    cells = [TRAINING, AGAIN, FAILS, INTERRUPTED, AGAIN, RECORDS_STILL]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(
        notebook, timeout=100, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return [cell.outputs for cell in notebook.cells[1:]]


def shown(cell: list[Any]) -> dict[str, str]:
    (made,) = (output.data for output in cell if output.output_type == "display_data")
    return dict(made)


def test_the_report_is_below_the_cell_as_a_page_and_as_text(outputs: list[list[Any]]) -> None:
    made = shown(outputs[0])

    frame = re.fullmatch(
        r'<iframe title="feedline report" style="[^"<>]+" sandbox="allow-scripts" '
        r'srcdoc="([^"]+)"></iframe>',
        made["text/html"],
    )
    assert frame
    page = html.unescape(frame[1])
    assert (
        page.startswith("<!doctype html>") and "mine" in page and page.rstrip().endswith("</html>")
    )
    assert (
        made["text/plain"].startswith("mine · ")
        and "Report  mine/report.html" in made["text/plain"]
    )
    assert "\x1b" not in made["text/plain"]
    assert [output.output_type for output in outputs[0]] == ["display_data"]


@pytest.mark.parametrize(
    ("cell", "name", "error", "ended"),
    [
        (1, "mine-2", "RuntimeError", r"failed with RuntimeError at \S+ \(exit code 1\)"),
        (2, "mine-3", "KeyboardInterrupt", r"interrupted \(Ctrl-C\)"),
        (3, "mine-4", "", ""),
    ],
)
def test_the_cell_again_records_into_the_next_name_whatever_ended_the_one_before(
    outputs: list[list[Any]], cell: int, name: str, error: str, ended: str
) -> None:
    said = "".join(output.text for output in outputs[cell] if output.output_type == "stream")

    assert said == f"feedline: mine already holds a run, recording into {name}\n"
    text = shown(outputs[cell])["text/plain"]
    assert text.startswith(f"{name} · ") and re.search(ended, text)
    assert [output.ename for output in outputs[cell] if output.output_type == "error"] == [
        error
    ] * bool(error)


def test_nothing_records_after_the_last_cell(outputs: list[list[Any]]) -> None:
    assert [output.text for output in outputs[4]] == ["None\n"]


def test_a_plain_program_gets_one_line_and_imports_no_analysis(
    warm_python: Any, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        f"{TRAINING}\n{AGAIN}\nimport sys\nprint([name for name in ('pandas', 'rich', "
        f"'feedline.analysis') if name in sys.modules])\n"
    )
    done = warm_python.run("train.py", folder=tmp_path)

    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert done.stderr == "feedline: recorded into mine; to see it: feedline report mine\n"


@pytest.mark.long
def test_an_interrupt_at_any_moment_leaves_a_notebook_in_which_the_cell_runs_again(
    tmp_path: Path,
) -> None:
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel(cwd=str(tmp_path))
    client = kernel.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def printed(code: str, interrupt_s: float | None = None) -> str:
        request, texts = client.execute(code), []
        if interrupt_s is not None:
            time.sleep(interrupt_s)
            kernel.interrupt_kernel()
        while True:
            message = client.get_iopub_msg(timeout=60)
            content = message["content"]
            if (
                message["parent_header"].get("msg_id") == request
                and content.get("execution_state") == "idle"
            ):
                return "".join(texts)
            shown = content.get("text", "") or content.get("data", {}).get("text/plain", "")
            texts.append(shown or "\n".join(content.get("traceback", [])))

    try:
        printed(TRAINING)
        printed(AGAIN)
        for moment in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0):
            printed("with feedline.record('mine'):\n    while True:\n        train()", moment)
            assert "None" in printed(RECORDS_STILL), (
                f"it records still after an interrupt at {moment} s"
            )
        assert " steps of " in printed(AGAIN)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
