"""What a batch costs in samples and saves in updates, against the critical batch."""

from feedline.analysis.convergence.training_series import BatchPrice, NoiseOverTraining
from feedline.analysis.text.formatting import count, number

DOUBT = (
    "The noise scale only approximates the critical batch size (Merrill et al., "
    "arXiv:2505.23971): trust only its order of magnitude"
)
#: Beyond these multiples of the ends of the noise scale's range, a batch is far off: at twice the
#: upper end, 2 of 3 samples are wasted; at a third of the lower end, doubling the batch still saves
#: 37 % of the updates.
_FAR_ABOVE, _FAR_BELOW = 2.0, 1 / 3


def _says(
    noise: NoiseOverTraining, batch: float, where: str, spent: float | None, factor: float | None
) -> str:
    """Return what to say of a batch, without the last full stop.

    ``where``, ``spent`` and ``factor``: as where, samples_factor and updates_factor of BatchPrice.
    """
    if where == "unknown":
        return (
            f"the cost of the batch of {count(batch)} is unknown: "
            f"{noise.why or 'the noise scale is too uncertain'}"
        )
    if noise.value is None:
        bound = (
            f"at least {number(noise.low)}"
            if noise.low is not None
            else f"at most {number(noise.high)}"
        )
        return (
            f"the batch of {count(batch)} is {where} the critical batch size, which is "
            f"{bound}: {noise.why}"
        )
    return (
        f"the batch of {count(batch)} is {where} the critical batch size, about "
        f"{number(noise.value)} ({number(noise.low)} to {number(noise.high)} over the training). "
        f"For equal loss, it needs about {number(spent, 2)} times the samples of a very small "
        f"batch. It needs about {number(factor, 2)} times the updates of a very large one"
    )


def price_batch(noise: NoiseOverTraining, batch: float) -> BatchPrice:
    """Return what a batch costs.

    E/Emin = 1 + B/Bc and S/Smin = 1 + Bc/B, over the noise scale's range. McCandlish and others,
    arXiv:1812.06162, section 2.3.

    Args:
        noise: of the training.
        batch: B, samples per update of all ranks together.

    Raises:
        ValueError: a batch that is not above 0.
    """
    if not batch > 0:
        raise ValueError(f"a batch has samples, not {batch}")
    spent = [
        None if bound is None else samples_factor(batch, bound)
        for bound in (noise.value, noise.high, noise.low)
    ]
    updates = [
        None if bound is None else updates_factor(batch, bound)
        for bound in (noise.value, noise.low, noise.high)
    ]
    where = _place(batch, noise.low, noise.high)
    return BatchPrice(
        batch,
        where,
        spent[0],
        spent[1],
        spent[2],
        updates[0],
        updates[1],
        updates[2],
        _says(noise, batch, where, spent[0], updates[0]),
    )


def samples_factor(batch: float, critical: float) -> float | None:
    """Return E/Emin; None: a critical batch of 0 has no price."""
    return 1 + batch / critical if critical > 0 else None


def updates_factor(batch: float, critical: float) -> float:
    """Return S/Smin."""
    return 1 + critical / batch


def _place(batch: float, low: float | None, high: float | None) -> str:
    """Say where a batch is against the range of the noise scale, whichever end of it is known."""
    if high is not None and batch > high:
        return "far above" if batch > _FAR_ABOVE * high else "above"
    if low is not None and batch < low:
        return "far below" if batch < _FAR_BELOW * low else "below"
    return "unknown" if low is None or high is None else "near"
