"""Why a finding may be true of a run although its report does not have it: its absence then proves nothing."""

from feedline.analysis.diff.side import Measured
from feedline.analysis.explain.build import UNKNOWN
from feedline.analysis.explain.diagnose import MAX_FINDINGS
from feedline.analysis.explain.model import Report
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules import BY_ID, CROSS_RANK, INPUT, MACHINE, OTHERWISE, TRACE
from feedline.analysis.rules.cross_rank import exposed_communication, late_rank
from feedline.analysis.rules.input import (
    borderline_input,
    busy_neighbors,
    compute_bound,
    input_not_seen,
    made_in_step,
    nothing_trained,
    too_short,
)
from feedline.analysis.rules.trace import input_stall
from feedline.analysis.traces.gpu import NO_COMMUNICATION

_OF_INPUT = {rule.rule_id for rule in INPUT}
_OF_RANKS = {rule.rule_id for rule in CROSS_RANK}
_OF_RUNS = {*_OF_INPUT, *_OF_RANKS, *(rule.rule_id for rule in (*MACHINE, *OTHERWISE))}
_OF_TRACES = {*_OF_RANKS, *(rule.rule_id for rule in TRACE)}
#: For information: none of them is left out for others.
_ALWAYS = {one.RULE_ID for one in (compute_bound, borderline_input, too_short, input_not_seen, nothing_trained)}
_LATE = (late_rank.RULE_ID, late_rank.SPREAD)
#: Findings in whose place no rule about the input was tried.
_INSTEAD = (input_not_seen.RULE_ID, borderline_input.RULE_ID, made_in_step.RULE_ID)


def of_rule(run: Measured, rule_id: str) -> str:
    """Why the report could lack this finding although it is true; "": it would have it. Checks of the setup are never left out."""
    report = run.report
    if nothing := _message(report, *UNKNOWN):
        return nothing
    if rule_id not in BY_ID:
        return "" if report.convergence is not None else "how the training is set up was not recorded"
    if rule_id not in (_OF_TRACES if report.traces else _OF_RUNS):
        return f"only {'recorded runs' if report.traces else 'traces of other tools'} are checked for it"
    if rule_id in _OF_RANKS and _is_alone(run):
        return ""
    if unseen := _unseen(run, rule_id):
        return unseen
    asking = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    if rule_id in _ALWAYS or len(asking) < MAX_FINDINGS:
        return ""
    told = ", ".join(finding.rule_id for finding in asking)
    return f"it may be left out: a report has at most {MAX_FINDINGS} findings that ask for a change ({told})"


def of_severity(run: Measured, severity: str) -> str:
    """The same for any finding of this severity or a higher one. A borderline input takes too little of the step to hide a high one."""
    gate = () if severity == Severity.HIGH.value else (borderline_input.RULE_ID,)
    return _message(run.report, *UNKNOWN, input_not_seen.RULE_ID, *gate) or _late_unseen(run)


def _unseen(run: Measured, rule_id: str) -> str:
    """Why the rule had too little to look at."""
    report = run.report
    if rule_id in _LATE:
        return _late_unseen(run)
    if rule_id in _OF_RANKS:
        return _ranks_unseen(run) or (_network_unseen(report) if rule_id == exposed_communication.SLOW else "")
    if rule_id == input_stall.RULE_ID:
        return _message(report, input_not_seen.RULE_ID)
    if rule_id == busy_neighbors.RULE_ID:
        sampled = report.cpus is not None and report.cpus.own is not None and report.cpus.others is not None
        return "" if sampled else "CPU use by other programs was not sampled"
    return _input_unseen(report) if rule_id in _OF_INPUT else ""


def _message(report: Report, *rule_ids: str) -> str:
    return next((finding.message for finding in report.findings if finding.rule_id in rule_ids), "")


def _is_alone(run: Measured) -> bool:
    """Whether the run has only one rank. Traces may not contain the number of ranks, so theirs must also show that no communication ran."""
    report = run.report
    silent = report.traces is None or all(
        one.gpu is not None and one.gpu.reasons.get("overlap_pct_of_comm") == NO_COMMUNICATION for one in report.ranks.values()
    )
    return silent and max(run.world, report.run.ranks) == 1


def _ranks_unseen(run: Measured) -> str:
    unseen = not _is_alone(run) and run.report.comm is None
    return "how long ranks wait for each other was not recorded" if unseen else ""


def _late_unseen(run: Measured) -> str:
    comm, there = run.report.comm, len(run.report.ranks)
    if comm is None:
        return _ranks_unseen(run)
    if comm.clock_bound_s is None:
        return "the clocks of the ranks cannot be compared, so which rank was late is unknown"
    world = max([run.world, run.report.run.ranks, *(kind.n for kind in comm.collectives)])
    return f"only {there} of {world} ranks were recorded, so which rank was late is unknown" if there < world else ""


def _network_unseen(report: Report) -> str:
    known = report.comm is not None and report.comm.network_share is not None
    return "" if known else "how fast the network should be is unknown"


def _input_unseen(report: Report) -> str:
    if instead := _message(report, *_INSTEAD):
        return f"not looked for: {instead}"
    looked_at = report.workers is not None and report.workers.samples_in_detail
    return "" if looked_at or _message(report, compute_bound.RULE_ID) else "no sample was timed in detail"
