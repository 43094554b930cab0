"""Programs to which something they waited for never came, and programs that failed: the report says
what and where, and counts nothing that did not come."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.conftest import kill_tree, send
from faults.test_kills import wait_for
from text.breath import advised, said
from truth.one_number import check

import feedline
from feedline.analysis.explain.model import Report
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.measure.at_end import LONG_S
from feedline.analysis.report import html_report, terminal
from feedline.profiler.samplers.processes import descendants
from feedline.profiler.session.ending import Ending
from feedline.profiler.store.trainings import open_run

#: ``AT`` marks the line that a report has to name. The program writes ``now`` where it begins to
#: wait.
PROGRAM = """
    import os, signal, sys, threading, time
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    LOCK = threading.Lock()

    def wait():
        open("now", "w").close()
        time.sleep(1000)  # AT SLEEP

    class Numbers(Dataset):
        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            ITEM
            return torch.full((8,), float(index % 7))

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    def evaluate(model):
        with torch.no_grad():
            for batch in DataLoader(Numbers(), batch_size=4):
                model(batch)
                time.sleep(0.01)
                open("now", "w").close()

    def train():
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        BEFORE
        for step, x in enumerate(DataLoader(DATASET(), batch_size=4, num_workers=WORKERS)):  # AT LOOP
            STEP
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    train()
"""


class Programs:
    """Writes, runs and interrupts the program."""

    def __init__(self, workshop) -> None:
        self.workshop, self.now = workshop, workshop.folder / "now"
        self.script = Path()

    def write(
        self, item="pass", before="pass", step="pass", dataset="Numbers", workers=0, samples=4000
    ) -> None:
        """Where a part is more than an expression, it marks its own line with AT."""
        text = (
            PROGRAM.replace("WORKERS", str(workers))
            .replace("SAMPLES", str(samples))
            .replace("DATASET", dataset)
        )
        self.script = self.workshop.write(
            "train.py", text.replace("ITEM", item).replace("BEFORE", before).replace("STEP", step)
        )

    def line(self, mark: str) -> str:
        """``train.py:31``."""
        lines = self.script.read_text().splitlines()
        return f"train.py:{next(number for number, line in enumerate(lines, 1) if line.endswith(f'# AT {mark}'))}"

    def ended(self, code: int) -> Report:
        """Its report after it has run to its end."""
        done = self.workshop.recorded_warm(self.script)
        assert done.returncode == code, done.stderr
        return self.report()

    def waiting(self, seconds: float = LONG_S + 2.0) -> "Iterator[None]":
        """Let it wait for so long, and then press Ctrl-C."""
        program = self.workshop.start_warm(self.script)
        try:
            wait_for(self.now.exists)
            time.sleep(seconds)
            yield
            for pid in (*descendants(program.pid), program.pid):
                send(pid, signal.SIGINT)
            program.communicate()
        finally:
            if program.returncode is None:
                kill_tree(program.pid)
                program.communicate()

    def interrupted(self, seconds: float = LONG_S + 2.0) -> Report:
        """Its report after Ctrl-C."""
        for _ in self.waiting(seconds):
            pass
        return self.report()

    def report(self) -> Report:
        made = recorded_report(open_run(self.workshop.run))
        check(made)
        terminal.render(made), html_report.render(made)
        return made


@pytest.fixture
def programs(workshop) -> Programs:
    return Programs(workshop)


def test_workers_that_wait_for_a_lock_taken_before_the_fork(programs):
    programs.write(
        item="LOCK.acquire()  # AT ITEM",
        before="LOCK.acquire(); open('now', 'w').close()",
        workers=2,
    )

    for _ in programs.waiting():
        live = programs.report()
    made = programs.report()

    assert (
        live.headline.startswith("The training is still running")
        and live.findings[0].rule_id == "no_batch"
    )
    assert (
        made.headline
        == f"The training was interrupted (Ctrl-C) at {programs.line('LOOP')} before its first "
        f"step."
    )
    hang, finding = made.findings
    assert (hang.rule_id, finding.rule_id) == ("standstill", "no_batch")
    assert made.verdict.limit.startswith("No step for ")
    assert made.verdict.cause == (
        f"The main process waits for worker 0, which waits for a lock at {programs.line('ITEM')}."
    )
    assert "no batch came from DataLoader: the main process waited " in finding.message
    assert finding.place == programs.line("LOOP")
    assert "both its workers were waiting for a lock or another thread" in said(finding)
    assert "multiprocessing_context='spawn'" in finding.fix
    measured = {one.id: one.value for one in finding.evidence}
    assert (
        measured["batches"] == 0
        and measured["workers"] == 2
        and LONG_S < measured["waited_s"] < made.run.duration_s
    )
    assert (made.loaders[0].batches, made.loaders[0].samples, made.workers, made.step) == (
        0,
        0,
        None,
        None,
    )
    assert "few dozen steps" not in terminal.render(made)


@pytest.mark.long
def test_a_process_that_was_killed_while_it_waited_for_its_first_batch(programs):
    programs.write(
        item="LOCK.acquire()", before="LOCK.acquire(); open('now', 'w').close()", workers=1
    )
    program = programs.workshop.start_warm(programs.script)
    wait_for(programs.now.exists)
    time.sleep(LONG_S + 2.0)  # the loader starts in the first of these seconds
    kill_tree(program.pid)
    program.communicate()

    made = programs.report()

    assert made.headline.startswith("The training was killed or crashed")
    assert "no batch came from DataLoader" in made.findings[1].message
    assert "its worker was waiting for a lock" in said(made.findings[1])
    assert "which waits for a lock at train.py" in made.verdict.cause


@pytest.mark.long
def test_a_worker_that_stops_in_the_middle_is_named_and_its_wait_is_no_cost_of_a_sample(programs):
    programs.write(item="wait() if index == 81 else time.sleep(0.001)", workers=2)

    made = programs.interrupted()

    assert made.headline == (
        f"The training was interrupted (Ctrl-C) at {programs.line('LOOP')} after 20 steps."
    )
    assert made.verdict.cause == (
        f"The main process waits for worker 0, which sleeps at {programs.line('SLEEP')}."
    )
    assert made.throughput.steps == 20 == made.loaders[0].batches
    assert made.workers.per_sample["total"].wall_s < 0.05 and made.workers.fetch_mean_s < 0.2
    assert made.workers.samples == 4 * made.workers.batches


@pytest.mark.long
def test_a_main_process_that_stops_after_some_steps(programs):
    programs.write(step="step == 20 and wait()")

    made = programs.interrupted()

    assert f" at {programs.line('SLEEP')} after 20 steps." in made.headline
    assert made.verdict.limit.startswith("No step for ")
    assert made.verdict.cause == f"The main process sleeps at {programs.line('SLEEP')}."
    assert made.throughput.steps == 20


@pytest.mark.long
def test_a_main_process_that_stops_while_steps_are_only_counted(programs):
    """The rest that it was in does not make each of its steps longer."""
    programs.write(step="step == 900 and wait()")

    made = programs.interrupted()

    assert made.headline == (
        f"The training was interrupted (Ctrl-C) at {programs.line('SLEEP')} after 900 steps."
    )
    assert made.verdict.cause == f"The main process sleeps at {programs.line('SLEEP')}."
    assert made.throughput.steps == 900 and made.throughput.steps_in_detail < 900
    assert made.step.mean_s < 0.003, "the steps take well below 1 ms, the wait 4 s"


def test_a_program_that_stops_in_its_first_step(programs):
    programs.write(step="wait()")

    made = programs.interrupted()

    assert f"at {programs.line('SLEEP')} after 1 batch." in made.headline
    assert made.verdict.cause == f"The main process sleeps at {programs.line('SLEEP')}."
    assert "no training was seen: 1 batch came from the loader" in made.findings[1].message
    assert [finding.fix for finding in made.findings] == ["", ""]


@pytest.mark.long
def test_a_program_that_does_something_else_after_its_steps_does_not_hang(programs):
    programs.write(samples=20)
    programs.script.write_text(f"{programs.script.read_text()}\ntime.sleep({LONG_S + 0.5})\n")

    made = programs.ended(code=0)

    assert (made.headline, made.run.silent_s, made.findings[0].fix) == (
        "",
        None,
        "Train for 16 steps or more.",
    )


def test_a_program_that_was_interrupted_while_it_evaluated(programs):
    programs.write(step="step == 20 and evaluate(model)")

    made = programs.interrupted(seconds=0.2)

    assert "during evaluation." in made.headline and "after 20 steps" in made.headline


def test_a_program_that_was_interrupted_soon_is_told_to_train_longer(programs):
    programs.write(step="time.sleep(0.3); open('now', 'w').close()")

    made = programs.interrupted(seconds=0.1)

    assert (
        made.findings[0].rule_id == "too_short"
        and made.findings[0].fix == "Train for 16 steps or more."
    )
    assert "nothing recorded" not in made.headline and "waiting" not in made.headline


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_in_the_first_batch_is_named_with_its_line_and_counts_as_no_batch(
    programs, workers
):
    programs.write(item="if index == 2: raise ValueError('secret')  # AT ITEM", workers=workers)

    made = programs.ended(code=1)

    assert (
        made.headline
        == f"The training failed with ValueError at {programs.line('ITEM')} (exit code 1) before "
        f"its first step."
    )
    assert made.verdict.limit == "No batch came from DataLoader: making the first one failed."
    assert made.findings[0].place == programs.line("LOOP")
    assert (made.findings[0].fix, made.loaders[0].batches) == ("", 0)
    assert "secret" not in (programs.workshop.run / "rank0" / "manifest.json").read_text()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("dataset", "samples"), [("Numbers", 0), ("Stream", 0)])
def test_a_loader_that_is_at_its_end_at_once(programs, dataset, samples, workers):
    programs.write(
        dataset=dataset,
        samples=samples,
        workers=workers,
        before="torch.utils.data.SequentialSampler",
    )

    made = programs.ended(code=0)

    assert made.headline == "" and made.findings[0].rule_id == "no_batch"
    assert made.findings[0].message == "no batch came from DataLoader: it was at its end at once"


def test_a_loader_whose_only_batch_is_dropped_beside_one_of_evaluation(programs):
    """What the main process made for the evaluation is no sample of the training's worker."""
    programs.write(
        dataset="drop_last=True, dataset=Numbers", samples=3, workers=1, before="evaluate(model)"
    )

    made = programs.ended(code=0)
    (finding,) = made.findings

    assert made.verdict.limit == (
        "No batch came from DataLoader: it has 3 samples, batches of 4, and drop_last=True."
    )
    assert finding.fix.startswith("Set drop_last=False") and finding.place == programs.line("LOOP")
    assert [(one.role, one.batches) for one in made.loaders] == [("evaluation", 1), ("training", 0)]
    shown = terminal.render(made)
    assert "One sample" not in shown and "never made a batch" not in shown
    assert "feedline env" not in shown


def test_a_program_that_never_comes_to_train_is_not_told_to_look_at_the_machine(programs):
    programs.write(before="return")

    made = programs.ended(code=0)

    assert made.verdict.limit.startswith("No training step was recorded")
    assert made.step is None and not made.loaders and "feedline env" not in terminal.render(made)


def test_a_checkpoint_on_a_full_disk_is_named_and_says_nothing_of_loaders(programs, small_disk):
    disk = small_disk(1 << 20)
    script = programs.workshop.write(
        "train.py",
        f"""
        import torch
        model = torch.nn.Linear(1000, 1000)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        for step in range(40):
            model(torch.randn(8, 1000)).square().mean().backward()
            optimizer.step()
            if step == 29:
                torch.save(model.state_dict(), {str(disk / "model.pt")!r})
        """,
    )
    done = programs.workshop.recorded_warm(script)
    assert done.returncode == 1, done.stderr

    made = programs.report()

    said = (
        "The training failed with RuntimeError, because a file could not be written (is the "
        "disk full?) at train.py:9 (exit code 1)"
    )
    assert made.headline == f"{said} after 30 steps, in torch.save."
    assert not [
        finding.fix
        for finding in made.findings
        if "loader" in advised(finding) or "batch" in advised(finding)
    ]


@pytest.mark.parametrize(
    ("before", "code", "said"),
    [
        ("sys.exit(3)  # AT END", 3, "ended with exit code 3 at {end} before its first step."),
        ("os._exit(4)  # AT END", 4, "ended with exit code 4 before its first step."),
        (
            "raise OSError(28, 'x')  # AT END",
            1,
            "failed with OSError (No space left on device) at {end} (exit code 1) before {first}.",
        ),
    ],
)
def test_an_end_before_the_first_step(programs, before, code, said):
    programs.write(before=before)

    made = programs.ended(code)

    assert (
        made.headline
        == f"The training {said.format(end=programs.line('END'), first='its first step')}"
    )
    assert (
        made.verdict.limit
        == "No training step was recorded, so what limits the training is unknown."
    )


def test_a_backward_pass_that_raises_is_no_step(programs):
    """Without an optimizer, backward passes are the steps."""
    none = "optimizer = type('None_', (), {'step': lambda _: None, 'zero_grad': lambda _: None})()"
    programs.write(
        before=none, step="x.requires_grad_().register_hook(lambda _: (None,)[step == 12])"
    )

    made = programs.ended(code=1)

    assert made.step.boundary == "backward" and made.throughput.steps == 12
    assert "after 12 steps, in the backward pass." in made.headline


def test_a_recorded_part_of_a_program_says_where_it_failed_and_nothing_of_exit_zero(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for number, error in enumerate((ValueError("secret"), SystemExit(0))):
        with pytest.raises(type(error)), feedline.record(f"run{number}"):
            raise error
    failed, left = (feedline.load(f"run{number}").report for number in range(2))

    assert failed.run.ended_by == "ValueError" and failed.run.ended_at.startswith(
        "***/test_nothing_came.py:"
    )
    assert (left.run.exit_code, left.headline) == (0, "")


def test_what_an_ending_keeps_of_an_exception():
    def raised(error: BaseException) -> Ending:
        try:
            raise error
        except BaseException as caught:
            return Ending.of(caught)

    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert [
        raised(error).exit_code
        for error in (SystemExit(None), SystemExit("text"), KeyboardInterrupt(), Odd())
    ] == [0, 1, 130, 1]
    assert raised(OSError(28, "/home/me/secret")).by == f"OSError ({os.strerror(28)})"
    assert (
        raised(ValueError("/home/me/secret")).at.partition(":")[0].endswith("test_nothing_came.py")
    )
    assert Ending.of(None) == Ending(0)
    assert raised(RuntimeError("received 0 items of ancdata")).by == (
        "RuntimeError (too many open files: batches that are kept)"
    )
    in_worker = (
        "Caught ValueError in DataLoader worker process 1.\nOriginal Traceback (most "
        "recent call last):\n"
    )
    library = '  File "/x/site-packages/torch/a.py", line 5, in f\n'
    assert raised(
        ValueError(
            in_worker + library + '  File "/home/me/own.py", line 12, in __getitem__\n    secret'
        )
    ).at.endswith("own.py:12")


def test_an_ending_blames_only_what_the_exception_was_raised_from():
    worker = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    def after(first: Exception, second: Exception, *cause: BaseException | None) -> Ending:
        try:
            try:
                raise first
            finally:
                if cause:
                    raise second from cause[0]
                raise second
        except Exception as caught:
            return Ending.of(caught)

    named = after(worker, RuntimeError("exited unexpectedly"), worker)
    assert named.by == "RuntimeError, because a DataLoader worker was killed (Killed)"
    assert named.killed == 7
    # a second try, without workers
    retried = after(worker, ValueError())
    assert (retried.by, retried.killed) == ("ValueError", 0)
    full, why = OSError(28, "/home/me/secret"), os.strerror(28)
    assert after(full, ValueError()).by == f"ValueError ({why})"
    assert after(full, ValueError(), None).by == "ValueError"
