"""The verdict as one text, as it is read."""

from collections.abc import Sequence

from feedline.analysis.explain import verdict as explained
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding


def verdict(findings: Sequence[Finding], facts: RuleInputs) -> str:
    """Limit, cause and fix."""
    said = explained.verdict(findings, facts)
    return " ".join(filter(None, (str(said), said.fix)))
