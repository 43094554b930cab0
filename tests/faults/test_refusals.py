"""What feedline cannot do is refused before the training starts, in a message that says what,
where, and the way out.
"""

import json
import re
import shutil
import sys

import pytest

FEEDLINE = [sys.executable, "-m", "feedline"]
MARKS = "open('started', 'w'); print('started')"
READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; shift; exec "$@"'


@pytest.fixture
def finished(workshop, run_of_five_steps):
    """The workshop, with a finished run in it."""
    shutil.copytree(run_of_five_steps, workshop.run)
    return workshop


def test_a_script_that_does_not_exist(workshop):
    done = workshop.recorded("nowhere/train.py")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "feedline: cannot open the script nowhere/train.py (No such file or directory): "
        "give the path of the training script, followed by its arguments\n"
    )
    assert not workshop.run.exists()


def test_a_module_that_does_not_exist(workshop):
    done = workshop.recorded("-m", "nowhere.train")

    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot find the module nowhere.train" in done.stderr
    assert not workshop.run.exists()


def test_a_second_run_into_the_same_folder_gets_the_next_free_name(finished):
    report = (finished.run / "report.json").read_bytes()
    taken = f"{finished.run.name} already holds a run, recording into {finished.run.name}-2"

    done = finished.recorded(finished.write("second.py", MARKS), options=("-q",))

    assert (done.returncode, done.stdout) == (0, "started\n")
    assert done.stderr.splitlines()[0] == f"feedline: {taken}"
    assert (finished.run / "report.json").read_bytes() == report
    assert (finished.folder / "run-2" / "rank0" / "manifest.json").exists()


def test_strictly_a_second_run_into_the_same_folder_is_refused(finished):
    report = (finished.run / "report.json").read_bytes()

    done = finished.recorded(finished.write("second.py", MARKS), options=("-q", "--strict"))

    assert (done.returncode, done.stdout) == (73, "")
    assert (
        done.stderr
        == f"feedline: {finished.run} already holds a run: name another folder with -o, or "
        f"overwrite it with -f\n"
    )
    assert not (finished.folder / "started").exists()
    assert (finished.run / "report.json").read_bytes() == report


def test_overwriting_leaves_nothing_of_the_older_run(finished):
    done = finished.recorded(finished.write("second.py", "import os; os.kill(os.getpid(), 9)"))

    assert done.returncode == -9
    assert sorted(path.name for path in finished.run.iterdir()) == [".feedline", "rank0"]
    assert finished.report_again()["throughput"]["steps"] == 0


@pytest.mark.parametrize("strict", [(), pytest.param(("--strict",), marks=pytest.mark.long)])
def test_a_run_that_is_still_going_on_is_never_overwritten(workshop, strict):
    process = workshop.start(
        *FEEDLINE,
        "run",
        "-o",
        workshop.run,
        workshop.write("long.py", "import time; print('ready', flush=True); time.sleep(60)"),
    )
    assert process.stdout.readline() == "ready\n"

    done = workshop.recorded(workshop.write("second.py", MARKS), options=("-q", "-f", *strict))

    assert (workshop.run / "rank0" / "manifest.json").exists()
    assert process.poll() is None
    if strict:
        assert (done.returncode, done.stdout) == (73, "")
        assert "is being used by another process: wait until it has ended" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, "started\n")
        assert "run is being used by another process, recording into run-2" in done.stderr


@pytest.mark.parametrize("command", [(), ("--",)])
def test_overwriting_a_folder_with_files_of_others_says_why_it_records_elsewhere(workshop, command):
    workshop.run.mkdir()
    (workshop.run / "notes.txt").write_text("mine")
    words = [*command, sys.executable] if command else []

    done = workshop.execute(
        *FEEDLINE, "run", "-q", "-f", "-o", workshop.run, *words, workshop.write("train.py", MARKS)
    )

    assert (done.returncode, done.stdout) == (0, "started\n")
    assert (
        "feedline: run holds files that feedline did not make (notes.txt), recording into run-2\n"
        in done.stderr
    )
    assert [path.name for path in workshop.run.iterdir()] == ["notes.txt"]


def test_a_crash_before_the_first_step_is_not_followed_by_advice_about_the_machine(workshop):
    done = workshop.recorded(workshop.write("train.py", "raise SystemExit(2)"), options=("-f",))
    assert re.search(
        r"ended with exit code 2 at train\.py:1 before its first step",
        " ".join(done.stderr.split()),
    )
    assert "feedline env" not in done.stderr

    done = workshop.recorded(workshop.write("other.py", "print(1)"), options=("-f",))
    assert "No training step was recorded" in done.stderr
    assert "feedline env" not in done.stderr  # no hook is missing: the machine is not the reason


def test_a_place_that_is_a_file_stays_as_it_is(workshop):
    workshop.run.write_text("notes")

    done = workshop.recorded(workshop.write("train.py", MARKS))
    refused = workshop.recorded(workshop.write("train.py", MARKS), options=("-f", "--strict"))

    assert (done.returncode, "recording into run-2" in done.stderr) == (0, True)
    assert refused.returncode == 73
    assert f"{workshop.run} is a file: name another folder with -o" in refused.stderr
    assert workshop.run.read_text() == "notes"


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_on_a_place_that_is_read_only_the_training_runs_unrecorded(workshop, own_mounts, strict):
    script, place = workshop.write("train.py", MARKS), workshop.folder / "place"
    place.mkdir()
    read_only = own_mounts(READ_ONLY, place)

    done = workshop.execute(*read_only, *FEEDLINE, "run", *strict, "-o", place / "run", script)

    assert (done.returncode, done.stdout) == ((73, "") if strict else (0, "started\n"))
    why = (
        f"cannot write the run folder {place}/run (Read-only file system): name another folder "
        f"with -o"
    )
    assert done.stderr == f"feedline: {'' if strict else 'not recording: '}{why}\n"


@pytest.mark.parametrize("command", [(), ("--", sys.executable)])
def test_where_nothing_can_be_recorded_a_training_that_was_to_be_changed_does_not_run_unchanged(
    workshop, own_mounts, command
):
    script, place = workshop.write("train.py", MARKS), workshop.folder / "place"
    place.mkdir()

    run = (
        *own_mounts(READ_ONLY, place),
        *FEEDLINE,
        "run",
        "--set",
        "num_workers=2",
        "-o",
        place / "run",
        *command,
        script,
    )
    done = workshop.execute(*run)

    assert (done.returncode, done.stdout) == (73, "")
    assert "feedline: cannot write the run folder" in done.stderr


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_on_a_disk_that_is_full_the_training_runs_unrecorded(workshop, own_mounts, strict):
    script, place = workshop.write("train.py", MARKS), workshop.folder / "place"
    place.mkdir()
    full = own_mounts(
        'mount -t tmpfs -o size=64k tmpfs "$1"; head -c 60K /dev/zero > "$1/filler"; shift; exec '
        '"$@"',
        place,
    )

    done = workshop.execute(*full, *FEEDLINE, "run", *strict, "-o", place / "run", script)

    assert (done.returncode, done.stdout) == ((73, "") if strict else (0, "started\n"))
    assert f"cannot write the run folder {place}/run (No space left on device)" in done.stderr


def test_a_report_on_a_read_only_run_is_shown_all_the_same(finished, own_mounts):
    for name in ("report.html", "report.json", "trace.json.gz"):
        (finished.run / name).unlink()
    read_only = own_mounts(READ_ONLY, finished.run)

    done = finished.execute(
        *read_only, *FEEDLINE, "report", finished.run, "--json", finished.folder / "again.json"
    )

    assert done.returncode == 0, done.stderr
    assert "5 steps" in done.stdout
    assert "Read-only file system" in done.stderr
    assert json.loads((finished.folder / "again.json").read_text())["throughput"]["steps"] == 5


def test_a_run_that_cannot_be_compacted_is_read_as_it_is(workshop, own_mounts):
    script = workshop.write(
        "train.py",
        """
        import feedline, torch

        @feedline.record("run")
        def train():
            model = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(5):
                model(torch.randn(8, 4)).mean().backward()
                optimizer.step()

        train()
        """,
    )
    assert workshop.warm.run(script, folder=workshop.folder).returncode == 0
    read_only = own_mounts(READ_ONLY, workshop.run)

    done = workshop.execute(*read_only, *FEEDLINE, "report", workshop.run, "--finish")

    assert done.returncode == 0, done.stderr
    assert "5 steps" in done.stdout
    assert "rank0 (Read-only file system): no data is lost, but reading takes longer" in done.stderr


@pytest.mark.parametrize(
    ("there", "code", "message"),
    [
        (None, 66, "there is no run folder"),
        ("", 66, "is not a run folder (it contains no rank0)"),
        ("rank0/nothing", 65, "cannot be read"),
    ],
)
def test_a_report_on_something_that_is_no_run(workshop, there, code, message):
    if there is not None:
        (workshop.run / there).mkdir(parents=True)

    done = workshop.feedline("report", workshop.run)

    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert ":" in done.stderr.split(message)[1]  # the way out


def test_a_run_of_a_newer_feedline(finished):
    manifest = finished.run / "rank0" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "schema_version": 99}))

    done = finished.feedline("report", finished.run)

    assert (done.returncode, done.stdout) == (76, "")
    assert "was written by a newer feedline (schema 99" in done.stderr
    assert "update feedline" in done.stderr


def test_a_report_does_not_overwrite_a_file_unasked(finished):
    finished.write("mine.html", "mine")

    done = finished.feedline("report", finished.run, "-o", "mine.html")

    assert done.returncode == 73
    assert "mine.html already exists: name another file, or overwrite it with -f" in done.stderr
    assert (finished.folder / "mine.html").read_text() == "mine"
