"""What a batch size costs, in words."""

from feedline.analysis.convergence.model import NoiseOverTraining
from feedline.analysis.formatting import count, number

DOUBT = "The noise scale only approximates the critical batch size (Merrill et al., arXiv:2505.23971): trust only its order of magnitude"


def says(noise: NoiseOverTraining, batch: float, where: str, spent: float | None, made: float | None) -> str:
    """One sentence, without a full stop. ``where``, ``spent`` and ``made``: as where, samples_factor and updates_factor of BatchPrice."""
    if where == "unknown":
        return f"the cost of the batch of {count(batch)} is unknown: {noise.why or 'the noise scale is too uncertain'}"
    if noise.value is None:
        bound = f"at least {number(noise.low)}" if noise.low is not None else f"at most {number(noise.high)}"
        return f"the batch of {count(batch)} is {where} the critical batch size, which is {bound}: {noise.why}"
    at = {"near": "in the range of"}.get(where, where)
    return (
        f"the batch of {count(batch)} is {at} the critical batch size, {number(noise.value)} ({number(noise.low)} to {number(noise.high)} "
        f"over the training): for the same loss, it takes {number(spent)} times the samples that a very small "
        f"batch takes, and {number(made)} times the updates of a very large one"
    )
