"""Batches that are ready wait behind a slow one, and the workers behind them run dry."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import number, seconds
from feedline.analysis.rules.held import held, num_workers, severity, shortage_s

CAUSE = "straggler_in_order"

#: Coefficient of variation of the time to make a batch (docs/rules.md). With 0.05, workers in phase show head-of-line waits as well, but
#: in_order=False won nothing there (benchmarks/wait_split.py).
MIN_VARIATION = 0.30


def check(facts: Facts) -> Finding | None:
    """Look for the wait that is left when workers that never idle would have kept pace, while other batches were ready."""
    maker, lack_s = facts.workers, shortage_s(facts)
    if maker is None or lack_s is None or (num_workers(facts) or 0) < 2 or facts.setting("in_order", True) is False:
        return None
    if (maker.fetch_cv or 0.0) <= MIN_VARIATION:
        return None
    blocked_s = facts.step.waits.get("head_of_line", 0.0)
    cost_s = min(blocked_s, held(facts).making_s - lack_s)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    evidence = [
        Evidence("fetch_cv", "variation of the time to make a batch (CV)", maker.fetch_cv or 0.0, SHARE),
        Evidence("head_of_line_s", "wait per step while another batch was ready", blocked_s, "s"),
    ]
    if facts.straggler_share is not None:
        evidence.append(Evidence("idle_behind_straggler_share", "workers' idle share behind a straggler", facts.straggler_share, SHARE))
    return Finding(
        CAUSE,
        weight,
        says=f"batches that are ready wait {seconds(blocked_s)} per step behind slow ones "
        f"(the time to make one varies by {number(maker.fetch_cv)} of its mean)",
        evidence=evidence,
        fix="set in_order=False if the order may change, else raise prefetch_factor; make slow samples faster or spread them out",
        disproof="samples per second stay the same with in_order=False",
        cost_s=cost_s,
    )
