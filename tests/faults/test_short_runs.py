"""Runs from which nothing can be told, or that ended badly: the report says so first, and gives no
confident percentage.
"""

import signal
import sys

import pytest
from truth.one_number import check, text_of

from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.report import html_report, terminal
from feedline.profiler.store.trainings import open_run

FEEDLINE = [sys.executable, "-m", "feedline"]
#: python train.py STEPS WORKERS FAILS_AT
TRAINING = """
    import os, signal, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    steps, workers, fails_at = map(int, sys.argv[1:])

    class Slow(Dataset):
        def __len__(self):
            return steps * 4

        def __getitem__(self, index):
            time.sleep(0.001)
            return torch.full((8,), float(index))

    if __name__ == "__main__":
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        for step, x in enumerate(DataLoader(Slow(), batch_size=4, num_workers=workers)):
            if step == fails_at:
                FAILS
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
"""
RAISES = "raise ValueError('secret')"
CONFIDENT = (
    "Input-bound",
    "is not the bottleneck",
    "can be saved",
    "Limits",
    "small_files",
    "too_few_workers",
)


def told(workshop, *program, code=0):
    """The report of a program, which does not contradict itself, and its text in the terminal and
    as a page.
    """
    done = workshop.recorded_warm(*program)
    assert done.returncode == code, done.stderr
    made = recorded_report(open_run(workshop.run))
    check(made)
    return made, " ".join(terminal.render(made).split()), text_of(html_report.render(made))


@pytest.mark.parametrize(("steps", "workers"), [(1, 0), (2, 2), (5, 1)])
def test_a_run_of_a_few_steps_is_too_short_to_judge(workshop, steps, workers):
    script = workshop.write("train.py", TRAINING.replace("FAILS", RAISES))

    made, *texts = told(workshop, script, steps, workers, -1)

    assert [finding.rule_id for finding in made.findings] == ["too_short"] and made.roofline is None
    for text in texts:
        assert "Too short to judge" in text and not any(words in text for words in CONFIDENT)


def test_a_program_that_updates_nothing_trained_nothing(workshop):
    script = workshop.write(
        "train.py",
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        for epoch in range(8):
            for batch in DataLoader(TensorDataset(torch.ones(32, 4)), batch_size=4):
                pass
        """,
    )

    made, *texts = told(workshop, script)

    assert [finding.rule_id for finding in made.findings] == ["nothing_trained"]
    for text in texts:
        assert "No training was seen: 64 batches came from the loader" in text and not any(
            words in text for words in CONFIDENT
        )


def test_a_crash_in_the_first_step_is_the_headline(workshop):
    script = workshop.write("train.py", TRAINING.replace("FAILS", RAISES))

    made, text, page = told(workshop, script, 40, 0, 1, code=1)

    said = "The training failed with ValueError at train.py:21 (exit code 1) after 1 step."
    assert (made.headline, made.run.ended_by) == (said, "ValueError")
    assert text.rindex(said) < text.rindex("Too short to judge") and page.index(said) < page.index(
        "Too short to judge"
    )
    assert "secret" not in (workshop.run / "rank0" / "manifest.json").read_text()


def test_a_crash_after_enough_steps_is_the_headline_above_the_verdict(workshop):
    script = workshop.write("train.py", TRAINING.replace("FAILS", RAISES))

    made, text, _ = told(workshop, script, 40, 0, 30, code=1)

    failed = "The training failed with ValueError at train.py:21 (exit code 1)"
    assert made.headline == f"{failed} after 30 steps."
    assert text.rindex(made.headline) < text.rindex(made.verdict.limit[:20])
    assert made.findings[0].rule_id not in ("too_short", "nothing_trained")


def test_a_worker_that_was_killed_is_named_with_its_signal(workshop):
    script = workshop.write(
        "train.py", TRAINING.replace("time.sleep(0.001)", "if index == 100: KILL")
    )
    # while the training waits for its batch
    kill = "time.sleep(0.5), os.kill(os.getpid(), signal.SIGKILL)"
    script.write_text(script.read_text().replace("KILL", kill, 1))

    made, *_ = told(workshop, script, 60, 1, -1, code=1)

    failed = (
        "The training failed with RuntimeError, because a DataLoader worker was killed (Killed)"
    )
    assert made.headline.startswith(f"{failed} at train.py:19 (exit code 1)")


def test_a_command_that_was_killed_is_named_with_its_signal(workshop):
    script = workshop.write(
        "train.py", TRAINING.replace("FAILS", "os.kill(os.getpid(), signal.SIGKILL)")
    )

    done = workshop.execute(
        *FEEDLINE, "run", "-o", workshop.run, "--", sys.executable, script, 40, 0, 20
    )

    assert done.returncode == 128 + signal.SIGKILL
    said = " ".join((done.stdout + done.stderr).split())
    assert "The training was killed by SIGKILL after 20 steps." in said
