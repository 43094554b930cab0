"""What the training's loader makes in the main process, beside a loader for evaluation."""

import torch
from measure.made_up_records import MadeUp
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.measure.costs import BatchProducers
from feedline.profiler.events import Stage
from feedline.profiler.store.trainings import open_run

EPOCHS, BATCHES = 3, 8


def test_batches_of_another_loader_with_the_same_numbers_do_not_count():
    """Both loaders number their batches from 0; those of the training are made before 50 ns."""
    main = MadeUp()
    for batch in range(4):
        main.fetched(10 * batch, 10 * batch + 5, batch)
        main.fetched(10 * batch + 60, 10 * batch + 65, batch, loader=1)
    main.fetched(100, 105, 4)
    makers = BatchProducers([main.process()], frozenset([0]), since=50)

    assert makers.sums(Stage.FETCH)["records"] == makers.batches == 1


class Stream(IterableDataset):
    """Samples whose number is not known: the loader asks once more than there are batches."""

    def __iter__(self):
        return iter(torch.zeros(4, 4))


def test_the_ends_of_an_evaluation_are_not_taken_off_the_batches_of_the_training(tmp_path):
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    training = DataLoader(TensorDataset(torch.randn(2 * BATCHES, 4)), batch_size=2)
    evaluation = DataLoader(Stream(), batch_size=2)
    with feedline.record(tmp_path / "run", strict=True):
        for _ in range(EPOCHS):
            for (batch,) in training:
                optimizer.zero_grad()
                net(batch).mean().backward()
                optimizer.step()
            with torch.no_grad():
                for batch in evaluation:
                    net(batch)

    assert recorded_report(open_run(tmp_path / "run")).workers.batches == EPOCHS * BATCHES
