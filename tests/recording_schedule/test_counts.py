"""Steps, samples, epochs, evaluations and checkpoints of trainings with short steps are exact,
though few steps are recorded in full.
"""

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from recording_schedule.resting import rested
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.trainings import open_run, split_run
from feedline.profiler.taps import recording_schedule

STEPS = 1200
PROGRAM = Path(__file__).parent / "programs" / "killed.py"


@pytest.fixture(autouse=True)
def short_on_a_busy_machine_too(monkeypatch):
    monkeypatch.setattr(recording_schedule, "_LONG_NS", 10**12)


def net():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4)


def data(samples):
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(samples, 8, generator=generator),
        torch.randint(4, (samples,), generator=generator),
    )


def step(model, optimizer, x, y):
    cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_without_a_loader_has_every_step(recorded, monkeypatch, compiled):
    monkeypatch.setattr(recording_schedule, "_has_compiled", lambda: compiled)
    model = net()
    optimizer, (x, y) = torch.optim.SGD(model.parameters(), lr=0.1), data(16).tensors

    report, main = recorded(lambda: [step(model, optimizer, x, y) for _ in range(STEPS)])

    assert report.throughput.steps == STEPS
    assert report.throughput.steps_in_detail == STEPS - rested(main) < STEPS / 2
    assert report.convergence.updates == STEPS
    assert report.convergence.samples is None


@pytest.mark.parametrize("announced", [True, False])
def test_rollouts_are_parts_of_no_step(recorded, announced):
    model = net()
    optimizer, (x, y) = torch.optim.SGD(model.parameters(), lr=0.1), data(16).tensors

    def train():
        for _ in range(STEPS // 100):
            if announced:
                model.train(False)
            with torch.no_grad():
                for _ in range(20):
                    model(x)
                    time.sleep(0.0005)
            model.train()
            for _ in range(100):
                step(model, optimizer, x, y)

    report, main = recorded(train)

    assert report.throughput.steps == STEPS
    assert report.step.evaluation_s > 0.9 * 20 * 0.0005 * STEPS / 100
    assert (rested(main) > STEPS / 4) is announced  # a loop that nothing announces would be missed


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_has_every_batch_sample_and_epoch(recorded, workers):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data(2410), batch_size=4, num_workers=workers)  # the last batch has 2

    def train():
        for _ in range(3):
            for x, y in loader:
                step(model, optimizer, x, y)

    report, main = recorded(train)

    assert rested(main) > 300
    assert (report.throughput.steps, report.throughput.samples) == (3 * 603, 3 * 2410)
    assert [(one.batches, one.samples) for one in report.loaders] == [(3 * 603, 3 * 2410)]
    assert (report.workers.batches, report.workers.samples) == (3 * 603, 3 * 2410)
    assert len(main.of(Stage.EPOCH)) == 3
    assert (main.of(Stage.NEXT)["flags"] & Flag.END != 0).sum() == 3
    assert report.convergence.samples == 3 * 2410


@pytest.mark.long
def test_accumulation_makes_one_step_of_four_batches(recorded):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        for number, (x, y) in enumerate(DataLoader(data(4000), batch_size=2), 1):
            cross_entropy(model(x), y).backward()
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()

    report, main = recorded(train)

    assert rested(main) > 50
    assert (report.throughput.steps, report.throughput.samples) == (500, 4000)


@pytest.mark.parametrize("critics", [1, pytest.param(3, marks=pytest.mark.long)])
def test_two_optimizers_make_the_steps_of_a_full_recording(recorded, monkeypatch, critics):
    generator, critic = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-3) for model in (generator, critic)]

    def train():
        for _ in range(600):
            for _ in range(critics):
                critic(torch.ones(4, 8)).mean().backward()
                optimizers[1].step()
            critic(generator(torch.ones(4, 4))).mean().backward()
            optimizers[0].step()

    report, main = recorded(train)
    monkeypatch.setenv(recording_schedule._VARIABLE, "0")
    full, every = recorded(train)

    assert rested(main) > 100
    assert not rested(every)
    assert report.throughput.steps == full.throughput.steps == 600 * critics
    assert report.convergence.updates == 600 * (critics + 1)


@pytest.mark.long
def test_an_actor_that_is_updated_twice_in_every_second_step_makes_no_more_steps(
    recorded, monkeypatch
):
    """As in SAC: the critic every time, then every second time the actor and the temperature,
    twice. With many short rests.
    """
    monkeypatch.setattr(recording_schedule, "_BUDGET", 0.05)
    monkeypatch.setattr(recording_schedule, "_MIN_PAUSED_STEPS", 8)
    critic, actor = torch.nn.Linear(8, 1), torch.nn.Linear(4, 8)
    temperature = torch.zeros(1, requires_grad=True)
    of_critic, of_actor, of_temperature = (
        torch.optim.SGD(parameters, lr=1e-3)
        for parameters in (critic.parameters(), actor.parameters(), [temperature])
    )

    def train():
        for number in range(1200):
            critic(torch.ones(4, 8)).mean().backward()
            of_critic.step()
            for _ in range(2 * (number % 2)):
                critic(actor(torch.ones(4, 4))).mean().backward()
                of_actor.step()
                temperature.exp().backward()
                of_temperature.step()

    report, main = recorded(train)

    assert len(main.of(Stage.REST)) > 1
    assert report.throughput.steps == 1200


@pytest.mark.parametrize("loader", [False, True])
def test_trainings_that_follow_each_other_have_their_own_steps(tmp_path, loader):
    batches = DataLoader(data(8 * 400), batch_size=8)

    def train():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches if loader else [data(8).tensors] * 400:
            step(model, optimizer, x, y)

    with feedline.record(tmp_path / "run", strict=True):
        for _ in range(3):
            train()

    run = open_run(tmp_path / "run")
    assert rested(run.ranks[0].main) > 300
    assert [recorded_report(part).throughput.steps for part in split_run(run)] == [400, 400, 400]


def test_evaluations_and_checkpoints_are_told(recorded, tmp_path):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    evaluation, loss = DataLoader(data(40), batch_size=8), torch.nn.CrossEntropyLoss()

    def train():
        loader = DataLoader(data(8 * STEPS), batch_size=8)
        for number, (x, y) in enumerate(loader, 1):
            step(model, optimizer, x, y)
            if number % 200 == 0:
                model.eval()
                with torch.no_grad():
                    for inputs, labels in evaluation:
                        loss(model(inputs), labels)
                model.train()
            if number % 300 == 0:
                torch.save(model.state_dict(), tmp_path / "model.pt")
                feedline.metric("progress", number)

    report, main = recorded(train)

    assert rested(main) > 300
    assert (report.throughput.steps, report.throughput.samples) == (STEPS, 8 * STEPS)
    assert [(one.role, one.batches, one.samples) for one in report.loaders] == [
        ("training", STEPS, 8 * STEPS),
        ("evaluation", 30, 240),
    ]
    assert len(main.of(Stage.CHECKPOINT)) == 4
    assert report.step.evaluation_s > 0
    assert (
        len([curve for curve in report.convergence.curves if curve.name == "eval loss"][0].values)
        == 6
    )
    assert [curve for curve in report.convergence.curves if curve.name == "progress"][0].values == [
        300,
        600,
        900,
        1200,
    ]


def test_an_update_that_a_scaler_made_in_a_rest_was_not_skipped(recorded):
    model = net()
    optimizer, (x, y), scaler = (
        torch.optim.SGD(model.parameters(), lr=0.1),
        data(16).tensors,
        torch.amp.GradScaler("cpu"),
    )

    def train():
        for _ in range(STEPS):
            scaler.scale(cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()

    report, main = recorded(train)

    assert rested(main) > 300
    assert report.throughput.steps == STEPS


def test_a_fork_in_a_rest_leaves_torch_as_it_was(recorded):
    model = net()
    optimizer, (x, y) = torch.optim.SGD(model.parameters(), lr=0.1), data(16).tensors
    codes = []

    def train():
        own = torch.nn.Module.__call__.__code__
        for _ in range(STEPS):
            step(model, optimizer, x, y)
            if (
                recorder.pause is not None
                and torch.nn.Module.__call__.__code__ is not own
                and not codes
            ):
                child = os.fork()
                if not child:
                    os._exit(
                        0
                        if recorder.pause is None and torch.nn.Module.__call__.__code__ is own
                        else 1
                    )
                codes.append(os.waitpid(child, 0)[1])

    report, main = recorded(train)

    assert report.throughput.steps == STEPS
    if rested(main) and not recording_schedule._has_compiled():
        assert codes == [0]


def test_a_killed_training_has_told_of_all_but_the_last_steps(tmp_path, warm_python):
    run, said = tmp_path / "run", tmp_path / "said"

    done = warm_python.run("-m", "feedline", "run", "-q", "-o", run, PROGRAM, said, folder=tmp_path)

    assert done.returncode == -signal.SIGKILL
    main, made = open_run(run).ranks[0].main, int(said.read_text())
    found = int(main.totals[Stage.OPTIMIZER, 0]) + rested(main)
    assert made - recording_schedule._STRETCH <= found <= made
    assert rested(main) > 500
