"""What changes would give, replayed and held against the limits of the run.

The loader is replayed, or the ranks. The findings of a report, their fixes together, ``feedline
whatif``, ``tune`` and ``verify`` all ask ``Predictions.of``, so they agree.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from feedline.analysis.explain.model import Roofline
from feedline.analysis.explain.next_limit import held, lifted_by
from feedline.analysis.explain.order import claimed, findings_together, lies_within
from feedline.analysis.explain.speed_trial import Trial
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    REJECTED,
    Change,
    CostKind,
    Factor,
    Finding,
    PredictedRate,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import Statement
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.ledger.view.cpus import contended
from feedline.analysis.ledger.view.input_wait import num_workers
from feedline.analysis.ledger.view.recorded_ranks import recorded
from feedline.analysis.ledger.view.slow_stage import at_own_locks
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.predict.limits import Predictor
from feedline.analysis.predict.replay_of import predict, recorded_input
from feedline.analysis.predict.search import Limits, Memory, Searcher, effective, usual_most
from feedline.analysis.ranks.communication import Prediction
from feedline.analysis.rules import BETWEEN_RANKS, BY_ID, INPUT, check_stating, unknown_input
from feedline.analysis.rules.input import epoch_restart, too_few_workers
from feedline.analysis.text.formatting import sentence
from feedline.profiler.errors import FeedlineError, shows_tracebacks

_NO_RATE = Refused(
    "no_rate",
    "No loader reported the size of its batches, so no rate in samples/s can be predicted.",
)
_SKIPS = Refused(
    "no_rate", "Nothing is trained on some batches, so no rate in samples/s can be predicted."
)
_SET_UP = Refused(
    "set_up",
    "This finding is about correctness or convergence, not speed, so no speedup is predicted.",
)
_TOO_LITTLE = Refused(
    "too_little", "This finding costs less than 5 % of the step, too little to predict a gain."
)
_NO_INTERVAL = Refused("no_interval", "The uncertainty of the replay is unknown.")
_WAITS = 0.1  # of the step: from here on, ranks that wait for each other decide what it takes
_NOT_REPLAYED = Refused(
    "not_replayed",
    "The replay of this run does not show the delay, so it cannot predict a run without it.",
)


@dataclass(frozen=True)
class Predictions:
    """Predictions for one recorded training.

    Attributes:
        facts: from which its findings were made.
        rate: samples/s of all ranks.
        replay: predicts the throughput with a change of its loader.
        limits: of the same run; None: they are unknown.
        rejected: trials of this training whose settings are not recommended again.
    """

    facts: RuleInputs
    rate: float | None
    replay: Predictor
    limits: Roofline | None = None
    rejected: Sequence[Trial] = ()

    def attached(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return the findings with what their fixes would give, or why that is not predicted."""
        return [
            self._bounded(self._not_workers(self._of_one_rank(_with(finding, self._of(finding)))))
            for finding in findings
        ]

    def _of_one_rank(self, finding: Finding) -> Finding:
        """Say no more of a gain than one rank shows where ranks wait for each other.

        That of a loader's setting is unknown: its cost is of one rank, and which of them is late
        then is not replayed: of two that were late in turns, 1.34 times the rate would have been
        estimated, and 1.05 was measured. No time of one rank is the least that all of them save.
        """
        rule, step_s = BY_ID.get(finding.rule_id), self.facts.step.mean_s
        waits_s = max(
            (one.exposed_wait_s or 0.0 for one in self.facts.comm_parts.values()), default=0
        )
        if rule is None or finding.rule_id in BETWEEN_RANKS or waits_s < _WAITS * step_s:
            return finding
        if finding.cost_kind is CostKind.AT_LEAST:
            return replace(finding, cost_kind=CostKind.ESTIMATED)
        setting = rule.by_settings and finding.predicted is None
        if not setting or finding.cost_kind is not CostKind.ESTIMATED:
            return finding
        return replace(finding, cost_kind=CostKind.CAUSE_ONLY)

    def _bounded(self, finding: Finding) -> Finding:
        """Return the finding, with the upper end of the rate if what it names took no time.

        Only some rules know such a bound. No prediction of a fix is above it. Where only a part of
        the cause's time was measured, the whole may give more than its removal does in the replay.
        """
        rule, told = BY_ID.get(finding.rule_id), finding.predicted
        if rule is None or rule.free is None or finding.severity is Severity.INFO:
            return finding
        change = rule.free(self.facts)
        if isinstance(change, Refused) or finding.cost_kind is CostKind.AT_LEAST:
            return finding
        made = self._at_most(replace(change, lifts=rule.lifts))
        if isinstance(made, Refused):
            return finding
        if told is not None:
            low, after, high = (min(rate, made.high) for rate in (told.low, told.after, told.high))
            finding = replace(finding, predicted=replace(told, low=low, after=after, high=high))
        return replace(finding, at_most_per_s=made.high)

    def _at_most(self, change: Change) -> PredictedRate | Refused:
        """Return the rate with a change.

        Where other programs hold all CPUs, what takes less of a CPU gets more of it: it may give
        what it would give without them, too. The limits of the run, which were measured beside
        them, do not count then, nor does what stopping them gives by itself.
        """
        beside = self.of(change)
        if not contended(self.facts) or not self.rate or unknown_input(self.facts) is not None:
            return beside
        made, stopped = (
            self.replay(replace(one, others=False), interval)
            for one, interval in ((change, True), (Change(), False))
        )
        if isinstance(made, Refused) or isinstance(stopped, Refused):
            return made if isinstance(made, Refused) else beside
        alone = _from(self.rate, replace(made, before=stopped.after))
        if isinstance(beside, Refused) or beside.high < alone.high:
            return alone
        return beside

    def _not_workers(self, finding: Finding) -> Finding:
        """Say of full CPUs that more workers do not help, if that is predicted for them."""
        rule = BY_ID.get(finding.rule_id)
        if rule is None or not rule.without_gain_of_workers:
            return finding
        if self.more_workers_gain() is not False:
            return finding
        return replace(finding, fix_more=[*finding.fix_more, rule.without_gain_of_workers])

    def more_workers_gain(self) -> bool | None:
        """Tell whether more workers are predicted to be faster, as ``feedline tune`` searches.

        None: not known.
        """
        loader, workers = self.facts.loader, self.facts.setting("num_workers")
        if loader is None or not isinstance(workers, int):
            return None
        limits = Limits(max(usual_most(self.facts.effective_cpus, workers), 2 * workers))
        return Searcher(
            self.of, loader.settings, self.facts.epochs, limits, Memory(None, None)
        ).more_workers_gain()

    def _of(self, finding: Finding) -> PredictedRate | Refused:
        change = change_of(finding.rule_id, self.facts)
        if finding.severity is Severity.INFO and not isinstance(change, Refused):
            return _TOO_LITTLE
        made = self.of(change)
        return (
            _NOT_REPLAYED
            if isinstance(made, PredictedRate)
            and made.low == made.high
            and math.isclose(made.low, made.before)
            else made
        )

    def of(
        self, change: Change | Prediction | Refused, interval: bool = True
    ) -> PredictedRate | Refused:
        """Return the rate with a change.

        Args:
            interval: False: spare the bootstrap of the loader's replay; low and high are then the
                prediction itself.
        """
        if isinstance(change, Refused):
            return change
        if not self.rate:
            return _SKIPS if self.facts.skipped is not None else _NO_RATE
        if isinstance(change, Change) and (tried := self._tried(change)) is not None:
            return tried.refusal()
        made = (
            _of_step(change) if isinstance(change, Prediction) else self._replayed(change, interval)
        )
        return made if isinstance(made, Refused) else _from(self.rate, made)

    def _tried(self, change: Change) -> Trial | None:
        """Return the trial that rejected exactly these settings."""
        if change != Change(settings=change.settings) or self.facts.loader is None:
            return None
        now, asked = self.facts.loader.settings, dict(change.settings)
        return next(
            (one for one in self.rejected if effective(one.settings, now) == effective(asked, now)),
            None,
        )

    def _replayed(self, change: Change, interval: bool) -> PredictedRate | Refused:
        """Return what the replay predicts, as far as the limits of the run allow it."""
        if (unknown := unknown_input(self.facts)) is not None:
            refused = change_of(unknown.rule_id, self.facts)
            assert isinstance(refused, Refused)
            return refused
        made = self.replay(change, interval)
        if isinstance(made, Refused) or self.limits is None:
            return made
        lifts = lifted_by(
            change,
            self.facts.setting("num_workers"),
            full=check_stating(Statement.CPUS_FULL, INPUT, self.facts) is not None,
        )
        kept = held(made, self.limits, lifts)
        if interval or kept is made:
            return kept
        # whether the limits leave anything of it depends on its interval
        exact = self._replayed(change, True)
        return (
            exact
            if isinstance(exact, Refused)
            else replace(exact, low=exact.after, high=exact.after)
        )

    def together(self, findings: Sequence[Finding]) -> PredictedRate | None:
        """Predict all that findings change in the loader, at once.

        None: fewer than two of them are predicted, or all at once is not.
        """
        loaders: list[Change] = []
        before: list[tuple[Finding, Change]] = []
        for finding in findings_together(findings):
            change = change_of(finding.rule_id, self.facts)
            if isinstance(change, Change):
                same = [one for other, one in before if self._same_time(finding, other)]
                loaders.append(_what_is_left(change, same) if same else change)
                before.append((finding, change))
        made = self.of(joined(loaders)) if len(loaders) > 1 else _SET_UP
        best = max(
            (finding.predicted.after for finding in findings if finding.predicted is not None),
            default=0.0,
        )
        # less than one of them: they contradict each other
        return None if isinstance(made, Refused) or made.after < best else made

    def _same_time(self, one: Finding, other: Finding) -> bool:
        """Tell whether the time that one of them explains is a part of the other's."""
        first, second = claimed(one, self.facts.rows), claimed(other, self.facts.rows)
        return lies_within(first, second) or lies_within(second, first)


def of_recording(
    shown: RankMetrics,
    facts: RuleInputs,
    rate: float | None,
    limits: Roofline | None,
    rejected: Sequence[Trial] = (),
) -> Predictions:
    """Return predictions from a recorded rank.

    Its loader is read only when a prediction needs it.

    Args:
        rate: samples/s of all ranks.
        limits: of the run; None: they are unknown.
        rejected: trials of it whose settings are not recommended again.
    """
    recording = functools.cache(lambda: recorded_input(shown, facts, at_own_locks(facts)))

    def replay(change: Change, interval: bool = True) -> PredictedRate | Refused:
        if other := _another_training(facts, change):
            return other
        if facts.loader_made_again and not change.endless:  # the setting has no effect then
            change = _without(change, "persistent_workers")
        try:
            recorded = recording()
            return (
                recorded if isinstance(recorded, Refused) else predict(recorded, change, interval)
            )
        except Exception as error:  # the rest of a report does not need it
            if shows_tracebacks() and not isinstance(error, FeedlineError):
                raise
            return Refused(
                "failed", f"the loader could not be replayed: {error or type(error).__name__}"
            )

    return Predictions(facts, rate, replay, limits, rejected)


def _another_training(facts: RuleInputs, change: Change) -> Refused | None:
    """Say why a change of settings would make another training of it.

    Workers would repeat samples, or miss what the program changes.
    """
    now = num_workers(facts) or 0
    if not facts.may_be_split and change.settings.get("num_workers", 0) > max(now, 1):
        return too_few_workers.NOT_SPLIT
    if facts.shards is not None and change.settings.get("num_workers", 0) > max(facts.shards, now):
        return too_few_workers.NO_SHARDS
    stays = change.settings.get("persistent_workers") and not facts.setting("persistent_workers")
    if stays and facts.dataset_changes:
        return epoch_restart.CHANGED
    once = change.endless or not facts.loader_made_again
    return None if once or not stays else epoch_restart.MADE_AGAIN


def _without(change: Change, setting: str) -> Change:
    settings = {name: value for name, value in change.settings.items() if name != setting}
    return replace(change, settings=settings)


def change_of(rule_id: str, facts: RuleInputs) -> Change | Prediction | Refused:
    """Return what the fix of a finding changes.

    Mistakes in the setup have no rule here, and no speedup is predicted for them.
    """
    if rule_id not in BY_ID:
        return _SET_UP
    made = BY_ID[rule_id].change(recorded(facts) if rule_id in BETWEEN_RANKS else facts)
    if not isinstance(made, Change) or made == Change(settings=made.settings):
        return made
    return replace(made, lifts=BY_ID[rule_id].lifts)


def refused_of_traces(findings: Sequence[Finding], facts: TraceFacts) -> list[Finding]:
    """Return the findings of traces, with the reason why none is predicted.

    Traces have neither a loader nor ranks to replay.
    """
    changes = [
        BY_ID[one.rule_id].change(facts.ranks if one.rule_id in BETWEEN_RANKS else facts)
        for one in findings
    ]
    return [
        _with(one, made if isinstance(made, Refused) else _NO_RATE)
        for one, made in zip(findings, changes)
    ]


def _what_is_left(change: Change, before: Sequence[Change]) -> Change:
    """Return what a change spares beyond others of the same time: joined, the smaller factor counts."""
    stages = {}
    for stage, factor in change.stages.items():
        others = [one.stages.get(stage, Factor()) for one in before]
        stages[stage] = Factor(
            _beyond(factor.cpu, [one.cpu for one in others]),
            _beyond(factor.off_cpu, [one.off_cpu for one in others]),
        )
    return replace(change, stages=stages)


def _beyond(factor: float, others: Sequence[float]) -> float:
    least = min(others, default=1.0)
    return min(1.0, factor / least) if least else 1.0


def joined(changes: Sequence[Change]) -> Change:
    """Join changes into one.

    Factors of a stage multiply, and of two values for one setting the first counts.
    """
    stages: dict[str, Factor] = {}
    settings: dict[str, int | bool] = {}
    for change in changes:
        settings = {**change.settings, **settings}
        for stage, factor in change.stages.items():
            so_far = stages.get(stage, Factor())
            stages[stage] = Factor(so_far.cpu * factor.cpu, so_far.off_cpu * factor.off_cpu)
    return Change(
        settings=settings,
        stages=stages,
        helper_threads=all(change.helper_threads for change in changes),
        cpus=next((change.cpus for change in changes if change.cpus is not None), None),
        others=all(change.others for change in changes),
        into_shared=any(change.into_shared for change in changes),
        one_loader=any(change.one_loader for change in changes),
        endless=any(change.endless for change in changes),
        lifts=frozenset().union(*(change.lifts for change in changes)),
    )


_ANOTHER = "Look for another change."


def _with(finding: Finding, made: PredictedRate | Refused) -> Finding:
    if isinstance(made, Refused) and made.reason == REJECTED:
        tried = f"{sentence(made.message)}."
        told = replace(
            finding,
            predicted=None,
            refused=f"{tried} {_ANOTHER}",
            fix=tried,
            fix_more=[_ANOTHER],
            place="",
            condition="",
            how_to_check="",
            settings={},
        )
        return replace(told, severity=Severity.INFO, cost_s=0.0)
    if isinstance(made, Refused):
        return replace(
            finding, predicted=None, refused=f"{sentence(made.message).removesuffix('.')}."
        )
    return replace(finding, severity=_weighed(finding, made), predicted=made, refused="")


def _weighed(finding: Finding, made: PredictedRate) -> Severity:
    """Return the severity of a finding whose fix surely gives this much.

    A cause that takes little itself may hold back more.
    """
    if finding.severity is not Severity.LOW or made.low <= 0:
        return finding.severity
    sure = Severity.of(1 - made.before / made.low)
    return sure if sure is Severity.HIGH else finding.severity


def _of_step(told: Prediction) -> PredictedRate | Refused:
    """Return a step time that the replay of the ranks predicted, as rates in steps/s."""
    if told.step_s is None or told.low is None or told.high is None or told.low <= 0:
        return _NO_INTERVAL
    return PredictedRate(
        1 / (told.step_s + told.gain_s), 1 / told.step_s, 1 / told.high, 1 / told.low
    )


def _from(rate: float, made: PredictedRate) -> PredictedRate:
    """Return a predicted rate scaled to that of the whole training.

    The replay may be of one rank, or in steps/s, so only its ratio counts.
    """
    times = rate / made.before
    return PredictedRate(rate, made.after * times, made.low * times, made.high * times)
