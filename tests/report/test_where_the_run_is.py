"""Commands that a report tells a person to type, of a run that is neither below the working
directory nor at home.
"""

import html
import os
import re
import shlex

import pytest

TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.ones(24, 4)), batch_size=4):
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def far(tmp_path_factory, warm_python):
    """A folder with a run that was recorded from elsewhere, from where, and what was said."""
    folder = tmp_path_factory.mktemp("machine")
    for name in ("home", "work", "far"):
        (folder / name).mkdir()
    (folder / "work" / "train.py").write_text(TRAIN)
    words = [
        "-m",
        "feedline",
        "run",
        "-o",
        folder / "far" / "my run",
        "train.py",
        "--data",
        "/secret/place/imagenet",
        "--name",
        "a b",
    ]
    done = warm_python.run(
        *words, folder=folder / "work", environment={**os.environ, "HOME": str(folder / "home")}
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


def test_the_pages_command_works_where_it_says_and_names_no_folder(far, warm_python):
    folder, _ = far
    page = (folder / "far" / "my run" / "report.html").read_text()
    command, where = re.findall(r"the same as JSON: <code>(.*?)</code>(.*?)</td>", page)[0]

    assert where == ", from the folder that contains it"
    done = warm_python.run("-m", *shlex.split(html.unescape(command)), folder=folder / "far")
    assert done.returncode == 0 and (folder / "far" / "report.json").exists(), done.stderr
    assert str(folder) not in page


def test_the_pages_command_line_has_masked_values_as_they_are(far):
    folder, _ = far
    page = html.unescape((folder / "far" / "my run" / "report.html").read_text())

    assert "my run</b> · train.py --data ***/imagenet --name 'a b'</p>" in page


def test_the_terminals_command_works_where_the_run_was_recorded_and_when_nothing_may_be_written(
    far, warm_python
):
    folder, said = far
    offered = [line.split(None, 1)[1] for line in said.splitlines() if line.startswith("More ")]
    done = warm_python.run("-m", *shlex.split(offered[0]), folder=folder / "work")
    assert done.returncode == 0, done.stderr

    offered = [
        line.split(None, 1)[1] for line in done.stdout.splitlines() if line.startswith("Report ")
    ]
    assert offered[0].startswith("../far/my run/report.html")
