"""The limits of a run's throughput in words.

They say how close the run is to them, and what their figures hold and leave out.
"""

from feedline.analysis.explain.model import MeasuredRun, ThroughputBound
from feedline.analysis.measure.model import MIN_OTHERS
from feedline.analysis.text.formatting import counted, number, share

_BINDS = 0.8  # of a limit that is said to bind, at least
RATE = "samples/s"
ALL_CPUS = "all_cpus"  # id of the limit
#: Times the rate, and kinds: at a higher rate, samples and steps take less time, so such limits far
#: above it are rough (docs/measured/faults.md).
_HOLD = frozenset({"gpu", "device"})
_FAR, _OF_THE_HOST = 2.0, frozenset({"workers", "turns", "cores", "step"})


def is_rough(limit: ThroughputBound, rate: float, nearest: str | None) -> bool:
    """Tell whether what the limit was worked out from takes less time once the run comes near it.

    Args:
        nearest: id of the binding limit. Full CPUs make everything else take longer, by more than
            the time that threads wait for a CPU.
    """
    return limit.kind in _OF_THE_HOST and (limit.samples_per_s > _FAR * rate or nearest == ALL_CPUS)


def holds(limit: ThroughputBound) -> bool:
    """Tell whether nothing but other work or another device raises it.

    Limits of the host are made of times at the present rate, which full CPUs and rare stalls
    lengthen; more than twice the rate of one was measured (docs/measured/faults.md).
    """
    return limit.kind in _HOLD


def sentence(
    rate: float,
    nearest: ThroughputBound | None,
    following: ThroughputBound | None,
    unit: str = RATE,
) -> str:
    """Return the binding limit and the next.

    Args:
        unit: of the rate.
    """
    if nearest is None:
        return f"No known limit lies above this run's {number(rate)} {unit}."
    part = min(rate / nearest.samples_per_s, 1.0)
    if part < _BINDS:
        at = f"at {number(nearest.samples_per_s)} {unit}"
        return (
            f"The nearest known limit is {_named(nearest)}, {at}: this run reaches "
            f"{share(part)} of it."
        )
    here = f"{number(rate)} {unit} is {share(part)} of the binding limit, {_named(nearest)}."
    if nearest.kind == "gpu":
        return f"{here} Only a faster GPU, or less GPU work per sample, raises that limit."
    if following is None:
        return f"{here} No other limit is known."
    most = "at most" if holds(following) else "about"
    more = " or more" if is_rough(following, rate, nearest.id) else ""
    return (
        f"{here} The next limit is {_named(following)}: {most} "
        f"{number(following.samples_per_s)} {unit}{more}."
    )


def _named(roof: ThroughputBound) -> str:
    name = {"step": "the step itself", "gpu": "the GPU", "turns": "serialized loading"}.get(
        roof.id, roof.name
    )
    return f"{name} ({roof.message})"


def cpus(cores: float, run: MeasuredRun) -> str:
    """Return how many CPUs there are for a rank.

    Other programs' part is in it, for a limit is what the run could have.
    """
    others, ranks = (run.cpus.others, run.cpus.ranks) if run.cpus else (None, 1)
    known = others is not None and others >= MIN_OTHERS
    taken = (
        f", if other programs left the {number((others or 0.0) / ranks)} that they used"
        if known
        else ""
    )
    return f"{counted(cores, 'CPU')}{' per rank' if run.run.ranks > 1 else ''}{taken}"
