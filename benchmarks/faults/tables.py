"""The suite's results as a Markdown page."""

from collections.abc import Sequence

from faults import judge
from faults.cases import Fault, Healthy
from faults.judge import Errors, Judged
from faults.results import Results
from twins import machine, table

HEAD = """# Planted faults

    python benchmarks/fault_suite.py --json faults.json > docs/measured/faults.md

records small real training runs, each with one fault, their twins without it, and training runs without a fault
([the list](../../benchmarks/faults/cases.py)): real images, processes, disks, servers, control groups and links. The expected first finding
was stated beforehand. "Without it" is a speedup: how many times as fast the training is with the loader settings that the finding names, or
else how many times as fast the twin is. It is measured in plain runs, without feedline, that alternate with those of the faulty training,
or, where there are none, with the programs' own timers in the two recordings. A ratio below {planted} is not a fault.

A twin may save more than the fix does: that of `decode_jpeg` keeps samples in memory, which avoids cropping as well. The predicted gain, or
its estimate from what the fault costs, is then less than the measured one.
"""


def page(results: Results, faults: Sequence[Fault], healthy: Sequence[Healthy]) -> str:
    judged = results.judged(list(faults))
    whats = {fault.name: fault.what for fault in faults}
    parts = [
        HEAD.format(planted=judge.PLANTED),
        described(),
        summary(judged, results),
        "## Each rule\n",
        of_rules(judged, results),
        "## Each fault\n",
        of_faults(judged, whats),
        *expectations(faults),
        "## Predicted and measured\n",
        of_predictions(judged),
        "## Wrong or late\n",
        *(wrong(one) for one in judged if not one.first),
        "## Training runs without a fault\n",
        of_healthy(results, {one.name: one.what for one in healthy}),
    ]
    if results.problems:
        parts += [
            "## Not measured\n",
            "\n".join(f"- `{name}`: {why.strip()}" for name, why in results.problems.items()),
        ]
    return "\n".join(parts) + "\n"


def described() -> str:
    given = machine()
    return ", ".join(f"{name} {value}" for name, value in given.items()) + ".\n"


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "none"


def summary(judged: Sequence[Judged], results: Results) -> str:
    twins = [one.twin_free for one in judged if one.twin is not None]
    alarms = judge.alarms(results.healthy)
    runs = sum(map(len, results.healthy.values()))
    lines = [
        f"**{len(judged)} recordings of {len({one.name for one in judged})} faults: the right "
        f"cause is first in "
        f"{share(sum(one.first for one in judged), len(judged))}, among the first three in "
        f"{share(sum(one.among for one in judged), len(judged))}. High-severity findings in "
        f"{runs} recordings of healthy training runs: "
        f"{len(alarms)}.** Twins whose first finding is another one: "
        f"{share(sum(map(bool, twins)), len(twins))}.\n",
        *(f"- {alarm}" for alarm in alarms),
    ]
    return "\n".join(lines)


def of_rules(judged: Sequence[Judged], results: Results) -> str:
    head = ["rule", "planted", "first", "in the first three", "said first", "of them right"]
    rows = [
        [
            f"`{one.rule_id}`",
            str(one.planted),
            share(one.found, one.planted),
            share(one.among, one.planted),
            str(one.said),
            share(one.right, one.said),
        ]
        for one in judge.rules(judged, results.healthy)
    ]
    return table([head, *rows]) + "\n"


def of_faults(judged: Sequence[Judged], whats: dict[str, str]) -> str:
    head = ["fault", "expected", "findings", "first", "twin's first", "without it"]
    return table([head, *(fault_row(one, whats[one.name]) for one in judged)]) + "\n"


def fault_row(one: Judged, what: str) -> list[str]:
    twin = one.twin.findings[0].rule_id if one.twin and one.twin.findings else ""
    ratio = f"{one.ratio.text()}x" if one.ratio else ""
    applied = (
        " (" + ", ".join(f"{name}={value}" for name, value in one.settings.items()) + ")"
        if one.settings and ratio
        else ""
    )
    first = "yes" if one.first else "among three" if one.among else "**no**"
    return [
        f"`{one.name}`: {what}",
        " or ".join(one.expected),
        ", ".join(one.told[:4]),
        first,
        twin,
        ratio + applied,
    ]


def expectations(faults: Sequence[Fault]) -> list[str]:
    """Why two ids are right."""
    several = [fault for fault in faults if fault.why]
    whys = "\n".join(f"- `{fault.name}`: {fault.why}" for fault in several)
    return ["Faults for which either of two findings is right:\n", f"{whys}\n"] if several else []


def of_predictions(judged: Sequence[Judged]) -> str:
    told = judge.predictions(judged)
    lines = [
        f"- predictions: {errors(told.predicted)}; inside the printed interval: "
        f"{share(told.inside, told.intervals)}",
        f'- estimates from the cost ("about", "at most"), of the same findings: '
        f"{errors(told.at_most_of_predicted)}",
        f"- estimates, of all findings that name a cost: {errors(told.at_most)}",
        *(
            f"- refused, {number} time{'s' * (number != 1)}: {reason}"
            for reason, number in told.refused.items()
        ),
    ]
    rows = [prediction_row(one) for one in judged if one.ratio and one.finding]
    return (
        "\n".join(lines)
        + "\n\n"
        + table([["fault", "finding", "measured", "predicted", "by cost"], *rows])
        + "\n"
    )


def prediction_row(one: Judged) -> list[str]:
    assert one.ratio and one.finding
    ratios = [f"{ratio:.2f}" for ratio in one.predicted or ()]
    predicted = (
        ratios[0] + (f" [{ratios[1]}, {ratios[2]}]" if len(ratios) == 3 else "")
        if ratios
        else one.finding.refused or "-"
    )
    at_most = f"{one.at_most:.2f}" if one.at_most else "-"
    return [f"`{one.name}`", f"`{one.finding.rule_id}`", one.ratio.text(), predicted, at_most]


def errors(found: Errors | None) -> str:
    return (
        f"{found.count}, median error {100 * found.median:.1f} %, at most "
        f"{100 * found.largest:.0f} %"
        if found
        else "none"
    )


def wrong(one: Judged) -> str:
    said = "\n".join(
        f"  - `{finding.rule_id}` ({finding.severity}): {finding.message}"
        for finding in one.recorded.findings[:4]
    )
    return f"- `{one.name}`, expected {' or '.join(one.expected)}. {one.recorded.verdict}\n{said}"


def of_healthy(results: Results, whats: dict[str, str]) -> str:
    head = ["training", "first finding", "severity", "input, by its own timers"]
    rows = [
        [
            f"`{name}`: {whats.get(name, '')}",
            run.findings[0].rule_id,
            run.findings[0].severity,
            f"{100 * run.timed.input_share:.1f} %" if run.timed else "",
        ]
        for name, runs in results.healthy.items()
        for run in runs
        if run.findings
    ]
    return table([head, *rows]) + "\n"
