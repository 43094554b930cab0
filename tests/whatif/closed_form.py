"""A predictor whose answers are known: the closed form of a loader and a step, without any noise."""

from dataclasses import dataclass, field

from feedline.analysis.ledger.finding import Change, PredictedRate, Refused

EXACT = 0.01  # of the rate, either side


@dataclass
class ClosedForm:
    """100 samples/s if the step waits for nothing; a worker makes ``per_worker`` of them, the CPUs
    of now ``on_cpus``.

    Attributes:
        asked: every change that was predicted, and whether with its interval.
        depth_gain: times the workers' rate with 8 batches ahead instead of 2.
        order_gain: times the rate without the order of batches.
    """

    per_worker: float = 30.0
    on_cpus: float = 1000.0
    alone: float = 25.0
    depth_gain: float = 1.0
    order_gain: float = 1.0
    refused: Refused | None = None
    asked: list[tuple[Change, bool]] = field(default_factory=list)

    def __call__(self, change: Change, interval: bool = True) -> PredictedRate | Refused:
        self.asked.append((change, interval))
        if self.refused is not None:
            return self.refused
        rate = self.rate(change)
        exact = EXACT if interval else 0.0
        return PredictedRate(30.0, rate, rate * (1 - exact), rate * (1 + exact))

    def rate(self, change: Change) -> float:
        workers = change.settings.get("num_workers", 1)
        if not workers:
            return self.alone
        depth = self.depth_gain if change.settings.get("prefetch_factor", 2) >= 8 else 1.0
        order = 1.0 if change.settings.get("in_order", True) else self.order_gain
        cpus = self.on_cpus if change.cpus is None else change.cpus * 25.0
        return min(100.0 * order, self.per_worker * workers * depth * order, cpus)
