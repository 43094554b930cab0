"""The report on a terminal, at most 80 columns wide.

The default report is one screen; all of it is in full_report.py. Both end with
the lines that say where the files are and what shows more.
"""

import io
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from feedline.analysis.convergence.checks import ACTIONS, ASIDE, COVERED_BY
from feedline.analysis.explain.model import Report
from feedline.analysis.explain.verdict import leading, shortest_fix
from feedline.analysis.ledger.finding import Finding, Gain, GainKind, Severity
from feedline.analysis.ledger.rule import Statement
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.measure.stages import INPUT_STAGES, OTHER, UNATTRIBUTED
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.report import document_markdown, document_text, full_report, phrases
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import (
    Alert,
    Bar,
    Bars,
    Block,
    Document,
    Field,
    Fields,
    Headline,
    Note,
    Table,
    Title,
)
from feedline.analysis.report.document_text import WIDTH
from feedline.analysis.report.full_report import details
from feedline.analysis.report.palette import family
from feedline.analysis.rules import BY_ID, is_applied_outside, is_set_up_mistake
from feedline.analysis.text.formatting import (
    Scale,
    called,
    counted,
    percent,
    rate,
    seconds,
    sentence,
)
from feedline.profiler.printable import printable_in

_MORE = 1.01  # times the rate: a change that gives less is not worth listing
_SMALL = 0.01  # of the step: stages below it are shown as one
_DIVIDED = 0.1  # of the step: an input that takes less is one row
_STAGES, _PARTS, _OTHERS = 5, 3, 3  # shown at most
_INPUT = "input"
_UNNAMED = (OTHER, UNATTRIBUTED)  # stages that say only what the time is not
_CLOSE = 10  # lines between places in one function, mostly
_WORKERS = "num_workers"
_OF_RUN = " of the whole run"  # the end of a unit: others are of the steps
_SHORT_FIX = 30  # letters: a longer one leaves no room for place and gain
#: Rows of the ledger below a stage -> what they are called.
_WITHIN = {"comm/transfer": "waits for transfer", "comm/late": "waits for late ranks", "gc": "gc"}
_BETWEEN_RANKS = "comm/"
_REST, _OTHER_CODE = "the rest", "loop code"
#: Stages whose names say too little without their description.
_SHOWN_AS = {"gradients": "zero_grad, clipping"}
_LINES = re.compile(r"lines (\d+) to (\d+)")
_LONG_NAME = 24  # letters: a longer one leaves no room for its bar
_ALIKE = 1.05  # times the fastest rank's step: below, all ranks' are as long
_NEXT_WITHOUT_STEPS = "feedline env  # what can be recorded on this machine, and what cannot"


def render(report: Report) -> str:
    """Return all of the report as plain text, 80 columns wide."""
    file = io.StringIO()
    show(
        report, Console(file=file, width=WIDTH, color_system=None, force_terminal=False), full=True
    )
    return file.getvalue()


def render_markdown(report: Report) -> str:
    """Return the first screen of the report as Markdown."""
    return document_markdown.render(first_screen(report))


def show(
    report: Report,
    console: Console,
    full: bool = False,
    files: Sequence[Path] = (),
    run: Path | None = None,
) -> None:
    """Print the report.

    Args:
        full: all of it, however long.
        files: those just written, for the line that says where the report is.
        run: its folder, for who may know where it is; None: as the report has it, perhaps masked.
    """
    report = printable_in(report)
    said = _full_report(report) if full else first_screen(report)
    end = places(list(_places(report, files, full, run)))
    document_text.show(Document((*said.blocks, end)), console)


def _full_report(report: Report) -> Document:
    about = Title(tuple(phrases.about(report.run)))
    return Document((about, *_conclusion(report), *details(report)))


def _places(
    report: Report, files: Sequence[Path], full: bool, folder: Path | None
) -> Iterable[tuple[str, str]]:
    """Yield where the report is, and the commands that show more and prove it."""
    files = sorted(files, key=lambda file: file.suffix.lower() != ".html")
    run = (
        phrases.run_place(report.run)
        if folder is None
        else shlex.quote(min(os.path.relpath(folder), str(folder), key=len))
    )
    if files:
        yield "Report", os.path.relpath(files[0])
    if report.step is None:
        if not report.headline and not report.findings:
            # else those come first: a crash, Ctrl-C, a full disk, an empty loader
            if not report.loaders and phrases.refused_that_matter(report.hooks):
                yield "Next", _NEXT_WITHOUT_STEPS
        return
    if not full:
        yield "More", f"feedline report {run} --full"
    elif not any(file.suffix.lower() == ".html" for file in files):
        yield "HTML", f"feedline report {run} --html"
    if _can_be_tried(report):
        yield "Test", f"feedline verify {run}"


def _can_be_tried(report: Report) -> bool:
    """Whether ``feedline verify`` can make the change of the verdict, and its gain is predicted."""
    top = next((one for one in report.findings if one.rule_id == report.verdict.finding), None)
    return top is not None and top.predicted is not None and is_applied_outside(top)


def places(rows: Sequence[tuple[str, str]]) -> Fields:
    """Return the lines that say where files are and what shows more."""
    return Fields(tuple(Field(label, text, copied=True) for label, text in rows))


def first_screen(report: Report) -> Document:
    """Return the default report of a run, without the lines that say where files are."""
    return Document(tuple(_blocks(report)))


def _blocks(report: Report) -> Iterable[Block]:
    yield Title(tuple(_title(report)))
    yield from _conclusion(report)
    if report.step is not None and report.step.stages:
        most = _STAGES - 2 * (report.run.ranks > 1) - bool(report.headline)
        top = leading(report.findings)
        yield _stages(report.step, most, report.ledger, top.claims if top is not None else ())
    if said := _ranks(report):
        yield Note(said)
    if others := _others(report):
        yield Table(others, label="Also")


def _conclusion(report: Report) -> Iterable[Block]:
    """Return what limits the run, what to change, and what that gives."""
    if known := " ".join(filter(None, (report.headline, report.verdict.caveat))):
        yield Alert(known)
    yield Headline(report.verdict.limit, report.verdict.cause)
    if fields := tuple(_advice(report)):
        yield Fields(fields, indented=True)


def _title(report: Report) -> Iterable[str]:
    """Yield name, ranks, steps of how long, and the rate; what is unknown is left out."""
    pace, step = report.throughput, report.step
    yield report.run.name
    if report.run.ranks > 1:
        yield counted(report.run.ranks, "rank")
    if step is not None and step.boundary != "none":
        steps = "batch" if step.boundary == "loader" else "step"
        yield f"{counted(pace.steps, steps)} of {seconds(step.mean_s)}"
    if pace.of_all_ranks is not None:
        yield f"{rate(pace.of_all_ranks)} samples/s"
    elif pace.steps_per_s is not None:
        yield f"{rate(pace.steps_per_s)} steps/s"


def _advice(report: Report) -> Iterable[Field]:
    """Yield the line to change, on which condition, and what that gives."""
    verdict = report.verdict
    if verdict.fix:
        yield Field("Fix", verdict.fix, phrases.place_beside(verdict))
    if verdict.condition:
        yield Field("", f"{sentence(verdict.condition)}.")
    yield from (
        Field("" if number else "Gain", line)
        for number, line in enumerate(full_report.gains(report))
    )


def _stages(step: StepSummary, most: int, ledger: Ledger | None, told: Collection[str]) -> Bars:
    """Return the stages of the mean step, largest first; those that are hardly there as one.

    What the verdict calls the input is one row, with its stages below it. So is what ranks and
    garbage collections take of other stages. Time in no stage has rows by what it was spent on,
    as far as that is known; if much of it is not, that is the row of other code.

    Args:
        most: How many rows, besides those of parts.
        told: Rows of the ledger that the verdict tells.
    """
    total = sum(step.stages.values()) or 1.0
    on_gpu = step.gpu_stages or {}
    inside = {name: s for name, s in step.stages.items() if name in INPUT_STAGES}
    known = _costly(ledger, OTHER, _DIVIDED * total, told)
    whole = {
        name: s for name, s in step.stages.items() if name not in inside and name not in _UNNAMED
    }
    if inside:
        whole[_INPUT] = sum(inside.values())
    whole |= {name: s for name, s in known if name not in whole}
    unnamed_s = step.stages.get(OTHER, 0.0) - _named_s(ledger, {name for name, _ in known})
    if unnamed_s >= _DIVIDED * total:
        whole[_OTHER_CODE] = unnamed_s
    if "loss" in whole and ledger is not None and ledger.step is not None:  # what they have of it
        whole["loss"] -= sum(
            _of_loss_s(ledger.step, row)
            for row in ledger.step.under(OTHER)
            if _name(row) in dict(known)
        )
    ordered = sorted(whole.items(), key=lambda stage: -stage[1])
    large = [(name, s) for name, s in ordered if s >= _SMALL * total or name in on_gpu]
    left_s = total - sum(s for _, s in large)
    if len(large) + (left_s >= _SMALL * total) > most:  # what is left has a row as well
        large = large[: most - 1]
    rest_s = total - sum(s for _, s in large)
    scale = Scale.of_seconds(max((s for _, s in ordered), default=0.0), digits=3)

    def bar(name: str, s: float, of: str, inside: bool = False) -> Bar:
        figures = (*_figures(s, total, scale), *_gpu(on_gpu, name, scale))
        return Bar(_SHOWN_AS.get(name, name), figures, s / total, family(of), inside)

    rows = []
    for name, s in large:
        if name == _INPUT:
            parts = _parts(inside, 2 * _SMALL * total) if s >= _DIVIDED * total else []
        else:
            parts = _costly(ledger, name, _DIVIDED * total, told)
        of = max(inside, key=inside.__getitem__) if name == _INPUT else name
        rows.append(bar(name, s, of if of in step.stages else OTHER))
        rows += [bar(part, part_s, part, inside=True) for part, part_s in parts]
    if rest_s >= _SMALL * total:
        rows.append(Bar(_REST, _figures(rest_s, total, scale), rest_s / total))
    return Bars(tuple(rows), ("step", "", "GPU span") if on_gpu else ())


def _parts(inside: dict[str, float], least_s: float) -> list[tuple[str, float]]:
    """Return the stages of the input that are worth a row; none where it is a single wait."""
    parts = sorted(inside.items(), key=lambda stage: -stage[1])[:_PARTS]
    large = [(name, s) for name, s in parts if s >= least_s]
    return [] if {name for name, _ in large} <= {"wait", _INPUT} else large


def _costly(
    ledger: Ledger | None, stage: str, least_s: float, told: Collection[str]
) -> list[tuple[str, float]]:
    """Return what ranks and garbage collections take of a stage, if it is much.

    Of time in no stage, also what functions of the program take, and what every nth step does.
    What the verdict tells is left out: it may be about another rank.
    """
    if ledger is None or ledger.step is None:
        return []
    between = any(row.startswith(f"{stage}/{_BETWEEN_RANKS}") for row in told)
    known: dict[str, float] = defaultdict(
        float,
        {
            name: ledger.step.total_s(f"{stage}/{path}")
            for path, name in _WITHIN.items()
            if not (between and path.startswith(_BETWEEN_RANKS))
        },
    )
    for row in ledger.step.under(stage) if stage == OTHER else ():
        if name := _name(row):
            known[name] += row.s + _of_loss_s(ledger.step, row)
    return [(name, s) for name, s in known.items() if s >= least_s]


def _named_s(ledger: Ledger | None, known: Collection[str]) -> float:
    """Return the seconds of time in no stage that rows of these names show."""
    if ledger is None or ledger.step is None:
        return 0.0
    within = [f"{OTHER}/{path}" for path, name in _WITHIN.items() if name in known]
    rows = [row for row in ledger.step.under(OTHER) if _name(row) in known]
    return sum(row.s for row in rows) + ledger.step.total_s(*within)


def _of_loss_s(table: LedgerTable, row: LedgerRow) -> float:
    """Return what the same code takes between a forward pass and its backward pass; 0: hardly any."""
    loss_s = table.total_s(f"loss/{row.where.partition('/')[2]}")
    return loss_s if loss_s >= _SMALL * row.s else 0.0


def _name(row: LedgerRow) -> str:
    """Return what a row of time in no stage is called; empty: it has no name."""
    _, _, path = row.where.partition("/")
    if path == "periodic":
        return f"extra every {row.period:.0f} steps" if row.period else ""
    of, _, name = path.partition("/")
    if of != "user":
        return ""
    shown = called(name)
    if row.place and (lines := _LINES.fullmatch(name)):
        shown = f"{row.place.partition(':')[0].rpartition('/')[2]}:{lines[1]}-{lines[2]}"
    return shown if len(shown) <= _LONG_NAME else f"code in {row.place}"


def _figures(s: float, total: float, scale: Scale) -> tuple[str, str]:
    return scale.full(s), percent(s / total)


def _gpu(on_gpu: dict[str, float], name: str, scale: Scale) -> tuple[str, ...]:
    return (scale.full(on_gpu[name]) if name in on_gpu else "",) if on_gpu else ()


def _ranks(report: Report) -> str:
    """Say which rank is shown, and how far the ranks' steps are apart; empty for one rank."""
    means = {rank: own.mean_s for rank, own in report.ranks.items() if own.mean_s}
    if len(means) < 2:
        return ""
    slowest, fastest = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    shown = min(report.ranks, key=lambda rank: int(rank) if rank.isdecimal() else 0)
    if report.shown is not None:
        shown = str(report.shown)
    times = seconds(means[fastest]), seconds(means[slowest])
    if means[slowest] <= _ALIKE * means[fastest]:
        return f"Showing rank {shown}."
    return (
        f"Showing rank {shown}. The mean step takes {times[0]} on rank {fastest}, {times[1]} on "
        f"rank {slowest}."
    )


def _others(report: Report) -> tuple[tuple[str, ...], ...]:
    """Return other changes: what to do, where, and what that gives.

    Where nothing is known of that, it is how much of the step they are about.

    Each is at another line: what a second finding says of one is in the full report, as is what
    else costs time where the first says that the training is not the one that was meant.
    """
    top = leading(report.findings)
    if top is not None and _comes_alone(top):
        return ()
    asking: list[Finding] = []
    shown = [top] if top is not None else []
    checks = report.convergence.checks if report.convergence else []
    told = {finding.rule_id for finding in report.findings} | {*ASIDE}
    for finding in [*report.findings, *(check for check in checks if check.rule_id not in told)]:
        if finding is top or finding.severity is Severity.INFO or not _action(finding):
            continue
        if _gives_nothing(_gained(finding, top)):
            continue
        if COVERED_BY.get(finding.rule_id) in told:
            continue
        if any(_is_told_by(finding, other) for other in shown):
            continue
        shown.append(finding)
        asking.append(finding)
    mean_s = report.step.mean_s if report.step else 0.0
    rows = [_other(finding, top, mean_s) for finding in asking[:_OTHERS]]
    filled = [any(column) for column in zip(*rows)]
    return tuple(tuple(cell for cell, of in zip(row, filled) if of) for row in rows)


def _gained(finding: Finding, top: Finding | None) -> Gain | None:
    """Return what a fix gives; of the whole run, where that is what the verdict tells."""
    gained, first = finding.gain, top.gain if top is not None else None
    if first is None or gained is None or not first.before or not gained.before:
        return gained
    if first.unit != f"{gained.unit}{_OF_RUN}" or not gained.after:
        return gained
    steps = first.before / gained.before  # their share of the run
    after = first.before / (1 - steps * (1 - gained.before / gained.after))
    return Gain(gained.kind, first.unit, first.before, after)


def _gives_nothing(gained: Gain | None) -> bool:
    """Return whether the fix is predicted to leave the rate as it is."""
    if gained is None or gained.kind is not GainKind.PREDICTED:
        return False
    return (gained.after or 0.0) < _MORE * (gained.before or 0.0)


def _comes_alone(top: Finding) -> bool:
    """Return whether a finding makes others idle: the training is another one, or ends by it."""
    rule = BY_ID.get(top.rule_id)
    ends = rule is not None and rule.ends_training
    return top.severity is Severity.HIGH and (ends or is_set_up_mistake(top))


def _is_told_by(finding: Finding, shown: Finding) -> bool:
    """Return whether a finding asks for what one that is shown asks for.

    Samples that fill the CPUs do so where one that is shown says what of them takes long. So does
    what names neither line nor setting, where one that is shown names the line of the same time.
    """
    rule, part, claimed = BY_ID.get(finding.rule_id), {*shown.claims}, {*finding.claims}
    fills = rule is not None and rule.states is Statement.CPUS_FULL and not finding.place
    of_a_whole = fills and bool(part) and part < claimed
    vague = bool(shown.place and claimed) and not finding.place and not finding.settings
    return (
        (finding.fix or None) == shown.fix
        or of_a_whole
        or (vague and claimed <= part)
        or _is_of_the_same_code(finding, shown)
    )


def _is_of_the_same_code(finding: Finding, shown: Finding) -> bool:
    """Return whether both name a line, or lines close together that take the same time."""
    if not finding.place or not shown.place:
        return False
    (file, line), (other, other_line) = _file_and_line(finding.place), _file_and_line(shown.place)
    if file != other or line == other_line:
        return file == other
    return abs(line - other_line) <= _CLOSE and bool({*finding.claims} & {*shown.claims})


def _file_and_line(place: str) -> tuple[str, int]:
    """Split ``train.py:31`` into ``train.py`` and 31; the line is 0 if there is none."""
    file, _, line = place.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (place, 0)


def _other(finding: Finding, top: Finding | None, mean_s: float) -> tuple[str, str, str]:
    gained = _gained(finding, top)
    then = finding.gives
    if gained is not None and gained.after is not None and gained.before is not None:
        then = f"{rate(gained.before)} -> {full_report.rate_after(gained)}"
        if gained.kind is GainKind.PREDICTED and (supposed := full_report.predicting(finding)):
            then += f" {supposed}"
        first = top.gain if top is not None else None
        if gained.unit.endswith(_OF_RUN) and (first is None or first.unit != gained.unit):
            then += _OF_RUN
    action = _whole_action(finding, top)
    return action, finding.place or ("" if then else _weight(finding, mean_s)), then


def _whole_action(finding: Finding, top: Finding | None) -> str:
    """Return what to do; of other programs, with the workers that freed CPUs are for.

    It comes first where it gives more than what the verdict tells, which goes before it because it
    is the training's own.
    """
    rule, action = BY_ID.get(finding.rule_id), _action(finding)
    if rule is None or not rule.of_others:
        return action
    workers = finding.settings.get(_WORKERS)
    gives_more = top is not None and _rate(_gained(finding, top)) > _rate(top.gain) > 0
    first = "first " if gives_more else ""
    return f"{first}{action}{f', then {_WORKERS}={workers}' if workers is not None else ''}"


def _rate(gained: Gain | None) -> float:
    return (gained.after or 0.0) if gained is not None else 0.0


def _action(finding: Finding) -> str:
    """Return what to do, in a few words; empty: the finding names no change."""
    rule, fix = BY_ID.get(finding.rule_id), shortest_fix(finding).removesuffix(".")
    if 0 < len(fix) <= _SHORT_FIX:
        return fix if fix[:2].isupper() else f"{fix[0].lower()}{fix[1:]}"
    if finding.action:
        return finding.action
    return rule.action if rule is not None else ACTIONS.get(finding.rule_id, "")


def _weight(finding: Finding, mean_s: float) -> str:
    """Say how much of the step it costs; empty: that is not known."""
    if finding.cost_s <= 0 or mean_s <= 0:
        return ""
    return f"{percent(min(1.0, finding.cost_s / mean_s))} of the step"
