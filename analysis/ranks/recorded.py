"""From the run folders of several ranks to how long they wait for each other, and for which."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from feedline.analysis.formatting import share
from feedline.analysis.measure.gather import RankMetrics, step_summary
from feedline.analysis.measure.gather import throughput as gather_throughput
from feedline.analysis.measure.model import Throughput
from feedline.analysis.ranks.read_collectives import collectives_of, unseen_of
from feedline.analysis.ranks.shared_cpus import RankCpu
from feedline.analysis.ranks.summary import Compared, compare
from feedline.profiler.ceilings import Ceilings
from feedline.profiler.errors import FeedlineError

MIN_SHARE = 0.05  # of the step: less is not worth a finding


@dataclass(frozen=True)
class NetworkHints:
    """What no run folder holds.

    Attributes:
        link_bytes_per_s: what the network is specified to give a rank, in one direction.
        nccl_lines: output of the training with NCCL_DEBUG=INFO.
    """

    link_bytes_per_s: float | None = None
    nccl_lines: tuple[str, ...] = ()


NOTHING = NetworkHints()


def compared(
    gathered: Mapping[int, RankMetrics],
    shown: RankMetrics,
    ceilings: Ceilings | None,
    beside: NetworkHints,
    notes: list[str],
    cpus: Mapping[int, RankCpu],
) -> Compared | None:
    """Compare the ranks of a run. None: there is one rank only, or no collective; notes say why where several ranks trained.

    Args:
        shown: the rank whose first steps are left out of the means.
        notes: what is missing is appended.
        cpus: by rank, what its mean step takes of the CPUs that it shares with others.
    """
    found = []
    for number, rank in gathered.items():
        try:
            one = collectives_of(rank.rank)
        except FeedlineError as error:
            notes.append(f"the collectives of rank {number} cannot be read: {error}")
            continue
        if one is not None:
            found.append(one)
    made = compare(found, ceilings, costs(gathered), shown.first, beside.link_bytes_per_s, beside.nccl_lines, cpus)
    if made is not None:
        notes.extend(made.notes)
    elif len(gathered) > 1:
        notes.append("no collective of several ranks was recorded, so it is unknown how long ranks wait for each other")
    notes.extend(unseen(gathered))
    return made


def unseen(gathered: Mapping[int, RankMetrics]) -> list[str]:
    """Libraries whose communication was not recorded, and how much of the step is unexplained on the rank where that is most."""
    shares: dict[str, list[float]] = {}
    for rank in gathered.values():
        for why in unseen_of(rank.rank):
            shares.setdefault(why, [])
            if rank.steps is not None and (whole := rank.steps.wall[rank.first :].sum()):
                shares[why].append(float(rank.steps.stages["other"][rank.first :].sum() / whole))
    return [f"{why}; no stage explains {share(max(parts))} of the mean step" if parts else why for why, parts in shares.items()]


def shown(gathered: Mapping[int, RankMetrics], compared: Compared | None) -> int:
    """The rank that a report shows: the one that all others wait for, if there is one; else the lowest."""
    lowest = min(gathered)
    late = compared.communication.late[:1] if compared else []
    step = step_summary(gathered[lowest])
    if not late or not late[0].persistent or late[0].rank not in gathered or step is None:
        return lowest
    return late[0].rank if (late[0].cost_s or late[0].waited_s) >= MIN_SHARE * step.mean_s else lowest


def first_failed(gathered: Mapping[int, RankMetrics]) -> int:
    """The rank that says how the run ended: the first that an exception of its own ended. Others fail later, or are killed."""
    ends = {number: rank.rank.manifest for number, rank in gathered.items()}
    failed = [number for number, end in ends.items() if end.exit_code and end.ended_by and end.anchors]
    return min(failed, key=lambda number: (ends[number].anchors[-1]["time_ns"], number), default=min(gathered))


def throughput(gathered: Mapping[int, RankMetrics], of: RankMetrics) -> Throughput:
    """The throughput of one rank, and of all ranks together where it was measured on each."""
    own = gather_throughput(of)
    rates = [gather_throughput(rank).samples_per_s for rank in gathered.values()]
    if len(rates) < 2 or None in rates:
        return own
    return replace(own, ranks=len(rates), all_ranks_samples_per_s=sum(rate for rate in rates if rate is not None))


def costs(gathered: Mapping[int, RankMetrics]) -> dict[int, dict[str, float]]:
    """Rank -> stage of a sample -> mean wall seconds, where samples were seen."""
    found = {}
    for number, rank in gathered.items():
        if rank.samples:
            found[number] = {stage: cost.wall_s for stage, cost in rank.sample_costs.items()}
    return found
