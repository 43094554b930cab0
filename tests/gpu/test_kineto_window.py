"""``feedline run --torch-profiler``: real trainings under the real torch.profiler, of the CPU where
there is no GPU.
"""

import gzip
import json
from pathlib import Path

import pytest
import torch
from warm_python import WarmPython

from feedline.profiler.events import Stage
from feedline.profiler.record.detail import _OFF, ProfilerWindow
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps.kineto_window import KinetoWindow

PROGRAM = Path(__file__).with_name("training.py")
MANY_FORWARDS = "many forward passes without gradients (an evaluation, rollouts or generation)"


def train(
    warm_python: WarmPython, folder: Path, *options: str, program: tuple[str, ...] = ()
) -> tuple[str, dict]:
    """What the training printed, and its report."""
    out = folder / "out.json"
    command = [
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        folder / "run",
        "--json",
        out,
        *options,
        PROGRAM,
        *program,
    ]
    done = warm_python.run(*command, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


def names(trace: Path) -> list[str]:
    return [event.get("name", "") for event in json.loads(gzip.open(trace).read())["traceEvents"]]


def profiler_hook(report: dict) -> tuple[bool, str]:
    (hook,) = (hook for hook in report["hooks"] if hook["name"] == "torch.profiler")
    return hook["attached"], hook["why"]


@pytest.fixture(scope="module")
def watched(tmp_path_factory, warm_python):
    folder = tmp_path_factory.mktemp("watched")
    return *train(warm_python, folder, "--torch-profiler", "6:3"), folder / "run"


def test_the_trace_holds_the_steps_that_were_asked_for(watched):
    *_, run = watched

    steps = {
        name for name in names(run / "rank0" / "kineto.json.gz") if name.startswith("ProfilerStep#")
    }
    assert steps == {"ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"}


def test_the_trace_holds_the_operators_of_the_training(watched):
    *_, run = watched

    assert "aten::addmm" in names(run / "rank0" / "kineto.json.gz")


def test_the_training_computes_the_same_numbers(watched, warm_python, tmp_path):
    printed, *_ = watched

    assert printed == warm_python.run(PROGRAM, folder=tmp_path).stdout


def test_profiled_steps_are_left_out_of_the_figures_and_the_report_says_so(watched):
    _, report, _ = watched

    assert (
        report["throughput"]["steps"] == 20 - 5
    )  # those profiled, the one to warm up, and the one in whose end it began
    assert any("torch.profiler" in note for note in report["notes"])
    assert sum(report["step"]["stages"].values()) == pytest.approx(
        report["step"]["mean_s"], rel=0.01
    )


def test_without_a_gpu_no_step_is_profiled_unless_asked(tmp_path, warm_python):
    _, report = train(warm_python, tmp_path)

    if report["step"]["gpu_stages"] is not None:
        pytest.skip("the training used a GPU")
    attached, why = profiler_hook(report)
    assert not attached and why.startswith("no GPU was used")
    assert not (tmp_path / "run" / "rank0" / "kineto.json.gz").exists()
    assert report["throughput"]["steps"] == 20


def test_a_program_that_profiles_itself_in_the_window_gets_its_own_trace(tmp_path, warm_python):
    printed, report = train(
        warm_python, tmp_path, "--torch-profiler", "6:9", program=("profile", "9")
    )

    assert "own trace: 3 steps" in printed
    assert profiler_hook(report) == (
        False,
        "the program started torch.profiler in the window, and only one can run at a time",
    )


def test_a_program_that_is_profiling_already_is_left_alone(tmp_path, warm_python):
    printed, report = train(
        warm_python, tmp_path, "--torch-profiler", "6:3", program=("profile", "5")
    )

    assert "own trace: 3 steps" in printed
    assert profiler_hook(report) == (
        False,
        "the program runs torch.profiler itself, and only one can run at a time",
    )


def test_a_training_that_ends_in_its_window_keeps_what_there_is(tmp_path, warm_python):
    _, report = train(warm_python, tmp_path, "--torch-profiler", "16:50")

    assert profiler_hook(report) == (True, "the training ended in its window, after 3 of 50 steps")
    assert "ProfilerStep#18" in names(tmp_path / "run" / "rank0" / "kineto.json.gz")


@pytest.mark.parametrize("text", ["5", "5:", ":5", "0:5", "5:0", "a:b", "-1:5", ""])
def test_a_window_that_is_none_is_refused_in_words(text):
    with pytest.raises(ValueError, match="expected SKIP:ACTIVE"):
        ProfilerWindow.parse(text)


def test_without_a_window_short_steps_rest(warm_python, tmp_path):
    program = tmp_path / "short.py"
    program.write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(400):\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )
    done = warm_python.run(
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        tmp_path / "run",
        "--torch-profiler",
        "off",
        program,
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr

    assert len(open_run(tmp_path / "run").ranks[0].main.of(Stage.OPTIMIZER)) < 200
    (hook,) = (
        hook
        for hook in open_run(tmp_path / "run").ranks[0].manifest.hooks
        if hook["name"] == "torch.profiler"
    )
    assert (hook["attached"], hook["why"]) == (False, "turned off with --torch-profiler off")


def test_the_events_of_a_window_become_no_objects_in_the_trainings_thread(tmp_path, monkeypatch):
    """pytest makes an error of each warning, as of torch 2.10's, which asks for acc_events."""
    parsed, ended = [], []
    monkeypatch.setattr(
        torch.autograd.profiler.profile,
        "_parse_kineto_results",
        lambda *_, **__: parsed.append(1) or [],
    )
    window = KinetoWindow(tmp_path, ProfilerWindow(1, 2), lambda *told: ended.append(told[:2]))
    window._open()
    for _ in range(3):
        torch.ones(2).sin()
        window._steps.updates += 1
        window._step()

    assert (ended, parsed) == ([("torch.profiler", True)], [])
    assert names(tmp_path / "kineto.json.gz").count("aten::sin") == 2


def profiled(folder: Path, warm_python: WarmPython, loop: str) -> tuple[dict, list[str]]:
    """The report of a training whose steps 3 and 4 are to be profiled, and the trace's names."""
    program = folder / "train.py"
    program.write_text(f"""if True:
        import torch
        torch.set_num_threads(1)
        model = torch.nn.Linear(4, 2)
        first, second = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
        batch = torch.ones(5, 4)
        def step(optimizer=first):
            model(batch).sum().backward()
            optimizer.step()
{loop}
        """)
    out = folder / "out.json"
    command = ["-m", "feedline", "run", "-q", "-o", folder / "run", "--json", out]
    done = warm_python.run(*command, "--torch-profiler", "2:2", program, folder=folder)
    assert done.returncode == 0, done.stderr
    trace = folder / "run" / "rank0" / "kineto.json.gz"
    return json.loads(out.read_text()), names(trace) if trace.exists() else []


def test_an_evaluation_in_the_window_ends_it(tmp_path: Path, warm_python: WarmPython):
    """Its calls would fill the trace, which the training waits for."""
    report, traced = profiled(
        tmp_path,
        warm_python,
        """
        for _ in range(4):
            step()
        with torch.no_grad():
            for _ in range(300):
                model(batch)
        for _ in range(8):
            step()
        """,
    )

    assert profiler_hook(report) == (
        True,
        f"{MANY_FORWARDS} in its window, after 1 of 2 steps",
    )
    assert 1 <= traced.count("aten::addmm") < 50
    assert report["throughput"]["steps"] > 6


def test_a_teacher_that_is_called_in_each_step_is_a_part_of_it(
    tmp_path: Path, warm_python: WarmPython
):
    report, traced = profiled(
        tmp_path,
        warm_python,
        """
        for _ in range(8):
            for _ in range(12):
                with torch.no_grad():
                    model(batch)
                    model(batch)
                model(batch).sum().backward()
            first.step()
        """,
    )

    assert profiler_hook(report) == (True, "2 steps after 3, in rank0/kineto.json.gz")
    assert traced.count("aten::addmm") == 2 * 12 * 3


def test_rollouts_in_each_step_are_a_part_of_it(tmp_path: Path, warm_python: WarmPython):
    report, traced = profiled(
        tmp_path,
        warm_python,
        """
        for _ in range(8):
            with torch.no_grad():
                for _ in range(40):
                    model(batch)
            step()
        """,
    )

    assert profiler_hook(report) == (True, "2 steps after 3, in rank0/kineto.json.gz")
    assert traced.count("aten::addmm") == 2 * 41


@pytest.mark.parametrize("more", [0, 6])
def test_a_window_that_an_evaluation_leaves_without_a_step_opens_again(
    more: int, tmp_path: Path, warm_python: WarmPython
):
    report, traced = profiled(
        tmp_path,
        warm_python,
        f"""
        step()
        step()
        with torch.no_grad():
            for _ in range(300):
                model(batch)
        for _ in range({more}):
            step()
        """,
    )

    assert profiler_hook(report) == (
        (True, "2 steps after 4, in rank0/kineto.json.gz")
        if more
        else (False, f"{MANY_FORWARDS} in its window, after 0 of 2 steps")
    )
    assert traced.count("aten::addmm") == (2 if more else 0)
    (note,) = (note for note in report["notes"] if "torch.profiler recorded are excluded" in note)
    assert ("kineto.json.gz" in note) == bool(more)


def test_steps_that_begin_to_make_rollouts_are_cut_after_one(
    tmp_path: Path, warm_python: WarmPython
):
    """Where each window begins, such calls are far more than those of the steps before."""
    report, traced = profiled(
        tmp_path,
        warm_python,
        """
        step()
        step()
        for count in (20, 200, 800, 800):
            with torch.no_grad():
                for _ in range(count):
                    model(batch)
            step()
        """,
    )

    assert profiler_hook(report) == (True, f"{MANY_FORWARDS} in its window, after 1 of 2 steps")
    assert 801 <= traced.count("aten::addmm") <= 801 + 200  # 1,000 are the most


def test_a_window_ends_without_a_trace_where_one_step_alone_would_fill_it(
    tmp_path: Path, warm_python: WarmPython
):
    report, traced = profiled(
        tmp_path,
        warm_python,
        """
        step()
        step()
        for count in (20, 0, 2000, 0, 0, 0):
            with torch.no_grad():
                for _ in range(count):
                    model(batch)
            step()
        """,
    )

    assert profiler_hook(report) == (False, f"{MANY_FORWARDS} in its window, after 0 of 2 steps")
    assert traced == []


@pytest.mark.parametrize(
    ("asked", "rollouts", "complete"),
    [(None, 60, 3), (None, 150, 1), (None, 500, 0), (ProfilerWindow(20, 5), 150, 5)],
)
def test_usual_rollouts_do_not_fill_a_window_that_nobody_asked_for(
    asked: ProfilerWindow | None,
    rollouts: int,
    complete: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """It opens by itself only on a GPU; none is needed to record what it may hold."""
    ended = []
    window = KinetoWindow(tmp_path, asked, lambda *told: ended.append(told[1:]))
    monkeypatch.setattr(window, "_why_not", lambda: None)
    for _ in range(30):
        for _ in range(rollouts):
            window.forwards(gradients=False)
            torch.ones(2).sin()
        window.forwards(gradients=True)
        window._steps.updates += 1
        window._step_ended()

    cut = f"{MANY_FORWARDS} in its window, after {complete} of 5 steps"
    whole = f"5 steps after 21, in {tmp_path.name}/kineto.json.gz"
    assert ended == [(complete > 0, whole if complete == 5 else cut)]
    trace = tmp_path / "kineto.json.gz"
    assert trace.exists() == (complete > 0)
    if complete:
        assert names(trace).count("aten::sin") == (5 * rollouts if complete == 5 else 200)


def test_a_window_ends_where_another_optimizer_takes_over(tmp_path: Path, warm_python: WarmPython):
    report, traced = profiled(
        tmp_path,
        warm_python,
        """
        for _ in range(4):
            step()
        for _ in range(300):
            step(second)
        """,
    )

    assert profiler_hook(report) == (
        True,
        "the first optimizer made no update during many of another one in its window, after 1 of 2 "
        "steps",
    )
    assert traced.count("aten::addmm") < 100


def test_off_is_a_window_of_no_step():
    assert ProfilerWindow.parse("off") == _OFF
    assert not _OFF.active


def test_a_window_between_updates_inside_backward_leaves_the_profiler_to_the_program(
    tmp_path: Path, warm_python: WarmPython
):
    """torch would find a profiler running again that ended inside a backward, and refuse the
    program its own.
    """
    program = tmp_path / "train.py"
    program.write_text(
        """if True:
        import torch
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
        for _ in range(9):
            model(torch.ones(5, 4)).sum().backward()
        with torch.profiler.profile() as profiler:
            model(torch.ones(5, 4)).sum().backward()
        print(any(event.key == "aten::addmm" for event in profiler.key_averages()))
        """
    )
    out = tmp_path / "out.json"
    done = warm_python.run(
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        tmp_path / "run",
        "--json",
        out,
        "--torch-profiler",
        "3:2",
        program,
        folder=tmp_path,
    )

    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert profiler_hook(json.loads(out.read_text())) == (
        True,
        "2 steps after 4, in rank0/kineto.json.gz",
    )
