"""What a prediction needs to know of a step: what one rank does alone, and what the link between ranks gives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bucket:
    """A collective that runs beside the backward pass.

    Attributes:
        ready_s: when a rank alone hands it over, after the begin of the step.
        nbytes: the whole message, S.
    """

    ready_s: float
    nbytes: float


@dataclass(frozen=True)
class StepProfile:
    """The median step of the fewest ranks.

    Attributes:
        backward_s: begin and end of the (last) backward, after the begin of the step.
        buckets: in order of ``ready_s``.
        blocking: bytes of each collective that the step stands still for, e.g. buffers in the forward.
        jitter_s: standard deviation of a rank's own time per step, without steps far off.
    """

    step_s: float
    backward_s: tuple[float, float]
    buckets: tuple[Bucket, ...]
    blocking: tuple[float, ...] = ()
    jitter_s: float = 0.0

    @property
    def nbytes(self) -> float:
        """Of all buckets."""
        return sum(bucket.nbytes for bucket in self.buckets)


@dataclass(frozen=True)
class Ring:
    """The ring that moves the bytes, as measured in a run.

    Attributes:
        bandwidth: B, bus bandwidth in B/s, while the run's own computing goes on.
        low, high: a tenth of the steps had less, a tenth more.
        alpha_s: latency of one of the 2 (n - 1) rounds of a ring.
        slots: collectives that are under way at once and share the link: two on gloo (its threads), one on NCCL.
        alpha_from: how alpha is known.
    """

    bandwidth: float
    low: float
    high: float
    alpha_s: float
    slots: int
    alpha_from: str = ""


def ring_s(nbytes: float, ranks: int, bandwidth: float, alpha_s: float) -> float:
    """Seconds of a ring all-reduce: 2 (n - 1) alpha + 2 (n - 1) / n S / B (Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005)."""
    return 2 * (ranks - 1) * alpha_s + 2 * (ranks - 1) / ranks * nbytes / bandwidth
