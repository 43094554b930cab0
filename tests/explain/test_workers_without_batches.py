"""A stream that has fewer parts than there are workers: what is said of workers is of those that
get some.
"""

import itertools
import time
from dataclasses import replace

import pytest
import torch
from measure.made_up_records import MadeUp
from rules.made_up import made_up_facts, waiting
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import feedline
from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.reports_of_run import recorded_report, training_input
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.view.cpus import queueing
from feedline.analysis.measure.batch_making import _busy_shares, _without_batches
from feedline.analysis.measure.clues import Parts
from feedline.analysis.report import phrases, terminal
from feedline.analysis.rules import INPUT, OTHERWISE
from feedline.analysis.rules.input import too_few_workers, workers_without_data
from feedline.analysis.rules.input.workers_without_data import _RULE_ID
from feedline.profiler.events import Flag, Stage, batch_key
from feedline.profiler.store.trainings import open_run

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create 4 worker processes"
)  # on fewer CPUs


class Shards(IterableDataset):
    """Two shards, of which each worker takes its own."""

    def __iter__(self):
        about = get_worker_info()
        for _ in range(about.id, 2, about.num_workers):
            for number in range(160):
                time.sleep(0.004)
                yield torch.ones(10), number % 3


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards") / "run"
    net = torch.nn.Linear(10, 3)
    optimizer = torch.optim.SGD(net.parameters())
    with feedline.record(folder, strict=True):
        for images, labels in DataLoader(Shards(), batch_size=8, num_workers=4):
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
    return recorded_report(open_run(folder))


def test_workers_that_never_made_a_batch_are_named_before_the_others_are_called_busy(report):
    assert (report.workers.processes, report.workers.without_batches) == (4, 2)
    assert phrases.workers(report.workers)[:2] == [
        "2 of 4 workers never made a batch",
        f"the others busy {100 * report.workers.busy_share:.1f} %",
    ]
    assert "2 of 4 workers never made a batch" in terminal.render(report)


def test_no_finding_advises_more_of_them_and_each_has_it_as_evidence(report):
    of_input = {rule.rule_id for rule in (*INPUT, *OTHERWISE)}
    asking = [
        finding
        for finding in report.findings
        if finding.rule_id in of_input and finding.severity is not Severity.INFO
    ]

    assert all(finding.evidence[0].id == "idle_workers" for finding in asking)
    assert not any("num_workers" in finding.settings for finding in report.findings)


def test_more_workers_are_advised_only_where_those_that_are_there_get_batches():
    facts = {"sample": {"dataset": (0.5, 0.0, 20.0)}, "settings": {"num_workers": 2}}

    assert "num_workers" in too_few_workers._check(waiting(**facts)).settings
    assert too_few_workers._check(waiting(**facts, maker={"without_batches": 1})) is None


def stream(wait: float = 60.0, without: int = 2, **settings: object) -> RuleInputs:
    """A stream whose batches take 150 ms to make, beside 100 ms of the rest of the step."""
    return waiting(
        wait,
        sample={"dataset": (4.0, 0.0, 0.0)},
        maker={"without_batches": without},
        settings={"map_style": False, **settings},
    )


def test_a_stream_of_too_few_parts_is_a_finding_where_that_costs():
    finding = workers_without_data._check(stream())

    assert finding.message == "2 of 4 workers never made a batch"
    assert finding.fix.startswith("Give each worker a part of the data")
    assert finding.fix_more[-1] == "Or set num_workers=2: the others only take memory."
    told = diagnose(stream())
    assert told[0].rule_id == _RULE_ID and told[0].evidence[0].id == "idle_workers"


def test_batches_that_the_only_worker_hands_over_late_are_its_shortage():
    """Its two threads share one GIL: it makes the next batch while one is to be sent."""
    facts = stream(without=3)
    late = replace(facts, step=replace(facts.step, waits={"handover": facts.step.stages["wait"]}))

    assert workers_without_data._check(late).cost_s == pytest.approx(0.06)


def test_it_says_how_many_shards_there_are_and_speaks_the_language_of_the_library():
    finding = workers_without_data._check(stream(dataset_shards=2, dataset_library="datasets"))

    assert finding.message == "2 of 4 workers never made a batch: the stream has 2 shards"
    assert "to_iterable_dataset(num_shards=...)" in finding.fix


def test_it_is_silent_where_all_have_data_where_it_costs_nothing_and_of_a_list():
    assert workers_without_data._check(stream(without=0)) is None
    assert workers_without_data._check(stream(0.5)) is None
    assert workers_without_data._check(stream(map_style=True)) is None
    assert diagnose(made_up_facts(maker={"without_batches": 2}))[0].rule_id == "compute_bound"


def test_where_samples_wait_for_a_cpu_those_that_are_free_decide():
    """Two workers beside the step fill two CPUs, until one of them has nothing to do any more."""
    waits = waiting(
        60.0,
        sample={"dataset": (3.0, 3.0, 0.0)},
        maker={"without_batches": 2},
        settings={"map_style": False},
    )
    assert waits.cpus is not None and queueing(waits)

    assert workers_without_data._check(waits).severity is Severity.HIGH
    full = replace(waits.cpus, own=waits.cpus.allowed, free=0.0)
    assert workers_without_data._check(replace(waits, cpus=full)) is None
    assert workers_without_data._check(replace(waits, cpus=None)) is None


def test_one_whose_part_ends_early_has_nothing_to_do_until_the_others_are_done():
    """Both make batches all the time, but one of them for a third of it."""
    short, long, never, first = (
        MadeUp(role="worker", loader=0, worker=worker) for worker in range(4)
    )
    for worker, end in ((short, 30), (long, 90)):
        for start in range(0, end, 10):
            worker.fetched(start, start + 10, start // 10)
    short.span(Stage.FETCH, 30, 30, number=batch_key(0, 3), flags=Flag.END)
    never.span(Stage.FETCH, 0, 1, number=batch_key(0, 2), flags=Flag.END)
    first.span(Stage.IDLE, 0, 1, number=batch_key(0, 3))  # it is still at its first batch
    workers = [one.process() for one in (short, long, never, first)]

    assert _busy_shares(workers, 0) == (pytest.approx(120 / 180), pytest.approx(60 / 180))
    assert _without_batches(workers) == 1


def test_workers_that_forgot_windows_are_as_busy_as_in_those_that_they_kept():
    """One makes a batch in 6 of 10 ns, in four windows of ten batches."""
    worker = MadeUp(role="worker", loader=0, worker=0)
    for batch in range(40):
        for stage, begin, end in ((Stage.IDLE, 0, 4), (Stage.FETCH, 4, 10)):
            worker.span(
                stage,
                10 * batch + begin,
                10 * batch + end,
                number=batch_key(0, batch),
                window=(0, 1, 3, 2)[batch // 10],
            )

    for stride in (1, 2):
        shares = _busy_shares([worker.process(stride)], 0)
        assert shares == (pytest.approx(0.6, abs=0.02), pytest.approx(0.4, abs=0.02))


def test_uneven_parts_are_a_finding_where_the_largest_one_holds_the_others_up():
    uneven = replace(stream(without=0), worker_parts=Parts(most=700, least=20, as_workers=1.4))

    finding = workers_without_data._check(uneven)

    assert finding.message.endswith("700 samples the largest, 20 the smallest")
    assert finding.more == ["a pass takes as long as with 1.40 workers that have even parts"]
    assert finding.fix.startswith("Give each worker as many samples")
    nearly = replace(uneven, worker_parts=Parts(most=250, least=200, as_workers=3.5))
    assert workers_without_data._check(nearly) is None


class Uneven(IterableDataset):
    """A part of 160 samples, and one of 16."""

    def __iter__(self):
        yield from (torch.ones(10) for _ in range((160, 16)[get_worker_info().id]))


def test_samples_of_workers_are_counted_in_passes_that_all_of_them_ended(tmp_path):
    net = torch.nn.Linear(10, 3)
    optimizer = torch.optim.SGD(net.parameters())
    counted = []
    for batches in (3, 100):
        folder = tmp_path / f"{batches}"
        with feedline.record(folder, strict=True):
            for batch in itertools.islice(DataLoader(Uneven(), 8, num_workers=2), batches):
                net(batch).mean().backward()
                optimizer.step()
        counted.append(training_input(open_run(folder)).facts.worker_parts)

    assert counted == [None, Parts(most=160, least=16, as_workers=1.1)]
