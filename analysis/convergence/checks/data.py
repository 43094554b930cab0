"""What the ranks draw from their dataset."""

import numpy as np

from feedline.analysis.convergence.checks.gradients import FEWEST, SAME
from feedline.analysis.convergence.checks.setup import listed, ratio_of
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.formatting import count
from feedline.analysis.ledger.finding import Evidence, Finding, Severity


def whole_data(recorded: Recorded) -> Finding | None:
    """Each of several ranks draws the whole dataset in an epoch."""
    for sampler in listed(recorded, "samplers"):
        drawn, of = sampler.get("samples"), sampler.get("of")
        if recorded.ranks < 2 or not drawn or not of or drawn < of or not sampler.get("shuffles"):  # an evaluation may read all of it
            continue
        if "Distributed" in str(sampler.get("kind")):
            continue
        ratio = ratio_of(recorded)
        apart = len(ratio) >= FEWEST and float(np.abs(ratio - 1).max()) > SAME
        order = "in different orders" if apart else "perhaps in the same order"
        return Finding(
            "whole_data_on_every_rank",
            Severity.INFO if apart else Severity.HIGH,
            message=f"each of the {recorded.ranks} ranks draws all {count(of)} samples of its dataset per epoch ({sampler.get('kind')}), "
            f"{order}: one epoch trains on {recorded.ranks} times the data, and schedules that count epochs run {recorded.ranks} times too "
            "long. Ignore this if the program gives each rank its own part of the data",
            evidence=[
                Evidence("epoch_samples_of_rank", "samples that a rank draws per epoch", drawn, "samples"),
                Evidence("dataset_samples", "samples in its dataset", of, "samples"),
            ],
            fix="Replace shuffle=True with sampler=DistributedSampler(dataset), and call sampler.set_epoch(epoch) before each epoch.",
            how_to_check="Collect the samples that each rank draws in an epoch. If no sample is on two ranks, this finding is wrong.",
        )
    return None


def missing_set_epoch(recorded: Recorded) -> Finding | None:
    """A DistributedSampler that shuffles the same way in every epoch."""
    for sampler in listed(recorded, "samplers"):
        epochs, distinct = sampler.get("epochs") or 0, sampler.get("distinct")
        if not sampler.get("shuffles") or "Distributed" not in str(sampler.get("kind")) or epochs < 2 or distinct != 1:
            continue
        return Finding(
            "missing_set_epoch",
            Severity.LOW,
            message=f"{sampler.get('kind')} repeated the same order for {count(epochs)} epochs: set_epoch() was not called, so batches "
            "hold the same samples in every epoch",
            evidence=[Evidence("epochs", "epochs", epochs, "epochs"), Evidence("orders", "different orders", 1, "orders")],
            fix="Call sampler.set_epoch(epoch) before each epoch.",
            how_to_check="Print the indices of two epochs. If they differ, this finding is wrong.",
        )
    return None
