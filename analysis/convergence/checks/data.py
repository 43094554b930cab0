"""What the ranks draw from their data set."""

import numpy as np

from feedline.analysis.convergence.checks.gradients import FEWEST, SAME
from feedline.analysis.convergence.checks.setup import listed, ratio_of
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.finding import Evidence, Finding, Severity
from feedline.analysis.quantities import count


def whole_data(recorded: Recorded) -> Finding | None:
    """Each of several ranks draws the whole data set in an epoch."""
    for sampler in listed(recorded, "samplers"):
        drawn, of = sampler.get("samples"), sampler.get("of")
        if recorded.ranks < 2 or not drawn or not of or drawn < of or not sampler.get("shuffles"):  # an evaluation may read all of it
            continue
        if "Distributed" in str(sampler.get("kind")):
            continue
        ratio = ratio_of(recorded)
        apart = len(ratio) >= FEWEST and float(np.abs(ratio - 1).max()) > SAME
        order = (
            "in an order of its own, so that its gradients are good, but an epoch"
            if apart
            else "and nothing shows that it is in an order of its own; an epoch"
        )
        return Finding(
            "whole_data_on_every_rank",
            Severity.INFO if apart else Severity.HIGH,
            says=f"each of {recorded.ranks} ranks draws all {count(of)} samples of its data set in an epoch "
            f"({sampler.get('kind')}), {order} "
            f"of all ranks is {recorded.ranks} epochs, and schedules in epochs are as much too long. "
            "It is right where the program gave each rank a part of its own",
            evidence=[
                Evidence("epoch_samples_of_rank", "samples drawn by a rank in an epoch", drawn, "samples"),
                Evidence("dataset_samples", "in its data set", of, "samples"),
            ],
            fix="DataLoader(..., sampler=DistributedSampler(dataset)), and sampler.set_epoch(epoch) each epoch",
            disproof="data sets of the ranks that have no sample in common",
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
            says=f"{sampler.get('kind')} was gone through {count(epochs)} times in one and the same order: set_epoch was not called, "
            "so every batch holds the same samples in every epoch",
            evidence=[Evidence("epochs", "epochs", epochs, "epochs"), Evidence("orders", "orders", 1, "orders")],
            fix="sampler.set_epoch(epoch) before each epoch's loop",
            disproof="indices that differ between two epochs",
        )
    return None
