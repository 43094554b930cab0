"""Which updates of one process are one training, and which are several; and what each of them is
told to have done.
"""

import copy
import functools
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from measure.made_up_records import MadeUp
from torch.utils.data import DataLoader

from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler import message
from feedline.profiler.events import Stage
from feedline.profiler.session import session
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.trainings import _first_optimizers, open_run, split_run

sys.path.insert(0, str(Path(__file__).with_name("programs")))
from trainings import FEATURES, data, evaluate, fit, folds, job, net, update  # noqa: E402

PREPARED_S = 0.4
SGD = functools.partial(torch.optim.SGD, lr=0.1)


def roles(done):
    """(role, batches) of the loaders of each training."""
    return [[(loader.role, loader.batches) for loader in one.loaders] for one in done.reports]


def test_jobs_of_a_sweep_are_trainings_with_their_own_figures(record):
    def sweep():
        job(0.1, 80)
        job(0.2, 120, epochs=3)

    done = record(sweep)

    assert done.counts == [(20, 160), (45, 360)]
    assert [
        (one.convergence.updates, one.convergence.samples, one.convergence.samples_per_epoch)
        for one in done.reports
    ] == [
        (20, 160, 80),
        (45, 360, 120),
    ]
    assert [one.run.optimizer for one in done.reports] == ["SGD, lr 0.1", "SGD, lr 0.2"]
    assert roles(done) == [
        [("training", 20), ("evaluation", 5)],
        [("training", 45), ("evaluation", 8)],
    ]
    for one in done.reports:
        (loss,) = [curve for curve in one.convergence.curves if curve.name == "train loss"]
        (rate,) = [curve for curve in one.convergence.curves if curve.name == "lr"]
        assert loss.updates[0] == 0 and rate.values == [0.1 if one is done.reports[0] else 0.2]
        assert one.step.evaluation_s > 0
        assert sum(one.step.stages.values()) == pytest.approx(one.step.mean_s)


def test_the_time_between_two_trainings_is_in_neither(record):
    def sweep():
        job(0.1, 80)
        time.sleep(PREPARED_S)
        job(0.1, 80)

    done = record(sweep)

    first, second = (run.ranks[0].slice for run in done.runs)
    assert second.begin - first.end > PREPARED_S * 1e9
    for one, own in zip(done.reports, (first, second), strict=True):
        assert one.run.duration_s == pytest.approx((own.end - own.begin) / 1e9)
        in_steps = sum(
            steps * mean
            for steps, mean in zip(one.step.series.steps, one.step.series.wall_s, strict=True)
        )
        assert in_steps + one.step.evaluation_s < one.run.duration_s * 1.01


def test_folds_whose_loaders_go_on_under_one_number_are_trainings(record):
    done = record(folds)

    assert done.counts == [(20, 160)] * 5
    assert [[(loader.role, loader.batches) for loader in one.loaders] for one in done.reports] == [
        [("training", 20), ("evaluation", 2)]
    ] * 5


def test_workers_are_counted_where_they_worked(record):
    def sweep():
        for samples, workers in (
            (64, 2),
            (32, 1),
            (32, 1),
        ):  # the third loader goes on under the second one's number
            model = net()
            fit(
                model,
                SGD(model.parameters()),
                DataLoader(data(samples), batch_size=8, num_workers=workers),
            )

    done = record(sweep)

    assert [
        (one.workers.processes, one.workers.batches, one.workers.samples) for one in done.reports
    ] == [
        (2, 8, 64),
        (1, 4, 32),
        (1, 4, 32),
    ]
    assert not any("left no records" in note for one in done.reports for note in one.notes)
    counted = [sum(count for _, count in one.workers.sample_wall_histogram) for one in done.reports]
    assert counted == [64, 32, 32]  # the second and the third share one worker's file


def test_each_training_has_the_file_traffic_of_its_own_batches(record, tmp_path):
    (tmp_path / "sample").write_bytes(bytes(1 << 16))

    class Files(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return torch.frombuffer(
                bytearray((tmp_path / "sample").read_bytes()), dtype=torch.float32
            )[:FEATURES], 0

    def sweep():
        for _ in range(2):
            model = net()
            fit(model, SGD(model.parameters()), DataLoader(Files(), batch_size=8))

    read = [int(run.ranks[0].main.of(Stage.TRAFFIC)["nbytes"].sum()) for run in record(sweep).runs]
    assert read == [pytest.approx(64 << 16, rel=0.1)] * 2


def test_what_ended_the_last_training_is_not_said_of_earlier_ones(record, tmp_path):
    def sweep():
        job(0.1, 80)
        job(0.2, 80)

    record(sweep)
    run = open_run(tmp_path / "run")
    end = {"exit_code": 1, "ended_by": "RuntimeError", "ended_at": "train.py:31"}
    manifest = replace(run.ranks[0].manifest, killed={"pid": 7, "kills": 1}, **end)
    manifest.write(tmp_path / "run" / "rank0")

    first, last = map(recorded_report, split_run(open_run(tmp_path / "run")))

    assert "killed_worker" not in [finding.rule_id for finding in first.findings]
    assert (first.run.exit_code, first.run.ended_by, first.run.ended_at) == (0, "", "")
    assert last.findings[0].rule_id == "killed_worker"
    assert last.run.ended_by == "RuntimeError" and last.run.ended_at == "train.py:31"


def test_new_models_over_one_loader_are_trainings(record):
    def sweep():
        loader = DataLoader(data(80), batch_size=8)
        models = [net() for _ in range(3)]
        optimizers = [
            SGD(model.parameters()) for model in models
        ]  # all made before the first training
        for model, optimizer in zip(models, optimizers):
            fit(model, optimizer, loader, epochs=2)

    assert record(sweep).counts == [(20, 160)] * 3


def test_trainings_on_tensors_in_memory_are_told_apart(record):
    def sweep():
        x, y = data(64).tensors
        for updates in (20, 21):
            model = net()
            optimizer = SGD(model.parameters())
            for _ in range(updates):
                update(model, optimizer, x, y)

    assert [steps for steps, _ in record(sweep).counts] == [20, 21]


def test_what_is_looked_at_before_a_training_is_its_own(record):
    def sweep():  # as Lightning does: a few batches of evaluation first
        for _ in range(2):
            model = net()
            optimizer, held_out = SGD(model.parameters()), DataLoader(data(40), batch_size=8)
            evaluate(model, held_out)
            fit(model, optimizer, DataLoader(data(80), batch_size=8), epochs=1)

    done = record(sweep)

    assert [[(loader.role, loader.batches) for loader in one.loaders] for one in done.reports] == [
        [("evaluation", 5), ("training", 10)]
    ] * 2


@pytest.mark.parametrize(
    "then",
    [lambda model: model.parameters(), lambda model: model[0].parameters()],
    ids=["all", "other layers"],
)
def test_a_warm_up_and_what_follows_with_another_optimizer_are_one_training(record, then):
    def train():
        model, loader = net(), DataLoader(data(80), batch_size=8)
        fit(model, SGD(model[2].parameters()), loader)
        fit(model, torch.optim.Adam(then(model)), loader, epochs=2)

    done = record(train)

    assert done.counts == [(30, 240)]
    assert done.runs[0].part is None


@pytest.mark.parametrize("samples", [80, 8])
def test_an_ensemble_that_is_trained_in_turn_is_one_training(record, samples):
    def train():
        models = [net() for _ in range(3)]
        optimizers = [SGD(model.parameters()) for model in models]
        for x, y in DataLoader(data(samples), batch_size=8):
            for model, optimizer in zip(models, optimizers):
                update(model, optimizer, x, y)

    assert record(train).counts == [(samples // 8, samples)]


def test_models_that_take_turns_by_epochs_are_one_training(record):
    def train():
        models, loader = [net(), net()], DataLoader(data(40), batch_size=8)
        optimizers = [SGD(model.parameters()) for model in models]
        for _ in range(2):
            for model, optimizer in zip(models, optimizers):
                fit(model, optimizer, loader)

    assert len(record(train).runs) == 1


def test_an_optimizer_for_each_parameter_is_one_training(record):
    def train():
        model = net()
        optimizers = {parameter: SGD([parameter]) for parameter in model.parameters()}

        def step(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for x, y in DataLoader(data(8), batch_size=8):
            torch.nn.functional.cross_entropy(model(x), y).backward()

    assert record(train).counts == [(1, 8)]


@pytest.mark.long
def test_each_gan_of_a_sweep_is_one_training(record):
    def sweep():
        for _ in range(18):
            maker, judge, loader = (
                torch.nn.Linear(4, FEATURES),
                torch.nn.Linear(FEATURES, 1),
                DataLoader(data(24), batch_size=8),
            )
            optimizers = SGD(judge.parameters()), SGD(maker.parameters())
            for x, _ in loader:
                for sign, optimizer in zip((1, -1), optimizers):
                    optimizer.zero_grad()
                    (sign * (judge(maker(torch.randn(8, 4))).mean() - judge(x).mean())).backward()
                    optimizer.step()

    assert record(sweep).counts == [(3, 24)] * 18


def test_copies_that_are_trained_within_a_training_are_part_of_it(record):
    def train():  # meta-learning
        model, (x, y) = net(), data(64).tensors
        outer = torch.optim.Adam(model.parameters())
        for _ in range(40):
            task = copy.deepcopy(model)
            inner = SGD(task.parameters())
            for _ in range(3):
                update(task, inner, x, y)
            for parameter, own in zip(model.parameters(), task.parameters()):
                parameter.grad = parameter.data - own.data
            outer.step()

    done = record(train)

    assert len(done.runs) == 1
    assert len(done.runs[0].ranks[0].main.of(Stage.SUMS, Stage.BEGUN)) < 1500


def test_a_model_in_the_place_of_one_that_was_freed_is_another(record):
    def sweep():
        loader = DataLoader(data(40), batch_size=8)
        places = set()
        for _ in range(6):
            model = net()
            places.add(id(model[0].weight))
            fit(model, SGD(model.parameters()), loader)
            del model
        return places

    assert record(sweep).counts == [(5, 40)] * 6


def test_parameters_can_be_swapped_after_an_update(record):
    def train():  # torch refuses to swap a tensor that somebody refers to weakly
        model = net()
        fit(model, SGD(model.parameters()), DataLoader(data(40), batch_size=8))
        weight = model[0].weight
        model.zero_grad()
        torch.utils.swap_tensors(weight, torch.nn.Parameter(torch.zeros(32, FEATURES)))

    record(train)


@pytest.mark.long
def test_sums_are_exact_where_windows_were_forgotten(record, monkeypatch):
    monkeypatch.setenv("FEEDLINE_RESTS", "0")
    monkeypatch.setattr(session, "Segment", functools.partial(Segment, capacity_bytes=256 * 1024))

    def sweep():
        loader = DataLoader(data(401), batch_size=4)
        for samples, epochs in ((1600, 2), (602, 1), (0, 3), (0, 1), (100, 1)):
            own = DataLoader(data(samples), batch_size=4) if samples else loader
            model = net()
            fit(model, SGD(model.parameters()), own, epochs)

    done = record(sweep)

    mains = [run.ranks[0].main for run in done.runs]
    assert mains[0].stride > 1
    assert [int(main.totals[Stage.OPTIMIZER, 0]) for main in mains] == [800, 151, 303, 101, 25]
    assert [int(main.totals[Stage.NEXT, 5]) for main in mains] == [3200, 602, 1203, 401, 100]
    assert [int(main.totals[Stage.FETCH, 5]) for main in mains] == [3200, 602, 1203, 401, 100]
    assert [one.convergence.updates for one in done.reports] == [800, 151, 303, 101, 25]


def test_each_training_counts_its_own_operations(record):
    def sweep():
        for width in (8, 64, 16):
            model = torch.nn.Sequential(torch.nn.Linear(FEATURES, width), torch.nn.Linear(width, 3))
            fit(model, SGD(model.parameters()), DataLoader(data(80), batch_size=8), 2)
        model = net()
        fit(model, SGD(model.parameters()), DataLoader(data(16), batch_size=8), 1)

    done = record(sweep)

    counted = [one.step.flop for one in done.reports]
    assert [flop.forward for flop in counted[:3]] == [
        2 * 8 * (FEATURES * width + width * 3) for width in (8, 64, 16)
    ]
    assert counted[3] is None
    assert [hook.reason for hook in done.reports[3].hooks if hook.name == "FLOP"] == [
        message.TOO_FEW_UPDATES
    ]


def test_networks_that_take_turns_count_one_step_of_both(record):
    def turns():
        first, second = torch.nn.Linear(FEATURES, 4), torch.nn.Linear(FEATURES, 32)
        optimizers = SGD(first.parameters()), SGD(second.parameters())
        for x, y in DataLoader(data(160), batch_size=8):
            for model, optimizer in zip((first, second), optimizers, strict=True):
                update(model, optimizer, x, y)

    done = record(turns)

    assert [one.step.flop.forward for one in done.reports] == [2 * 8 * FEATURES * (4 + 32)]


def test_records_that_say_of_each_training_that_it_belongs_to_an_earlier_one_are_one_training():
    """As damage leaves them: the first one is missing."""
    main = (
        MadeUp()
        .span(Stage.BEGUN, 0, 10, number=1, extra=0)
        .span(Stage.BEGUN, 20, 30, number=2, extra=0)
    )

    assert _first_optimizers(SimpleNamespace(main=main.process())) == []
