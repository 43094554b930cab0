"""A machine that runs out of something, or does not let us look: the training goes on, and the
report names what is missing.
"""

import json
import sys

import pytest

FEEDLINE = [sys.executable, "-m", "feedline"]
LONG = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    if __name__ == "__main__":
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, in DataLoader(TensorDataset(torch.randn(UPDATES * 2, 4)), batch_size=2, num_workers=WORKERS):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        print("trained")
"""


def training(workshop, updates, workers):
    return workshop.write(
        "train.py", LONG.replace("UPDATES", str(updates)).replace("WORKERS", str(workers))
    )


#: Runs a command with a small disk at $1, and keeps a copy of what is on it in the end.
SMALL_DISK = """
    mount -t tmpfs -o size=512k tmpfs "$1"; place=$1; shift; export FEEDLINE_RESTS=0  # every step is written
     "$@"; code=$?; cp -r "$place/run" kept; exit $code
"""


def test_a_disk_that_becomes_full(workshop, own_mounts):
    script, place = training(workshop, 1500, 0), workshop.folder / "place"
    place.mkdir()

    done = workshop.execute(
        *own_mounts(SMALL_DISK, place),
        *FEEDLINE,
        "run",
        "-o",
        place / "run",
        "--json",
        workshop.json,
        script,
    )

    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    report = workshop.report()
    assert (report["run"]["state"], report["run"]["exit_code"]) == ("finished", 0)
    assert any(
        "the training process stopped recording" in note and "No space left on device" in note
        for note in report["notes"]
    )
    steps = report["throughput"]["steps"]
    assert 10 < steps < 1500  # stacks and records share the disk
    what = (
        f"Recording stopped after {steps:,} of 1,500 steps: the disk is full (No space left on "
        f"device)."
    )
    assert report["headline"] == what
    assert what in " ".join((done.stdout + done.stderr).split())


@pytest.mark.long
def test_a_disk_that_stays_full(workshop, own_mounts):
    script, place = training(workshop, 600, 0), workshop.folder / "place"
    place.mkdir()
    fill = (
        f"    with open({str(place / 'filler')!r}, 'ab', 0) as file:\n        while "
        f"file.write(bytes(1024)): pass\n"
    )
    script.write_text(
        script.read_text().replace(
            "        optimizer.step()\n", "        optimizer.step()\n        fill()\n"
        )
    )
    script.write_text(
        f"def fill():\n  try:\n{fill}  except OSError:\n    pass\n{script.read_text()}"
    )

    done = workshop.execute(
        *own_mounts(SMALL_DISK, place),
        *FEEDLINE,
        "run",
        "-o",
        place / "run",
        "--json",
        workshop.json,
        script,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left on device" in " ".join(done.stderr.split())
    report = workshop.report()
    assert (report["run"]["state"], report["run"]["exit_code"]) == ("finished", 0)
    assert 10 < report["throughput"]["steps"] < 600
    kept = workshop.feedline("report", "-q", workshop.folder / "kept", "-f", "-o", "again.json")
    assert kept.returncode == 0, kept.stderr
    again = json.loads((workshop.folder / "again.json").read_text())
    assert (again["throughput"]["steps"], again["run"]["state"]) == (
        report["throughput"]["steps"],
        "finished",
    )


@pytest.mark.long
def test_a_proc_that_cannot_be_read(workshop, own_mounts):
    script = training(workshop, 20, 2)
    blind = own_mounts('mount -t tmpfs tmpfs /proc; exec "$@"')

    done = workshop.execute(
        *blind, *FEEDLINE, "run", "-o", workshop.run, "--json", workshop.json, script
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"
    report = workshop.report()
    assert report["throughput"]["steps"] == 20
    costs = report["workers"]["per_sample"]["total"]
    assert costs["wall_s"] > 0 and costs["cpu_s"] > 0
    assert (costs["runqueue_s"], costs["blocked_s"], costs["bytes"]) == (None, None, None)
    refused = {hook["name"]: hook["why"] for hook in report["hooks"] if not hook["attached"]}
    assert "No such file" in refused["/proc/thread-self/schedstat"]
    assert (
        "/proc/thread-self/schedstat" in workshop.feedline("report", workshop.run, "--full").stdout
    )


def test_few_file_descriptors(workshop):
    script = workshop.write(
        "train.py",
        """
        import os, resource, torch
        from torch.utils.data import DataLoader, TensorDataset

        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(2):
            for x, in DataLoader(TensorDataset(torch.ones(16, 4)), batch_size=2):
                model(x).mean().backward()
                optimizer.step()
            if epoch == 0:
                resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1,) * 2)
        print(model.weight.sum().item() < 10)
        """,
    )

    done = workshop.recorded_warm(script)

    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert workshop.report_again()["throughput"]["steps"] == 16


@pytest.mark.long
def test_an_isolated_python(workshop):
    script = training(workshop, 20, "2, multiprocessing_context='spawn'")

    done = workshop.execute(
        sys.executable,
        "-I",
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        workshop.run,
        "--json",
        workshop.json,
        script,
    )
    if "No module named feedline" in done.stderr:
        pytest.skip("feedline is found through PYTHONPATH here, which -I ignores")

    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    report = workshop.report()
    assert (report["throughput"]["steps"], report["workers"]["batches"]) == (20, 20)
