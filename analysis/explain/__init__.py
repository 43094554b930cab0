"""From measures to a report: which findings, which limits, which verdict."""
