"""A recorded run, traces and a ceilings file with hostile names wherever a name can stand."""

import json
import os
import shutil
from pathlib import Path

import pytest
from report.browser import Browser
from text.hostile import BIDI, C1, CLEAR, CLIPBOARD, MARKUP, NAME, NOT_UTF8, TITLE, UNSEEN
from traces.kineto_made import kineto
from warm_python import WarmPython

TRAINING = f"""
import time, torch, feedline
from torch.utils.data import DataLoader, Dataset

def named(kind, name):
    return type(name, (kind,), {{"__module__": "__main__", "__qualname__": name}})

class Numbers(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        with feedline.stage({"sample" + CLIPBOARD + "[red]"!r}):
            time.sleep(0.001)
            return torch.full((8,), index / 48)

Numbers = named(Numbers, {"Data" + CLEAR + MARKUP + BIDI!r})
Model = named(torch.nn.Sequential, {"Model" + C1 + UNSEEN!r})
Loss = named(torch.nn.MSELoss, {"Loss" + CLEAR + "[red]"!r})
Optimizer = named(torch.optim.SGD, {"Optimizer" + TITLE + BIDI!r})

model, loss = Model(torch.nn.Linear(8, 1)), Loss()
optimizer = Optimizer(model.parameters(), lr=0.01)
for epoch in range(2):
    for x in DataLoader(Numbers(), batch_size=4):
        with feedline.stage({CLEAR + "[bold]" + BIDI!r}):
            time.sleep(0.003)
        with feedline.stage({NOT_UTF8 + CLIPBOARD!r}):
            time.sleep(0.002)
        with feedline.stage("two\\nlines"):
            time.sleep(0.002)
        optimizer.zero_grad()
        error = loss(model(x), x[:, :1])
        error.backward()
        optimizer.step()
    feedline.metric({"val " + CLEAR + "[bold]" + UNSEEN!r}, error.item())
"""
RUN = f"run{CLIPBOARD}[red]{BIDI}"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    """A run folder whose name, script, arguments, stages, classes and metrics are hostile; and its
    manifest, which somebody edited.
    """
    folder = tmp_path_factory.mktemp("hostile")
    script = folder / f"train{TITLE}[red].py"
    script.write_text(TRAINING)
    run = folder / RUN
    done = warm_python.run(
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        run,
        script,
        f"--x={NAME}",
        folder=folder,
        environment=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    path = run / "rank0" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["hooks"] += [{"name": f"hook {NAME}", "attached": False, "why": f"because {NAME}"}]
    manifest["versions"] |= {f"library {NAME}": NAME}
    manifest["machine"] |= {f"figure {NAME}": NAME, "cpu": f"cpu {NAME}"}
    manifest["environment"] |= {f"variable {NAME}": NAME}
    manifest["loaders"][0] |= {"kind": f"kind {NAME}", f"setting {NAME}": NAME}
    path.write_text(json.dumps(manifest))
    return run


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, to be written to."""
    return Path(shutil.copytree(recorded, tmp_path / recorded.name))


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """Two ranks' traces in hostile files, with hostile kernels, operators, threads, processes,
    devices and keys.
    """
    return [trace(tmp_path, rank) for rank in range(2)]


def trace(folder: Path, rank: int) -> Path:
    path = folder / f"rank{rank}{CLIPBOARD}[red]{NOT_UTF8}.json"
    made = json.loads(Path(kineto(folder / "made.json", rank, late_us=2000 * rank)).read_text())
    (folder / "made.json").unlink()
    for event in made["traceEvents"]:
        if event["cat"] in ("kernel", "cpu_op", "cuda_runtime"):
            event["name"] += NAME + "\udcff"
    for what, pid in (("thread_name", 10), ("process_name", 10), ("process_labels", rank)):
        made["traceEvents"].append(
            {
                "ph": "M",
                "name": what,
                "pid": pid,
                "tid": 10,
                "ts": 0,
                "args": {"name": NAME, "labels": NAME},
            }
        )
    made["deviceProperties"][0]["name"] = f"GPU {NAME}"
    made["distributedInfo"]["backend"] = f"nccl {NAME}"
    path.write_text(json.dumps(made | {NAME: NAME}))
    return path


@pytest.fixture
def shown(browser: Browser):
    """Open a page in Chromium; returns (its text and attributes as the DOM has them, what the
    console says).
    """

    def show(page: Path) -> tuple[str, list[str]]:
        browser.driver.get_log("browser")
        browser.driver.get(page.as_uri())
        return browser.js(IN_THE_DOM), browser.complaints()

    return show


IN_THE_DOM = """
for (const it of document.querySelectorAll("details")) it.open = true;
const said = [document.documentElement.textContent, document.title];
for (const it of document.querySelectorAll("*")) for (const one of it.attributes) said.push(one.name + "=" + one.value);
for (const it of document.querySelectorAll("svg[tabindex]")) {
  it.focus();
  for (let at = 0; at < 40; at++) {
    it.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
    said.push(document.getElementById("tip").textContent);
  }
}
const data = document.getElementById("data");
const walk = (it) => {
  if (typeof it === "string") said.push(it);
  else if (it && typeof it === "object") Object.entries(it).flat().forEach(walk);
};
if (data) walk(JSON.parse(data.textContent));
return said.join("\\n");
"""
