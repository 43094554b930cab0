"""What differs beside the measured quantities: findings, settings, versions, hardware."""

from collections.abc import Iterator, Mapping, Sequence

from feedline.analysis.diff.model import Differing, FindingChange
from feedline.analysis.diff.noise import FEWEST
from feedline.analysis.diff.side import Measured
from feedline.analysis.finding import Finding

CAME, WENT, STAYED = "came", "went", "stayed"
#: Properties of the machine that say what it is; others, such as free memory, vary.
HARDWARE = ("cpus", "effective_cpus", "affinity_cpus", "cpu_quota", "memory_bytes", "system", "gpus", "gpu")
#: Settings of a loader that say where it was made, and how much it has to do.
LOADER_ASIDE = ("made_at",)


def findings(before: Sequence[Measured], after: Sequence[Measured]) -> list[FindingChange]:
    """Those that came, went and stayed. With several runs of a side, a finding is there if most of them have it."""
    first, last = _findings(before), _findings(after)
    found = []
    for rule_id in dict.fromkeys([*last, *first]):
        old, new = first.get(rule_id), last.get(rule_id)
        change = STAYED if old and new else CAME if new else WENT
        shown = new or old
        assert shown is not None
        had, has = (one.severity.value if one else "" for one in (old, new))
        found.append(FindingChange(rule_id, change, had, has, shown.message))
    return sorted(found, key=lambda one: (CAME, WENT, STAYED).index(one.change))


def _findings(side: Sequence[Measured]) -> dict[str, Finding]:
    found: dict[str, list[Finding]] = {}
    for run in side:
        for finding in run.report.findings:
            found.setdefault(finding.rule_id, []).append(finding)
    return {rule_id: many[0] for rule_id, many in found.items() if 2 * len(many) > len(side)}


def settings(before: Sequence[Measured], after: Sequence[Measured]) -> list[Differing]:
    """Settings, versions and hardware that differ: what most likely explains a change comes first."""
    first, last = _described(before), _described(after)
    return [
        Differing(*key, first.get(key, ""), last.get(key, ""))
        for key in dict.fromkeys([*first, *last])
        if first.get(key, "") != last.get(key, "")
    ]


def _described(side: Sequence[Measured]) -> dict[tuple[str, str], str]:
    """(kind, name) -> value; all values where runs of a side differ."""
    rows: dict[tuple[str, str], list[str]] = {}
    for run in side:
        for key, value in _of_run(run):
            rows.setdefault(key, []).append(value)
    return {key: " or ".join(dict.fromkeys(values)) for key, values in rows.items()}


def _of_run(run: Measured) -> Iterator[tuple[tuple[str, str], str]]:
    report = run.report
    for loader in report.loaders:
        if loader.role == "training":
            yield ("loader", "kind"), loader.kind
            for name, value in loader.settings.items():
                if name not in LOADER_ASIDE:
                    yield ("loader", name), _text(value)
    yield ("training", "model"), report.run.model
    yield ("training", "optimizer"), report.run.optimizer
    yield ("training", "ranks"), str(report.run.ranks)
    yield from ((("version", name), value) for name, value in report.run.versions.items())
    machine: Mapping[str, object] = report.run.machine
    yield from ((("machine", name), _text(machine[name])) for name in HARDWARE if name in machine)
    yield from ((("environment", name), value) for name, value in run.environment.items())
    yield ("command", "command"), " ".join(report.run.command)


def _text(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def notes(before: Sequence[Measured], after: Sequence[Measured]) -> list[str]:
    """What limits the comparison."""
    found = []
    for side, runs in (("A", before), ("B", after)):
        for run in runs:
            name, steps = run.report.run.name, run.report.throughput.steps
            if run.report.run.state in ("cut", "live"):
                word = "was killed" if run.report.run.state == "cut" else "is still being recorded"
                found.append(f"{side}: {name} {word}: it may have stopped in a part of the training that the other has not reached")
            if steps < 2 * FEWEST:
                found.append(f"{side}: {name} has {steps} steps: too few to compare them")
            if run.report.headline:
                found.append(f"{side}: {run.report.headline}")
    models = {run.report.run.model for run in (*before, *after)} - {""}
    if len(models) > 1:
        found.append(f"The runs train different models ({', '.join(sorted(models))}): their steps are different work")
    if (len(before), len(after)) == (1, 1):
        found.append(
            "One run of each: how much two identical runs differ is estimated, not measured. To measure it, record two or more of each "
            "alternately, and compare them: feedline diff A1 A2 A3 -- B1 B2 B3"
        )
    return found
