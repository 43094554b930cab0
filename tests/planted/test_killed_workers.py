"""Loader workers that are killed: by the kernel, because the memory of a real control group is full, and
by somebody else.
"""

import json
import re
import shutil
import textwrap
from pathlib import Path

import pytest
from faults import bench
from faults.cases import FAULTS
from faults.conditions import Unavailable

from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.samplers.cgroup import MemoryEvents
from feedline.profiler.store.trainings import open_run

BY_NAME = {fault.name: fault for fault in FAULTS}
KILLED = BY_NAME["worker_killed"]
PROGRAM = """
    import os, signal, torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 400

        def __getitem__(self, index):
            if index == {at}:
                os.kill(os.getpid(), signal.SIGKILL)
            return torch.full((8,), index / 400)

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Rows(), batch_size=4, num_workers=2):
        model(x).square().mean().backward()
        optimizer.step()
"""


def test_a_worker_that_the_kernel_kills_for_memory_is_named_with_its_size(tmp_path):
    try:
        found = bench.record(KILLED, KILLED.fault, tmp_path, tmp_path / "run")
    except Unavailable as error:
        pytest.skip(str(error))

    finding = found.findings[0]
    assert finding.rule_id == "killed_worker" and re.search(KILLED.names, finding.message)
    said = json.loads((tmp_path / "run" / "report.json").read_text())["findings"][0]
    values = {one["id"]: one["value"] for one in said["evidence"]}
    assert values["limit_bytes"] == 1200 << 20 and values["limit_reached"] == 1
    # two workers in 1,200 MiB; what one had gained at its last reading it had gained in its time
    assert 200e6 < values["worker_bytes"] < 1300e6
    assert 0.5 < values["growth_per_s"] * values["growing_s"] / values["grown_bytes"] < 2
    assert "too_few_workers" not in {other.rule_id for other in found.findings}
    # its source is looked for around the run
    shutil.copy2(Path(bench.__file__).parent / "programs" / "kept.py", tmp_path)
    line = recorded_report(open_run(tmp_path / "run")).findings[0]
    assert line.place == "***/kept.py:34" and line.fix.startswith("Empty or bound what this line")


@pytest.mark.parametrize(
    ("name", "fixes"),
    [
        ("table_in_each_worker", ("Look in the dataset", "Load once", "Look for samples")),
        ("huge_sample", ("Look for samples",)),
    ],
)
def test_one_that_took_its_memory_for_one_batch_is_told_what_that_may_be(tmp_path, name, fixes):
    fault = BY_NAME[name]
    try:
        found = bench.record(fault, fault.fault, tmp_path, tmp_path / "run")
    except Unavailable as error:
        pytest.skip(str(error))

    finding = found.findings[0]
    assert finding.rule_id == "killed_worker" and re.search(fault.names, finding.message)
    said = json.loads((tmp_path / "run" / "report.json").read_text())["findings"][0]
    values = {one["id"]: one["value"] for one in said["evidence"]}
    assert values["grown_bytes"] / 2 < values["batch_bytes"] <= values["grown_bytes"]
    assert values["batch_bytes"] < values["worker_bytes"] < 1300e6
    assert "growth_per_s" not in values
    # what a worker takes for its first batch it may also keep
    told = recorded_report(open_run(tmp_path / "run")).findings[0]
    beginnings = (*fixes, "Use fewer workers")
    assert len(told.fix_more) == len(fixes)
    assert all(map(str.startswith, (told.fix, *told.fix_more), beginnings))


@pytest.mark.parametrize("at", [200, 0], ids=["later", "before the first step"])
def test_one_that_another_process_kills_was_not_killed_for_memory(warm_python, tmp_path, at):
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM.format(at=at)))
    out = tmp_path / "report.json"
    places = ("-o", tmp_path / "run", "--json", out)

    ended = warm_python.run("-m", "feedline", "run", "-q", *places, "train.py", folder=tmp_path)

    assert ended.returncode == 1
    report = json.loads(out.read_text())
    finding = report["findings"][0]
    assert finding["cause"] == "killed_worker"
    assert "which the kernel did not send for memory" in finding["says"]
    assert report["verdict"]["finding"] == "killed_worker"


FAILS_FIRST = """
    import os, signal, time, torch
    from torch.utils.data import DataLoader, TensorDataset

    batches = iter(DataLoader(TensorDataset(torch.zeros(400, 8)), batch_size=4, num_workers=2))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        model(next(batches)[0]).square().mean().backward()
        optimizer.step()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # it comes later
    os.kill(batches._workers[1].pid, signal.SIGKILL)
    batches._workers[1].join()
    raise ConnectionResetError
"""


def test_it_is_also_named_where_the_main_process_fails_before_it_hears_of_it(warm_python, tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(FAILS_FIRST))
    out = tmp_path / "report.json"
    places = ("-o", tmp_path / "run", "--json", out)

    ended = warm_python.run("-m", "feedline", "run", "-q", *places, "train.py", folder=tmp_path)

    assert ended.returncode == 1
    report = json.loads(out.read_text())
    assert report["run"]["ended_by"] == (
        "ConnectionResetError, because a DataLoader worker was killed (Killed)"
    )
    assert report["findings"][0]["says"].startswith("worker 1 was killed by signal 9")


def test_one_that_the_program_itself_kills_is_no_cause_of_its_end(warm_python, tmp_path):
    itself = FAILS_FIRST.replace(
        "os.kill(batches._workers[1].pid, signal.SIGKILL)", "batches._workers[1].kill()"
    )
    (tmp_path / "train.py").write_text(textwrap.dedent(itself))
    out = tmp_path / "report.json"
    places = ("-o", tmp_path / "run", "--json", out)

    ended = warm_python.run("-m", "feedline", "run", "-q", *places, "train.py", folder=tmp_path)

    assert ended.returncode == 1
    report = json.loads(out.read_text())
    assert report["run"]["ended_by"] == "ConnectionResetError"
    assert "killed_worker" not in {finding["cause"] for finding in report["findings"]}


def test_where_only_a_part_is_recorded_none_is_named_unless_the_kernel_kills(warm_python, tmp_path):
    before = MemoryEvents.now()
    if before.kills is None or before.machine_kills is None:
        pytest.skip("the kernel does not tell how many processes it has killed")
    body = textwrap.indent(textwrap.dedent(FAILS_FIRST), "    ")
    program = f"import feedline\nwith feedline.record('run'):\n{body}"
    (tmp_path / "train.py").write_text(program)

    ended = warm_python.run("train.py", folder=tmp_path)

    manifest = json.loads((tmp_path / "run" / "rank0" / "manifest.json").read_text())
    killed = MemoryEvents.now().since(before)
    assert ended.returncode == 1
    if killed["kills"] == killed["machine_kills"] == 0:  # or a test beside this one fills a memory
        assert (manifest["ended_by"], manifest["killed"]) == ("ConnectionResetError", {})
