"""Trainings in processes below ``feedline run``: real programs, real processes.

More ways to start one: tests/ways.
"""

import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from warm_python import WarmPython

from feedline.profiler.events import Stage
from feedline.profiler.follow.noticing import _Following
from feedline.profiler.session.ending import Ending
from feedline.profiler.store import process_log
from feedline.profiler.store.trainings import Training, open_run, trainings

TRAIN = """
import os, sys, torch
from torch.utils.data import DataLoader, TensorDataset

def train(batches=6):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(4 * batches, 4)), batch_size=4):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


def run(
    folder: Path,
    program: str,
    *options: str,
    command: tuple[str, ...] = (),
    warm: WarmPython | None = None,
) -> subprocess.CompletedProcess[str]:
    """``feedline run`` of a program, in a warm Python where only processes below it begin."""
    (folder / "train.py").write_text(TRAIN + program)
    words = [
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        "run",
        *options,
        *(["--", *command] if command else ["train.py"]),
    ]
    if warm is not None:
        return warm.run(*words, folder=folder)
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)


def seen(run: Path) -> list[dict[int, int]]:
    """Steps of each rank of each training."""
    return [dict(zip(one.run.ranks, seen_in(one))) for one in trainings(run)]


def seen_in(training: Training) -> list[int]:
    """Steps of each rank."""
    return [int(rank.main.totals[Stage.OPTIMIZER, 0]) for rank in training.run.ranks.values()]


def test_a_program_that_leaves_by_os_exit_has_its_report_and_its_code(tmp_path, warm_python):
    ended = run(tmp_path, "train(); os._exit(3)", warm=warm_python)

    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert ended.returncode == 3
    assert (report["run"]["state"], report["run"]["exit_code"], report["throughput"]["steps"]) == (
        "finished",
        3,
        6,
    )


@pytest.mark.parametrize(
    "refused",
    [
        "os._exit(1 << 40)",
        "os._exit('3')",
        "os.execvp('there-is-none', ['there-is-none'])",
        "open('t', 'w').write('text'); os.chmod('t', 0o755); os.execv('./t', ['t'])",
        "open('t', 'w').write('#!/none'); os.chmod('t', 0o755); os.execv('./t', ['t'])",
    ],
)
def test_an_end_that_python_refuses_does_not_end_the_recording(refused, tmp_path, warm_python):
    program = f"train(5)\ntry: {refused}\nexcept (OSError, OverflowError, TypeError): train(4)"
    run(tmp_path, program, warm=warm_python)

    (training,) = trainings(tmp_path / "run")
    assert seen_in(training) == [9] and training.run.ranks[0].manifest.exit_code == 0


def test_a_code_beyond_a_byte_is_kept_as_the_system_gives_it(tmp_path, warm_python):
    ended = run(tmp_path, "train(); os._exit(259)", warm=warm_python)

    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert ended.returncode == report["run"]["exit_code"] == 3


@pytest.mark.long
def test_a_program_that_replaces_itself_is_two_trainings_and_reports_at_its_end(
    tmp_path, warm_python
):
    again = "os.execv(sys.executable, [sys.executable, 'train.py', 'again'])"
    ended = run(
        tmp_path, f"train(5 if sys.argv[1:] else 7)\nif not sys.argv[1:]: {again}", warm=warm_python
    )

    assert ended.returncode == 0, ended.stderr
    assert seen(tmp_path / "run") == [{0: 7}, {0: 5}]
    assert (tmp_path / "run" / "training-1" / "report.json").exists()


def test_a_program_that_replaces_itself_has_one_report(tmp_path, warm_python):
    """Python runs feedline's start twice in the new program: for the .pth file and sitecustomize."""
    (tmp_path / "train.py").write_text(
        TRAIN + "train(5)\nos.execv(sys.executable, [sys.executable, '-c', 'pass'])"
    )
    ended = warm_python.run("-m", "feedline", "run", "-o", "run", "train.py", folder=tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("report.html") == 1, ended.stderr


def test_a_fork_that_trains_beside_its_parent_is_a_training_of_its_own(tmp_path, warm_python):
    program = (
        "train(5)\npid = os.fork()\ntrain(3 if pid == 0 else 4)\nif pid == 0: "
        "os._exit(0)\nos.waitpid(pid, 0)"
    )
    ended = run(tmp_path, program, warm=warm_python)

    assert ended.returncode == 0, ended.stderr
    assert seen(tmp_path / "run") == [{0: 9}, {0: 3}]


def test_a_training_that_cannot_be_read_is_named_in_the_report_of_the_others(tmp_path, warm_python):
    program = (
        "train(5)\npid = os.fork()\ntrain(3 if pid == 0 else 4)\nif pid == 0: "
        "os._exit(0)\nos.waitpid(pid, 0)"
    )
    run(tmp_path, program, warm=warm_python)
    (tmp_path / "run" / "training-1" / "rank0" / "manifest.json").write_text("{")

    left = trainings(tmp_path / "run")

    assert [one.name for one in left] == ["training-0"]
    assert any("the training in training-1 is left out: " in note for note in left[0].run.notes)


def test_a_fork_that_only_evaluates_is_not_recorded(tmp_path, warm_python):
    evaluates = "with torch.no_grad(): torch.nn.Linear(4, 2)(torch.ones(1, 4))"
    program = (
        f"train(5)\npid = os.fork()\nif pid == 0:\n    {evaluates}\n    "
        f"os._exit(0)\nos.waitpid(pid, 0)"
    )
    run(tmp_path, program, warm=warm_python)

    assert seen(tmp_path / "run") == [{0: 5}]
    assert not (tmp_path / "run" / "training-1").exists()


@pytest.mark.long
def test_a_rank_that_joins_its_group_late_is_recorded_with_it(tmp_path, warm_python):
    program = """
import torch.distributed as dist, torch.multiprocessing as mp
def rank(number):
    loader = iter(DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4))
    next(loader)  # the training begins, before anybody knows that it has ranks
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=number, world_size=2)
    train()
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
"""
    ended = run(tmp_path, program, warm=warm_python)

    assert ended.returncode == 0, ended.stderr
    assert seen(tmp_path / "run") == [{0: 6, 1: 6}]


def test_a_rank_that_learns_its_number_late_has_ended_in_its_report(tmp_path, warm_python):
    """As with jsrun or flux, whose variables torch does not read: the program says its number."""
    program = """
import torch.distributed as dist
number = 0 if os.fork() == 0 else 1
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=number, world_size=2)
train()
dist.destroy_process_group()
if number == 1:
    os.wait()
    raise ValueError
"""
    ended = run(tmp_path, program, warm=warm_python)

    assert ended.returncode == 1 and "ValueError" in ended.stderr
    (ranks,) = [one.run.ranks for one in trainings(tmp_path / "run") if len(one.run.ranks) == 2]
    assert (ranks[1].manifest.exit_code, ranks[1].manifest.ended_by) == (1, "ValueError")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["run"]["state"], report["run"]["ended_by"]) == ("finished", "ValueError")


def test_ranks_that_an_address_numbers_are_one_training(tmp_path, warm_python):
    program = """
import torch.distributed as dist
number = 0 if os.fork() == 0 else 1
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store?rank={number}&world_size=2")
train(5)
dist.destroy_process_group()
if number == 1:
    os.wait()
"""
    ended = run(tmp_path, program, warm=warm_python)

    assert ended.returncode == 0, ended.stderr
    assert {0: 5, 1: 5} in seen(tmp_path / "run")


def test_threads_that_train_when_the_program_has_come_to_its_end_are_recorded(
    tmp_path, warm_python
):
    program = """
import threading
def later():
    threading.main_thread().join()
    print("later", file=sys.stderr)
    train(4)
threading.Thread(target=later).start()
train(3)
raise ValueError("first")
"""
    ended = run(tmp_path, program, warm=warm_python)

    (training,) = trainings(tmp_path / "run")
    assert ended.returncode == training.run.ranks[0].manifest.exit_code == 1, ended.stderr
    assert ended.stderr.index("ValueError: first") < ended.stderr.index("later")
    assert seen_in(training) == [7]


def test_trainings_whose_calls_have_something_else_above_are_recorded_once(tmp_path):
    """The program's own functions around torch's, or its own recording, come above what waits."""
    (tmp_path / "train.py").write_text(
        TRAIN
        + """
import feedline

def around(original):
    return lambda *args, **kwargs: original(*args, **kwargs)

def wraps():
    for owner, name in ((torch.nn.Module, "__call__"), (DataLoader, "__iter__"), (torch.autograd, "backward")):
        setattr(owner, name, around(getattr(owner, name)))
    train(4)

def records_itself():
    with feedline.record("own"):
        train(5)

for part in (wraps, records_itself):
    if os.fork() == 0:
        part()
        os._exit(0)
    assert os.wait()[1] == 0
"""
    )
    ended = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=os.environ | {"FEEDLINE": "1"},
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stderr
    assert [seen(one) for one in (tmp_path / "runs").iterdir()] == [[{0: 4}]]
    assert seen(tmp_path / "own") == [{0: 5}]
    (record,) = open_run(tmp_path / "own").ranks.values()
    assert record.main.totals[Stage.FORWARD, 0] == record.main.totals[Stage.BACKWARD, 0] == 5


@pytest.mark.long
def test_a_launcher_that_is_its_own_first_rank_is_one_training(tmp_path, warm_python):
    """As Lightning's: the script starts itself again for the other ranks."""
    program = """
import subprocess, torch.distributed as dist
number = int(os.environ.get("NUMBER", 0))
if number == 0:
    other = subprocess.Popen([sys.executable, "train.py"], env={**os.environ, "NUMBER": "1"})
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=number, world_size=2)
train()
dist.destroy_process_group()
if number == 0:
    sys.exit(other.wait())
"""
    ended = run(tmp_path, program, warm=warm_python)

    assert ended.returncode == 0, ended.stderr
    assert seen(tmp_path / "run") == [{0: 6, 1: 6}]
    assert sorted(path.name for path in (tmp_path / "run").glob("rank*")) == ["rank0", "rank1"]
    (group,) = {rank.manifest.group for rank in open_run(tmp_path / "run").ranks.values()}
    address = f"2 file://{tmp_path}/store"
    assert group and group != hashlib.sha256(address.encode()).hexdigest()[: len(group)]


def test_a_command_has_its_exit_code_and_what_trained_below_it(tmp_path):
    ended = run(tmp_path, "train(4)", command=("sh", "-c", f"{sys.executable} train.py && exit 7"))

    assert ended.returncode == 7
    assert seen(tmp_path / "run") == [{0: 4}]
    assert (tmp_path / "run" / "report.json").exists()


@pytest.mark.long
def test_a_command_in_which_nothing_trains_is_said_to_hold_no_training(tmp_path):
    ended = run(tmp_path, "", command=(sys.executable, "train.py"))

    assert ended.returncode == 0
    assert (
        "holds no training: no step was made (1 other process imported torch but made no training "
        "step: train.py (pid" in ended.stderr
    )


def test_an_end_that_an_interrupt_breaks_off_is_gone_on_with():
    """A second Ctrl-C comes while the recording is written."""

    class Interrupted:
        is_mine, stopped = True, 0

        def stop(self, ending: Ending) -> None:
            self.stopped += 1
            if self.stopped == 1:
                raise KeyboardInterrupt

    session: Any = Interrupted()
    settings: Any = None
    following = _Following(settings, session)
    with pytest.raises(KeyboardInterrupt):
        following.ends(Ending(130))

    following.ends(Ending(130))
    following.ends(Ending(130))

    assert session.stopped == 2


def test_an_interrupt_that_comes_twice_at_once_is_one_for_the_command(tmp_path):
    """Who sends it to a whole group, without a terminal, sends it to both."""
    (tmp_path / "sleep.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
        "print('up', flush=True)\ntime.sleep(3)"
    )
    feedline = [sys.executable, "-m", "feedline", "run", "-q", "-o", "run", "--"]
    with subprocess.Popen(
        [*feedline, sys.executable, "sleep.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        for _ in range(5):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert process.stdout.read() == "interrupted\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_gets_the_signals_that_feedline_gets(number, tmp_path):
    (tmp_path / "sleep.py").write_text(
        f"import signal, sys, time\nsignal.signal({number:d}, lambda *_: sys.exit(9))\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    command = [
        sys.executable,
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        "run",
        "--",
        sys.executable,
        "sleep.py",
    ]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # without the terminal of the tests
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(30) == 9


def test_ctrl_c_in_a_terminal_reaches_a_command_once(tmp_path):
    (tmp_path / "counts.py").write_text(
        "import signal, sys, time\ncame = []\nsignal.signal(2, lambda *_: came.append(1))\n"
        "open('up', 'w').close()\nuntil = time.monotonic() + 60\n"
        "while not came and time.monotonic() < until: time.sleep(0.01)\n"
        "time.sleep(0.5)\nsys.exit(len(came))"
    )
    words = [sys.executable, "-m", "feedline", "run", "-q", "-o", "run", "--"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [*words, sys.executable, "counts.py"])
    until = time.monotonic() + 60
    while not (tmp_path / "up").exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.write(terminal, b"\x03")

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    os.close(terminal)


def test_a_command_has_the_descriptors_that_feedline_was_given_and_no_other(tmp_path):
    command = ("sh", "-c", "ls /proc/self/fd; cat /dev/fd/$0")
    outputs = []
    for words in ([], [sys.executable, "-m", "feedline", "run", "-q", "-o", "run", "--"]):
        read, write = os.pipe()
        os.write(write, b"settings")
        os.close(write)
        started = [*words, *command, str(read)]
        outputs.append(
            subprocess.check_output(
                started, cwd=tmp_path, pass_fds=[read], stderr=subprocess.DEVNULL
            ).replace(str(read).encode(), b"N")
        )
        os.close(read)

    assert outputs[0] == outputs[1] and outputs[0].endswith(b"settings")


def test_a_script_without_a_first_line_for_the_system_is_run_as_a_shell_does(tmp_path):
    (tmp_path / "launch.sh").write_text("exit $1")
    (tmp_path / "launch.sh").chmod(0o755)

    assert run(tmp_path, "", command=("./launch.sh", "7")).returncode == 7


def test_a_command_that_the_system_does_not_start_leaves_no_folder(tmp_path):
    (tmp_path / "launch.sh").write_text("#!/none")
    (tmp_path / "launch.sh").chmod(0o755)
    ended = run(tmp_path, "", command=("./launch.sh",))

    assert (ended.returncode, ended.stderr) == (
        2,
        "feedline: cannot start the command ./launch.sh: the program that its first line names does "
        "not exist\n",
    )
    assert not (tmp_path / "run").exists()


def test_feedline_1_in_the_environment_records_without_the_command(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN + "train(4)")
    ended = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=os.environ | {"FEEDLINE": "1"},
        capture_output=True,
        text=True,
    )

    runs = list((tmp_path / "runs").iterdir())
    assert ended.returncode == 0
    assert [seen(one) for one in runs] == [[{0: 4}]]
    assert (runs[0] / "report.html").exists()


@pytest.mark.parametrize("how", ["cleared", "python -S"])
def test_a_process_that_cannot_be_followed_is_named_with_its_pid(tmp_path, how, warm_python):
    site = next(path for path in sys.path if path.endswith("site-packages"))
    flags, environ = (
        (["-S"], "None") if how == "python -S" else ([], f"{{'PATH': {os.environ['PATH']!r}}}")
    )
    program = f"""
import subprocess, time
from pathlib import Path
from feedline.profiler.store import process_log
child = "import sys; sys.path.append({site!r}); import torch, time; time.sleep(60)"
if __name__ == "__main__":
    other, until = subprocess.Popen([sys.executable, *{flags!r}, "-c", child], env={environ}), time.monotonic() + 60
    while time.monotonic() < until and not any(process.why_unrecorded for process in process_log.read(Path("run"))):
        time.sleep(0.1)
    other.kill()
    print(other.pid)
"""
    ended = run(tmp_path, program, warm=warm_python)

    unseen = [process for process in process_log.read(tmp_path / "run") if process.why_unrecorded]
    why = "python -S runs no start-up hooks" if flags else "its environment was replaced"
    assert [(process.pid, process.why_unrecorded) for process in unseen] == [
        (int(ended.stdout), why)
    ]


@pytest.mark.long
def test_a_child_that_outlives_the_program_is_read_once_it_has_ended(tmp_path, warm_python):
    program = """
import subprocess, time
if sys.argv[1:]:
    train(3); open("began", "w").close(); time.sleep(3); train(2); open("ended", "w").close()
else:
    subprocess.Popen([sys.executable, "train.py", "child"])
    while not os.path.exists("began"): time.sleep(0.05)
    train(4)
"""
    ended = run(tmp_path, program, warm=warm_python)
    deadline = time.monotonic() + 60
    while not (tmp_path / "ended").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)

    assert ended.returncode == 0
    assert seen(tmp_path / "run") == [{0: 4}, {0: 5}]


def test_a_worker_that_the_program_ends_is_not_taken_for_one_that_was_killed(tmp_path, warm_python):
    program = """
import multiprocessing, signal

def killed():
    train(5)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    with fork.Pool(1) as pool:
        pool.apply(train, (3,))
    child = fork.Process(target=killed)
    child.start()
    child.join()
    child.kill()
"""
    ended = run(tmp_path, program, warm=warm_python)

    assert ended.returncode == 0, ended.stderr
    states = {
        number: one.run.ranks[0].manifest.state
        for one in trainings(tmp_path / "run")
        for number in seen_in(one)
    }
    assert states == {3: "ended", 5: "cut"}
    overview = json.loads((tmp_path / "run" / "report.json").read_text())
    assert {row["steps"]: row["state"] for row in overview["trainings"]} == states
    own = json.loads((tmp_path / "run" / "training-1" / "report.json").read_text())
    assert own["headline"] == "The training was ended by the program itself after 3 steps."
    assert {
        one.run.ranks[0].manifest.state for one in trainings(tmp_path / "run" / "training-1")
    } == {"ended"}


@pytest.mark.long
def test_another_feedline_below_keeps_its_run_and_is_named_by_the_first(tmp_path):
    ended = run(
        tmp_path,
        "train(4)",
        command=(sys.executable, "-m", "feedline", "run", "-q", "-o", "other", "train.py"),
    )

    assert ended.returncode == 0, ended.stderr
    assert seen(tmp_path / "other") == [{0: 4}]
    assert "it is recorded by another feedline, into" in ended.stderr
