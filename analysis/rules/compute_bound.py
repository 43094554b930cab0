"""Nothing to find at the input: the step itself takes the time."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds, share
from feedline.analysis.rules.held import MIN_WAIT_SHARE, held, steady_share

CAUSE = "compute_bound"

WAITING = ("epoch_start", "sampler", "read", "decode", "augment", "dataset", "user", "collate", "wait", "transport")


def check(facts: Facts) -> Finding | None:
    """Say so where the input takes less of the step than the gate."""
    waiting = steady_share(facts)
    if facts.loader is None or waiting >= MIN_WAIT_SHARE:
        return None
    work = sorted(((s, name) for name, s in facts.step.stages.items() if name not in WAITING), reverse=True)
    largest = f"; its largest part is {work[0][1]} ({seconds(work[0][0])})" if work else ""
    evidence = [Evidence("share of the step waiting for input", waiting, SHARE)]
    if (start_s := held(facts).start_s) > 0:
        evidence.append(Evidence("starting the loader, per step so far", start_s, "s"))
    return Finding(
        CAUSE,
        Severity.INFO,
        says=f"the input does not hold the step back: it takes {share(waiting)} of {seconds(facts.step.mean_s)}{largest}",
        evidence=evidence + [Evidence(f"{name} per step", s, "s") for s, name in work[:3]],
        fix="no loader change needed: a faster loader could save at most that",
        disproof="a step that gets faster when one batch is used again and again",
        cost_s=waiting * facts.step.mean_s,
    )
