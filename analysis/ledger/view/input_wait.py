"""How long the loader holds a step back, and with what.

All rules weigh their causes with these seconds.
"""

from dataclasses import dataclass

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.model import Operation
from feedline.analysis.measure.stages import MAKING_STAGES

#: Below it the input is not spoken of: XProf calls a step that waits less "not input-bound".
MIN_WAIT_SHARE = 0.05


#: What ``transport_s`` of the input wait is, for evidence.
RECEIVING = "receiving batches in the main process (transport, and in_transit of wait), per step"

#: Times are whole nanoseconds: less is what a difference of means is off by.
_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class _InputWait:
    """Seconds of the mean step in which the main process had no batch, by what it waited for."""

    start_s: float  # the loader's only start: a longer run spreads it
    restart_s: float  # its starts in later epochs
    making_s: float  # a batch was being made; without workers, by the main process itself
    handover_s: float  # it was made, and its worker had not handed it over
    transport_s: float
    sampler_s: float

    @property
    def total_s(self) -> float:
        return (
            self.start_s
            + self.restart_s
            + self.making_s
            + self.handover_s
            + self.transport_s
            + self.sampler_s
        )


def input_wait(facts: RuleInputs) -> _InputWait:
    """Divide the time that the loader holds a step back.

    A worker that makes its next batch and keeps Python's lock hands over the last one late, however
    few or slow the workers are: what they lack even if they never idled is waiting for batches to
    be made.

    Runs of four steps and more do not count their first step, and with it the loader's first start:
    what several epochs start is a restart.
    """
    stages, waits = facts.step.stages, facts.step.waits
    starting = stages.get("epoch_start", 0.0) + waits.get("first_batch", 0.0)
    once, again = (starting, 0.0) if facts.epochs <= 1 else (0.0, starting)
    in_main = sum(stages.get(stage, 0.0) for stage in MAKING_STAGES)
    if num_workers(facts) == 0:
        making = in_main
    else:
        making = stages.get("wait", 0.0) - sum(
            waits.get(kind, 0.0) for kind in ("first_batch", "handover", "in_transit")
        )
        making = making if making > _ROUNDING_S else 0.0
        making += in_main if facts.several_loaders else 0.0  # of one without workers
    transport = stages.get("transport", 0.0) + waits.get("in_transit", 0.0)
    handover = waits.get("handover", 0.0)
    hidden_s = min(handover, max(0.0, _lacking_s(facts) - making))
    return _InputWait(
        once, again, making + hidden_s, handover - hidden_s, transport, stages.get("sampler", 0.0)
    )


def steady_share(facts: RuleInputs) -> float:
    """Return the share of the step that the input takes, without the loader's only start."""
    if facts.step.mean_s <= 0:
        return 0.0
    return max(0.0, facts.wait_share - input_wait(facts).start_s / facts.step.mean_s)


def unsure_s(facts: RuleInputs) -> float:
    """Return the seconds per step that the input may take less than it did.

    It goes down to the lower end of the 95 % interval of its share.
    """
    return (
        max(0.0, steady_share(facts) - facts.certainty.low) * facts.step.mean_s
        if facts.certainty is not None
        else 0.0
    )


def making_share(facts: RuleInputs, *stages: str) -> float:
    """Return the share (0 to 1) of the making of a batch that these stages take.

    Without workers it is read off the step itself.
    """
    making = input_wait(facts).making_s
    if num_workers(facts) == 0 and making > 0:
        return min(1.0, sum(facts.step.stages.get(stage, 0.0) for stage in stages) / making)
    return min(1.0, sum(facts.sample_share(stage) for stage in stages))


def operations_share(facts: RuleInputs, names: tuple[str, ...], stage: str = "total") -> float:
    """Return the share (0 to 1) of a sample's wall time in operations of these names.

    It may be that of one of its stages. Names are given in lower case; a module path before one is
    ignored.
    """
    cost = facts.costs.get(stage)
    if facts.workers is None or cost is None or cost.wall_s <= 0:
        return 0.0
    matching = (
        op.wall_s
        for op in facts.workers.operations
        if stage in ("total", op.stage) and _named(op, names)
    )
    return min(1.0, sum(matching) / cost.wall_s)


def _named(operation: Operation, names: tuple[str, ...]) -> bool:
    return operation.name.rpartition(".")[2].lower() in names


def severity(facts: RuleInputs, cost_s: float) -> Severity:
    """Return how much a cause weighs, by its own share of the step.

    It weighs as much as the whole wait, if that is more and it makes up half of it.
    """
    share = steady_share(facts)
    held_s = share * facts.step.mean_s
    if held_s <= 0:
        return Severity.INFO
    own = cost_s / facts.step.mean_s
    return Severity.of(max(own, share) if cost_s >= held_s / 2 else own)


def num_workers(facts: RuleInputs) -> int | None:
    """Return how many workers the training loader has, or all of those that feed the steps.

    None: the loader does not have this setting (DALI), or no loader was seen.
    """
    setting = facts.setting("num_workers")
    if isinstance(setting, int):
        return setting
    return facts.workers.processes if facts.workers and facts.workers.processes else None


def maker(facts: RuleInputs) -> str:
    """Return which process makes batches, for advice to look at one."""
    return "a worker" if num_workers(facts) else "the training process"


def batch_s(facts: RuleInputs, *stages: str) -> float:
    """Return the seconds per batch in these stages.

    They count in its worker and, of transport, in the main process too.
    """
    costs, per_step = facts.costs, facts.batches_per_step
    made_s = sum(costs[stage].wall_s for stage in stages if stage in costs) * (
        facts.throughput.batch_size or 0.0
    )
    received_s = input_wait(facts).transport_s if "transport" in stages else 0.0
    return (made_s + received_s) / per_step


def compute_s(facts: RuleInputs) -> float:
    """Return C, the mean step without what the loader costs it, s."""
    return max(0.0, facts.step.mean_s * (1 - facts.wait_share))


def least_s(facts: RuleInputs) -> float:
    """Return the step with batches that are always ready.

    The GPU works for earlier steps while the host waits for a batch, so it may be the one that
    takes longer.
    """
    return max(compute_s(facts), facts.step.gpu_s)


def supply_s(facts: RuleInputs) -> float | None:
    """Return S / W, in which the workers, all busy, make the batches of one step, s.

    Workers without data do not count. None: there are no workers, it was not measured, or several
    loaders feed the steps, because the workers of one do not make the batches of another.
    """
    workers = max((num_workers(facts) or 0) - facts.idle_workers, 0)
    if (
        facts.several_loaders
        or not workers
        or facts.workers is None
        or not facts.workers.fetch_mean_s
    ):
        return None
    return facts.workers.fetch_mean_s * facts.batches_per_step / workers


def shortage_s(facts: RuleInputs) -> float | None:
    """Return the seconds per step that the workers lack even if they never idled.

    It is S / W less what the step takes without them, at most the wait. None as for ``supply_s``.
    The rest of the wait comes from the order and the bursts in which batches arrive
    (benchmarks/wait_split.py replays the loader's dispatch: that rest was never below what
    in_order=False won, and 4 % of the wait above it on average, 46 % at most).
    """
    supply = supply_s(facts)
    if supply is None:
        return None
    return min(input_wait(facts).making_s, _lacking_s(facts))


def _lacking_s(facts: RuleInputs) -> float:
    """Return the seconds that workers which never idle need beyond the rest of the step.

    0.0 where that was not measured.
    """
    supply = supply_s(facts)
    return max(0.0, supply - least_s(facts)) if supply is not None else 0.0


def making_s(facts: RuleInputs) -> float | None:
    """Return S, what making the batches of a step one after another takes, s.

    None: not measured, or several loaders feed the steps: each needs workers of its own.
    """
    if facts.several_loaders:
        return None
    if num_workers(facts) == 0:
        return input_wait(facts).making_s
    batch_s = facts.workers.fetch_mean_s if facts.workers else None
    return batch_s * facts.batches_per_step if batch_s else None
