"""What differs beside the measured quantities: findings, settings, versions, hardware.

A finding that a report lacks may be true all the same: then its absence proves nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from feedline.analysis.convergence.checks import DIVERGED
from feedline.analysis.diff.run_diff import Differing, FindingChange
from feedline.analysis.diff.side import MEASURED, ComparedRun
from feedline.analysis.explain.model import MAX_FINDINGS, Report
from feedline.analysis.ledger.finding import Finding, Severity
from feedline.analysis.ledger.rule import Needs, Statement
from feedline.analysis.measure.noise import MIN_COMPARED
from feedline.analysis.rules import (
    BY_ID,
    CROSS_RANK,
    DATA,
    ENDED,
    INPUT,
    LOOP,
    MACHINE,
    OTHERWISE,
    TRACE,
    first_stating,
)
from feedline.analysis.text.formatting import counted, rate

_OF_INPUT = {rule.rule_id for rule in INPUT}
_OF_RANKS = {rule.rule_id for rule in CROSS_RANK}
_OF_LOOP = {rule.rule_id for rule in LOOP}
#: None of them is left out for others (explain/diagnose.py).
_NEVER_LEFT_OUT = {*_OF_LOOP, *(rule.rule_id for rule in (*DATA, *ENDED))}
_OF_RUNS = {
    *_OF_INPUT,
    *_OF_RANKS,
    *_NEVER_LEFT_OUT,
    *(rule.rule_id for rule in (*MACHINE, *OTHERWISE)),
}
_OF_TRACES = {*_OF_RANKS, *(rule.rule_id for rule in TRACE)}
#: For information: none of them is left out for others.
_ALWAYS = (
    Statement.NOT_HELD,
    Statement.INPUT_BORDERLINE,
    Statement.UNKNOWN,
    Statement.INPUT_UNSEEN,
)
#: In whose place no rule about the input was tried.
_INSTEAD = (Statement.INPUT_UNSEEN, Statement.INPUT_BORDERLINE, Statement.INPUT_IN_STEP)
_CAME, _WENT, STAYED, UNJUDGED = "came", "went", "stayed", "unjudged"
#: Properties of the machine that say what it is, beside its GPUs; others, such as free memory,
#: vary.
_HARDWARE = (
    "cpu_model",
    "cpus",
    "effective_cpus",
    "affinity_cpus",
    "cpu_quota",
    "memory_bytes",
    "system",
)
#: Those that decide how long a step takes.
_SPEED = ("cpu_model", "cpus", "effective_cpus", "affinity_cpus", "cpu_quota", "gpus")
_NOT_SEEN, _UNKNOWN = "not seen", "unknown"
#: Kind -> what is said of a value that a side does not have, although it tells others of the kind.
_ABSENT = {"loader": "not set", "environment": "not set", "version": "not loaded"}
#: What every stage depends on.
_SHARED = (("version", "python"), ("version", "torch"), ("machine", "system"), ("machine", "cpus"))
#: Classes around a model that say nothing of what it computes.
_WRAPPERS = (
    "OptimizedModule",
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
    "DeepSpeedEngine",
)
#: Settings of a loader that do not decide how fast it is.
_LOADER_ASIDE = (
    "made_at",
    "torchs_dispatch",
    "torchs_sampler",
    "replacement",
    "sample_code",
    "asks_for_worker",
    "dataset_library",
    "resampled",
    "dataset_changes",
)


def why_rule_unjudged(run: ComparedRun, rule_id: str) -> str:
    """Say why the report could lack this finding although it is true; "": it would have it.

    Checks of the setup are never left out.
    """
    report = run.report
    if nothing := _message(report, Statement.UNKNOWN):
        return nothing
    if rule_id not in BY_ID:
        return (
            "" if report.convergence is not None else "how the training is set up was not recorded"
        )
    if rule_id not in (_OF_TRACES if report.traces else _OF_RUNS):
        return (
            f"only {'recorded runs' if report.traces else 'traces of other tools'} are checked "
            f"for it"
        )
    if rule_id in _OF_RANKS and _is_alone(run):
        return ""
    if unseen := _why_unjudged(run, rule_id):
        return unseen
    asking = [
        finding
        for finding in report.findings
        if finding.severity is not Severity.INFO and finding.rule_id not in _OF_LOOP
    ]
    always = BY_ID[rule_id].states in _ALWAYS or rule_id in _NEVER_LEFT_OUT
    if always or len(asking) < MAX_FINDINGS:
        return ""
    told = ", ".join(finding.rule_id for finding in asking)
    return (
        f"it may be left out: a report has at most {MAX_FINDINGS} findings that ask for a "
        f"change ({told})"
    )


def why_severity_unjudged(run: ComparedRun, severity: str) -> str:
    """Say why the report could lack a finding of this severity or a higher one.

    A borderline input takes too little of the step to hide a high one.
    """
    gate = () if severity == Severity.HIGH.value else (Statement.INPUT_BORDERLINE,)
    unseen = _message(run.report, Statement.UNKNOWN, Statement.INPUT_UNSEEN, *gate)
    return unseen or _late_unseen(run)


def _why_unjudged(run: ComparedRun, rule_id: str) -> str:
    """Say why the rule had too little to look at."""
    report, needs = run.report, BY_ID[rule_id].needs
    if needs is Needs.CLOCKS:
        return _late_unseen(run)
    if rule_id in _OF_RANKS:
        return _ranks_unseen(run) or (_network_unseen(report) if needs is Needs.NETWORK else "")
    if needs is Needs.TRACED_INPUT:
        return _message(report, Statement.INPUT_UNSEEN)
    if needs is Needs.OTHER_PROGRAMS:
        sampled = (
            report.cpus is not None
            and report.cpus.own is not None
            and report.cpus.others is not None
        )
        return "" if sampled else "CPU use by other programs was not sampled"
    return _input_unseen(report) if rule_id in _OF_INPUT else ""


def _message(report: Report, *statements: Statement) -> str:
    finding = first_stating(report.findings, *statements)
    return finding.message if finding is not None else ""


def _is_alone(run: ComparedRun) -> bool:
    """Tell whether the run has only one rank.

    Traces may not contain the number of ranks, so theirs must also show that no communication ran.
    """
    report = run.report
    silent = report.traces is None or all(
        rank.gpu is not None and rank.gpu.ran_no_communication for rank in report.ranks.values()
    )
    return silent and max(run.world, report.run.ranks) == 1


def _ranks_unseen(run: ComparedRun) -> str:
    unseen = not _is_alone(run) and run.report.comm is None
    return "how long ranks wait for each other was not recorded" if unseen else ""


def _late_unseen(run: ComparedRun) -> str:
    comm, there = run.report.comm, len(run.report.ranks)
    if comm is None:
        return _ranks_unseen(run)
    if comm.clock_bound_s is None:
        return "the clocks of the ranks cannot be compared, so which rank was late is unknown"
    world = max([run.world, run.report.run.ranks, *(kind.n for kind in comm.collectives)])
    return (
        f"only {there} of {world} ranks were recorded, so which rank was late is unknown"
        if there < world
        else ""
    )


def _network_unseen(report: Report) -> str:
    known = report.comm is not None and report.comm.network_share is not None
    return "" if known else "how fast the network should be is unknown"


def _input_unseen(report: Report) -> str:
    if instead := _message(report, *_INSTEAD):
        return f"not looked for: {instead}"
    looked_at = report.workers is not None and report.workers.samples_in_detail
    return (
        "" if looked_at or _message(report, Statement.NOT_HELD) else "no sample was timed in detail"
    )


def changed_findings(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun]
) -> list[FindingChange]:
    """List findings that came, went and stayed.

    With several runs of a side, a finding is there if most of them have it. One that a side lacks,
    but may only have been unable to see, did not come or go.
    """
    first, last = _findings(before), _findings(after)
    changes = []
    for rule_id in dict.fromkeys([*last, *first]):
        old, new = first.get(rule_id), last.get(rule_id)
        change = STAYED if old and new else _CAME if new else _WENT
        if any(
            why_rule_unjudged(run, rule_id)
            for run in (() if old and new else before if new else after)
        ):
            change = UNJUDGED
        shown = new or old
        assert shown is not None
        had, has = (finding.severity.value if finding else "" for finding in (old, new))
        changes.append(FindingChange(rule_id, change, had, has, shown.message))
    return sorted(changes, key=lambda item: (_CAME, _WENT, UNJUDGED, STAYED).index(item.change))


def _findings(side: Sequence[ComparedRun]) -> dict[str, Finding]:
    by_rule: dict[str, list[Finding]] = {}
    for run in side:
        for rule_id, finding in {
            finding.rule_id: finding for finding in run.report.findings
        }.items():
            by_rule.setdefault(rule_id, []).append(finding)
    return {rule_id: many[0] for rule_id, many in by_rule.items() if 2 * len(many) > len(side)}


def differing_settings(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun]
) -> list[Differing]:
    """List settings, versions and hardware that differ.

    What most likely explains a change comes first. What a side cannot know does not differ: of a
    whole kind that is one line, and a property of the machine is left out.
    """
    first, last = _described(before), _described(after)
    untold = (_kinds(before, first) ^ _kinds(after, last)) - {"machine"}
    listed: dict[tuple[str, str], Differing] = {}
    for kind, name in dict.fromkeys([*first, *last]):
        old, new = first.get((kind, name), ""), last.get((kind, name), "")
        unknown = kind == "machine" and name in _HARDWARE and not (old and new)
        if kind in untold:
            whole = _of_kind(first, kind), _of_kind(last, kind)
            listed.setdefault((kind, kind), Differing(kind, kind, *whole))
        elif old != new and not unknown:
            absent = _ABSENT.get(kind, _NOT_SEEN)
            listed[kind, name] = Differing(kind, name, old or absent, new or absent)
    return list(listed.values())


def _kinds(side: Sequence[ComparedRun], described: Mapping[tuple[str, str], str]) -> set[str]:
    """Return the kinds of settings of which the runs of a side tell something.

    A recorded run without any variable tells that none is set.
    """
    recorded = any(run.report.traces is None for run in side)
    return {kind for kind, _ in described} | ({"environment"} if recorded else set())


def _of_kind(described: Mapping[tuple[str, str], str], kind: str) -> str:
    """Say in a word or two what a side tells of a whole kind."""
    if not any(kind == one for one, _ in described):
        return _NOT_SEEN if kind == "loader" else _UNKNOWN
    name = "kind" if kind == "loader" else kind
    return described.get((kind, name), "known")


def _described(side: Sequence[ComparedRun]) -> dict[tuple[str, str], str]:
    """Return the value of each (kind, name); all values where runs of a side differ."""
    rows: dict[tuple[str, str], list[str]] = {}
    for run in side:
        for key, value in _of_run(run):
            if value:
                rows.setdefault(key, []).append(value)
    return {key: " or ".join(dict.fromkeys(values)) for key, values in rows.items()}


def _of_run(run: ComparedRun) -> Iterator[tuple[tuple[str, str], str]]:
    report = run.report
    for loader in report.loaders:
        if loader.role == "training":
            yield ("loader", "kind"), loader.kind
            for name, value in loader.settings.items():
                if name not in _LOADER_ASIDE:
                    yield ("loader", name), _text(value)
    yield ("training", "model"), report.run.model
    yield ("training", "optimizer"), report.run.optimizer
    yield ("training", "ranks"), str(report.run.ranks)
    recorded = report.traces is None  # else these are of the command that read the traces
    if recorded:
        yield from ((("version", name), value) for name, value in report.run.versions.items())
    machine: Mapping[str, object] = report.run.machine
    yield from ((("machine", name), _text(machine[name])) for name in _HARDWARE if name in machine)
    yield ("machine", "gpus"), _gpus(machine.get("gpus"))
    yield from ((("environment", name), value) for name, value in run.environment.items())
    if recorded:
        yield ("command", "command"), " ".join(report.run.command)


def _gpus(listed: object) -> str:
    """Name the GPUs: ``8 x NVIDIA H100``.

    What else is known of each, such as its PCIe link's present speed, differs from hour to hour.
    """
    if isinstance(listed, str):  # of traces, the names alone
        return listed
    names = (
        Counter(str(window.get("name") or "GPU") for window in listed if isinstance(window, dict))
        if isinstance(listed, list)
        else {}
    )
    return ", ".join(f"{times} x {name}" for name, times in sorted(names.items()))


def _text(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def different_work(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> list[str]:
    """Say in clauses why a step of B is not the same work as one of A.

    Batches of other sizes are left aside: they are compared by sample.
    """
    return [
        f"{what} {' or '.join(first)} -> {' or '.join(last)}"
        for what, of in _WORK.items()
        if (first := _each(before, of)) and (last := _each(after, of)) and first != last
    ]


def shared_differences(differing: Sequence[Differing]) -> list[Differing]:
    """Return what differs that all stages depend on.

    It makes CPU time longer or shorter as a slower or faster CPU does.
    """
    return [item for item in differing if (item.kind, item.name) in _SHARED]


def how_diverged(run: ComparedRun) -> str:
    """Say how the loss of a run was lost; "": it was not.

    Steps of such a training may be skipped, and say little of one that works.
    """
    convergence = run.report.convergence
    checks = convergence.checks if convergence is not None else []
    return next((finding.message for finding in checks if finding.rule_id in DIVERGED), "")


def different_machine(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> list[str]:
    """List differing properties of the machine that decide how long a step takes.

    Those that a side does not know are not compared.
    """
    known = [
        name for name in _SPEED if all(name in run.report.run.machine for run in (*before, *after))
    ]
    return [
        f"{item.name} {item.before} -> {item.after}"
        for item in differing_settings(before, after)
        if item.name in known
    ]


def _each(runs: Sequence[ComparedRun], of: Callable[[ComparedRun], str]) -> list[str]:
    return list(dict.fromkeys(value for run in runs if (value := of(run))))


def _model(run: ComparedRun) -> str:
    """Return the class of the model; "" where only what it is wrapped in is known."""
    name = run.report.run.model
    return "" if name in _WRAPPERS else name.removeprefix("FSDP")


#: What makes steps different work -> how a run says it.
_WORK: dict[str, Callable[[ComparedRun], str]] = {
    "recorded by": lambda run: "another tool" if run.report.traces else "feedline",
    "model": _model,
    "ranks": lambda run: str(run.report.run.ranks),
    "steps cut by": lambda run: run.report.step.boundary if run.report.step else "",
    "batch size": lambda run: (
        "" if run.report.step is None else "unknown" if run.batch is None else "known"
    ),
}


def comparison_notes(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> list[str]:
    """List what limits the comparison."""
    listed = [
        f"{side}: {note}"
        for side, runs in (("A", before), ("B", after))
        for run in runs
        for note in _of_one(run)
    ]
    if work := different_work(before, after):
        listed.append(f"Steps do different work: {'; '.join(work)}")
    if len({run.report.run.ranks for run in (*before, *after)}) > 1:
        listed.append(_of_all_ranks(before, after))
    if machine := different_machine(before, after):
        listed.append(f"The machines differ: {'; '.join(machine)}")
    if len(before) + len(after) < MEASURED + 2:
        listed.append(
            "How much two identical runs differ is estimated, not measured. To measure it, record "
            "two or more of each "
            "alternately, and compare them: feedline diff A1 A2 A3 -- B1 B2 B3"
        )
    return listed


def _of_one(run: ComparedRun) -> Iterator[str]:
    """Return what limits what a run says."""
    name, steps, state = run.report.run.name, run.report.throughput.steps, run.report.run.state
    if state in ("cut", "live"):
        word = "was killed" if state == "cut" else "is still being recorded"
        yield (
            f"{name} {word}: it may have stopped in a part of the training that the other has "
            f"not reached"
        )
    if steps < MIN_COMPARED:
        yield (
            f"{name} has {counted(steps, 'step')}: {MIN_COMPARED} or more are needed to "
            f"compare them"
        )
    if run.unread:
        yield (
            f"{name}: no figure includes rank {', '.join(map(str, run.unread))}, whose records "
            f"cannot be read"
        )
    if run.report.headline:
        yield run.report.headline


def _of_all_ranks(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> str:
    """Return the throughput of the whole training, where steps are those of a rank."""
    rates = [[run.report.throughput.of_all_ranks for run in side] for side in (before, after)]
    known = [
        sum(each for each in side if each is not None) / len(side)
        for side in rates
        if None not in side
    ]
    whole = (
        f"; all ranks together: {rate(known[0])} -> {rate(known[1])} samples/s"
        if len(known) == 2
        else ""
    )
    return f"The numbers of ranks differ; steps of one rank each are compared{whole}"
