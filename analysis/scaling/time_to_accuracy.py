"""When a training is done, not how many samples it reads: more ranks make larger batches, of which each sample teaches less."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    """What the user knows of the training's gradient noise.

    Attributes:
        critical_batch: Bcrit, samples: the gradient noise scale.
        fewest_steps: Smin, optimizer steps of an endlessly large batch; None: only ratios can be given.
    """

    critical_batch: float
    fewest_steps: float | None = None


def steps_factor(noise: Noise, ranks: int, batch: float) -> float:
    """S / Smin = 1 + Bcrit / (N b), from (S / Smin - 1)(E / Emin - 1) = 1 with E = S N b and Bcrit = Emin / Smin: McCandlish, Kaplan,
    Amodei and others, An Empirical Model of Large-Batch Training, 2018 (arXiv:1812.06162), section 2."""
    return 1 + noise.critical_batch / (ranks * batch)


def time_to_accuracy(noise: Noise, ranks: int, batch: float, step_s: float) -> float:
    """T(N) = Smin (1 + Bcrit / (N b)) t_step(N). Returns seconds; in units of Smin steps (as if Smin were 1) where Smin is not known.

    Args:
        batch: b, samples of one rank in one step.
    """
    return (noise.fewest_steps or 1.0) * steps_factor(noise, ranks, batch) * step_s
