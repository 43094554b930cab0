"""Why a finding that a report does not have may be true of its run nevertheless: then its absence proves nothing."""

from typing import Any

from feedline.analysis.build import UNKNOWN
from feedline.analysis.diagnose import MOST
from feedline.analysis.diff.side import Measured
from feedline.analysis.finding import Severity
from feedline.analysis.model import Report
from feedline.analysis.rules import BY_ID, CROSS_RANK, INPUT, MACHINE, OTHERWISE, TRACE, Rule
from feedline.analysis.rules.input import borderline_input, compute_bound, input_not_seen, made_in_step

RUNS: tuple[Rule[Any], ...] = (*INPUT, *MACHINE, *CROSS_RANK, *OTHERWISE)
TRACES: tuple[Rule[Any], ...] = (*TRACE, *CROSS_RANK)
OF_RUNS = {rule.rule_id for rule in RUNS}
OF_TRACES = {rule.rule_id for rule in TRACES}
OF_INPUT = {rule.rule_id for rule in INPUT}
OF_RANKS = {rule.rule_id for rule in CROSS_RANK}
ALWAYS = {rule.rule_id for rule in OTHERWISE}  # for information: none of them is left out for others
#: Findings in whose place no rule about the input was tried.
INSTEAD = (input_not_seen.RULE_ID, borderline_input.RULE_ID, made_in_step.RULE_ID)


def of_rule(run: Measured, rule_id: str) -> str:
    """Of a finding; "": it would be there. Checks of the set-up, which are no rules, are all kept."""
    report = run.report
    if nothing := _message(report, *UNKNOWN):
        return nothing
    if rule_id not in BY_ID:
        return "" if report.convergence is not None else "how the training is set up was not recorded"
    if rule_id not in (OF_TRACES if report.traces else OF_RUNS):
        return f"only {'recorded runs' if report.traces else 'traces of other tools'} are checked for it"
    if rule_id in OF_RANKS and (_is_alone(run) or _ranks_unseen(run)):
        return _ranks_unseen(run)
    if rule_id in OF_INPUT and (unseen := _input_unseen(report)):
        return unseen
    asking = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    if rule_id in ALWAYS or len(asking) < MOST:
        return ""
    return f"it may be left out: a report has at most {MOST} findings that ask for a change ({', '.join(one.rule_id for one in asking)})"


def of_severity(run: Measured, severity: str) -> str:
    """Of all findings of a severity, or a higher one. Near the gate the input costs too little for a high one."""
    gate = () if severity == Severity.HIGH.value else (borderline_input.RULE_ID,)
    return _message(run.report, *UNKNOWN, input_not_seen.RULE_ID, *gate) or _ranks_unseen(run)


def _message(report: Report, *rule_ids: str) -> str:
    return next((finding.message for finding in report.findings if finding.rule_id in rule_ids), "")


def _is_alone(run: Measured) -> bool:
    return run.report.traces is None and max(run.world, run.report.run.ranks) == 1


def _ranks_unseen(run: Measured) -> str:
    unseen = not _is_alone(run) and run.report.comm is None
    return "how long ranks wait for each other was not recorded" if unseen else ""


def _input_unseen(report: Report) -> str:
    if instead := _message(report, *INSTEAD):
        return f"not looked for: {instead}"
    looked_at = report.workers is not None and report.workers.samples_in_detail
    return "" if looked_at or _message(report, compute_bound.RULE_ID) else "no sample was timed in detail"
