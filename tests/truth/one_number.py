"""Finds where a report contradicts itself: two sentences with different numbers for one quantity,
parts that exceed their total, and findings whose cost does not follow from the report's own stages,
waits and workers."""

import html
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truth.costs import Bar, allowed, recomputed
from truth.figures import of_finding, of_report, unknown

from feedline.analysis.explain.model import Report
from feedline.analysis.explain.reports_of_run import holds_traces, recorded_report
from feedline.analysis.explain.reports_of_run import traced_report as of_traces
from feedline.analysis.ranks.many.rank_pool import here
from feedline.analysis.report import html_report, terminal
from feedline.analysis.report.json_report import plain
from feedline.analysis.text import formatting
from feedline.profiler.store import trainings as trained
from feedline.profiler.store.trainings import trainings

COLUMNS = ("wall_s", "cpu_s", "runqueue_s", "blocked_s")
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
TIME, SHARE = r"([\d.,]+ (?:ns|µs|ms|s))\b", r"(<?[\d.]+ %)"
RATE = r"([\d.,]*\d)"
PRINTED = 0.006  # three digits
ORDER = ("high", "low", "info")


def check(report: Report) -> None:
    """Fail with everything that one report says twice and differently, as JSON, in the terminal and
    in HTML.
    """
    told: Any = plain(report)
    texts = [" ".join(terminal.render(report).split()), text_of(html_report.render(report))]
    found = [
        *sums(told),
        *costs(told),
        *predictions(told),
        *intervals(told),
        *order(told),
        *spoken(told, texts),
    ]
    found += [problem for text in texts for problem in sentences(told, text)]
    assert not found, "\n".join([report.run.name, *dict.fromkeys(found)])


def check_run(folder: Path) -> None:
    """The same of every training in a run folder."""
    for training in trainings(folder):
        if holds_traces(training.run):
            with here() as pool:
                check(of_traces(training.run, pool))
            continue
        for run in trained.split_run(training.run):
            check(recorded_report(run))


def text_of(page: str) -> str:
    """What a browser shows of a page, in one line."""
    for tag in ("script", "style", "svg", "svg", "svg"):  # figures within figures
        page = re.sub(rf"<{tag}\b(?:(?!<{tag}\b).)*?</{tag}>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def alike(one: float, other: float, rel: float = 1e-6) -> bool:
    return abs(one - other) <= rel * max(abs(one), abs(other)) + 1e-9


def sums(told: Any) -> Iterator[str]:
    """Parts that do not add up to their total, or exceed it."""
    step, ranks = told["step"], told["ranks"]
    if step is None:
        return
    if not alike(sum(step["stages"].values()), step["mean_s"], 0.01):
        yield f"the stages sum to {sum(step['stages'].values())}, the mean step is {step['mean_s']}"
    waits = sum(step["waits"].values())
    if not alike(waits, step["stages"].get("wait", 0.0), 0.01):
        yield f"the kinds of waiting sum to {waits}, waiting is {step['stages'].get('wait')}"
    parts = told["workers"]["per_sample"] if told["workers"] else {}
    for column in COLUMNS:
        whole = parts.get("total", {}).get(column)
        inside = sum(
            cost[column] or 0.0
            for stage, cost in parts.items()
            if stage not in ("total", "transport")
        )
        if whole is not None and inside > whole + 1e-3 * parts["total"]["wall_s"]:
            yield (
                f"{column} of a sample's stages sums to {inside}, of the whole sample it is {whole}"
            )
    for operation in told["workers"]["operations"] if told["workers"] else []:
        if operation["wall_s"] > parts[operation["stage"]]["wall_s"] * 1.001:
            yield (
                f"{operation['name']} takes {operation['wall_s']}, its stage "
                f"{parts[operation['stage']]['wall_s']}"
            )
    if not one_batch(Bar(told)):
        yield (
            f"a batch takes {told['workers']['fetch_mean_s']} to make, the step spends "
            f"{Bar(told).making} on making its one batch"
        )
    of_shown = ranks[shown(told)]["mean_s"]
    if not alike(of_shown, step["mean_s"]):
        yield (
            f"rank {shown(told)} has a mean step of {of_shown}, the report one of {step['mean_s']}"
        )
    pace = told["throughput"]
    if (
        pace["steps_per_s"]
        and pace["samples_per_s"]
        and not alike(pace["samples_per_s"], pace["steps_per_s"] * pace["batch_size"], 1e-3)
    ):
        yield (
            f"{pace['samples_per_s']} samples/s are not {pace['steps_per_s']} steps/s of "
            f"{pace['batch_size']}"
        )
    if pace["all_ranks_samples_per_s"] and pace["all_ranks_samples_per_s"] < pace["samples_per_s"]:
        yield "all ranks together are slower than one"


def one_batch(bar: Bar) -> bool:
    """Whether making a batch and what the step spends on it agree: where the main process makes one
    in each step and no others, and all were recorded."""
    step, pace = bar.told["step"], bar.told["throughput"]
    others = (
        bar.workers.get("processes")
        or step["evaluation_s"]
        or bar.workers.get("batches") != pace["steps"]
    )
    if others or not bar.making or step["sampled"] or pace["steps_in_detail"] < pace["steps"]:
        return True
    return alike(float(bar.workers["fetch_mean_s"]), bar.making, 0.05)


def costs(told: Any) -> Iterator[str]:
    """Findings whose cost does not follow from the report's own figures."""
    if told["step"] is None:
        return
    set_up = (
        [check["cause"] for check in told["convergence"]["checks"]] if told["convergence"] else []
    )
    for finding in told["findings"]:
        cost, rule_id = finding["cost_s"] or 0.0, finding["cause"]
        could = 0.0 if rule_id in set_up else recomputed(told, finding)
        if could is None:
            yield f"what {rule_id} costs is worked out nowhere: add it to COSTS"
        elif not alike(cost, could, 1e-3):
            yield f"{rule_id} costs {cost}; by the report's figures it is {could}"
        if cost > told["step"]["mean_s"] * 1.001:
            yield f"{rule_id} costs {cost} of a step of {told['step']['mean_s']}"
        low, high = finding["cost_low_s"], finding["cost_high_s"]
        if low is not None and not low - 1e-9 <= cost <= high + 1e-9:
            yield f"{rule_id} costs {cost}, which is not between {low} and {high}"


def predictions(told: Any) -> Iterator[str]:
    """Predicted rates that begin elsewhere than at the throughput, leave their interval, or exceed
    what limits the run then.
    """
    pace = told["throughput"]
    rate = (
        pace["samples_per_s"]
        if pace["all_ranks_samples_per_s"] is None
        else pace["all_ranks_samples_per_s"]
    )
    made = {
        "all fixes together": told["together"],
        **{finding["cause"]: finding["predicted"] for finding in told["findings"]},
    }
    for what, one in made.items():
        if one is None:
            continue
        if not alike(one["from"], rate or 0.0):
            yield f"{what} is predicted from {one['from']} samples/s, the training made {rate}"
        if not 0 < one["low"] <= one["to"] <= one["high"]:
            yield (
                f"{what} is predicted to give {one['to']}, which is not between {one['low']} "
                f"and {one['high']}"
            )
    for finding in told["findings"]:
        one, gain = finding["predicted"], finding["gain"]
        if one is not None and gain is not None and not alike(one["to"], gain["after"]):
            yield f"{finding['cause']} gives {gain['after']}, it is predicted to give {one['to']}"
        if finding["cause"] == told["verdict"]["finding"] and gain != told["verdict"]["gain"]:
            yield f"the verdict gives {told['verdict']['gain']}, {finding['cause']} gives {gain}"
        if (one is None) != bool(finding["refused"]):
            yield f"{finding['cause']} is neither predicted nor refused, or both"
        if (
            one is not None
            and told["step"] is not None
            and finding["cost_low_s"] is None
            and one["low"] > most(told, finding["cause"]) * 1.031
        ):
            yield (
                f"{finding['cause']} is predicted to give {one['low']} and more, the next limit "
                f"is {most(told, finding['cause'])}"
            )


def intervals(told: Any) -> Iterator[str]:
    """Shares of the input outside the interval that is given with them."""
    step = told["step"]
    given = (
        []
        if step is None
        else [("the step", step["input_share"], step["input_share_low"], step["input_share_high"])]
    )
    for finding in told["findings"]:
        figures = {one["id"] + one["of"]: one["value"] for one in finding["evidence"]}
        given.append(
            (
                finding["cause"],
                *(figures.get(f"input_share{end}") for end in ("", "_endlower", "_endupper")),
            )
        )
    for what, share, low, high in given:
        if None not in (share, low, high) and not low - 1e-6 <= share <= high + 1e-6:
            yield (
                f"{what} gives a share of the input of {share}, which is not between {low} and "
                f"{high}"
            )


# of the CPUs: with less of them free, cpu_saturated may hold, although other findings are told in
# its place
FULL = 0.25


def most(told: Any, rule_id: str) -> float:
    """Samples/s that the limits above the run allow with the fix of a cause."""
    mean, pace = told["step"]["mean_s"], told["throughput"]
    rate = (
        pace["samples_per_s"]
        if pace["all_ranks_samples_per_s"] is None
        else pace["all_ranks_samples_per_s"]
    )
    use = told["cpus"]
    full = use is not None and use["free"] is not None and use["free"] < FULL * use["allowed"]
    left = mean - allowed(told, rule_id, full)
    return rate * mean / left if left > 0 else math.inf


def spoken(told: Any, texts: list[str]) -> Iterator[str]:
    """Figures of a finding's sentence that are neither its evidence nor the step's, and figures of
    a screen that are not the report's.
    """
    if told["step"] is None:
        return
    for finding in told["findings"]:
        words = " ".join([finding["says"], *finding["more"], finding["fix"]])
        lost = unknown(words, of_finding(told, finding))
        yield from (
            f"{finding['cause']} says {one}, which is none of its evidence: {finding['says']}"
            for one in lost
        )
    known = set(of_report(told))
    yield from (
        f"{one} is read, and no figure of the report is it"
        for text in texts
        for one in unknown(text, iter(known))
    )


def order(told: Any) -> Iterator[str]:
    """Findings below a less grave one."""
    grave = [ORDER.index(finding["severity"]) for finding in told["findings"]]
    if grave != sorted(grave):
        yield (
            f"severity rises down the list: "
            f"{[(finding['cause'], finding['severity']) for finding in told['findings']]}"
        )


def value(text: str) -> float:
    """A printed time in seconds, or a printed share from 0 to 1."""
    number, unit = text.lstrip("<").replace(",", "").split()
    return float(number) / 100 if unit == "%" else float(number) * UNITS[unit]


def printed_as(text: str, figure: float) -> bool:
    """Whether a figure may have been printed so."""
    said = value(text)
    if text.startswith("<"):
        return figure <= said
    return abs(said - figure) <= (_digits(text) if text.endswith("%") else PRINTED * figure + 1e-9)


def _digits(share: str) -> float:
    """How far a share may be from its figure: half of its last digit."""
    return 0.00051 if "." in share else 0.0051


#: What only a report of a certain kind may say.
UNTRUE = (
    ("no worker had finished", lambda told: not Bar(told).workers.get("processes")),
    ("below 0 s", lambda told: True),
    ("goodbye", lambda told: True),
)


def sentences(told: Any, text: str) -> Iterator[str]:
    """Sentences whose numbers are not those of the report, or not those of each other."""
    if told["step"] is None:
        return
    bar, pace = Bar(told), told["throughput"]
    for words, where in UNTRUE:
        if words in text and where(told):
            yield f"it says {words!r}"
    for said in re.findall(rf"of (?:each|the) {TIME} step\b", text):
        if not printed_as(said, bar.mean):
            yield f"it speaks of a step of {said}, the mean step takes {bar.mean}"
    for said in re.findall(rf"[Ii]nput-bound: {SHARE}", text):
        if not printed_as(said, (bar.input - bar.once) / bar.mean):
            yield (
                f"it says that {said} of the step is input, by the stages that is "
                f"{bar.input / bar.mean}"
            )
    for stage, said in re.findall(rf"largest stage is (\w+) \({TIME}\)", text):
        if not printed_as(said, bar.stage(stage)):
            yield f"it says that {stage} takes {said}, the bar says {bar.stage(stage)}"
    for cost, part in re.findall(rf"{TIME} per step \({SHARE}\)", text):
        share = value(cost) / bar.mean
        if (
            share >= value(part)
            if part.startswith("<")
            else abs(share - value(part)) > PRINTED * value(part) + _digits(part)
        ):
            yield f"{cost} per step are not {part} of a step of {bar.mean}"
    for said in re.findall(r"after ([\d,]+) steps?\b", text):
        if int(said.replace(",", "")) != pace["steps"]:
            yield f"it ended after {said} steps, {pace['steps']} are shown"
    yield from limits(told, text)
    yield from once(text)
    yield from told_rates(told, text)


def told_rates(told: Any, text: str) -> Iterator[str]:
    """Rates with an interval that are none of the report's predictions."""
    made = [
        one
        for one in (told["together"], *(finding["predicted"] for finding in told["findings"]))
        if one is not None
    ]
    known = {
        tuple(form(one[key]) for key in ("from", "to", "low", "high"))
        for one in made
        for form in (formatting.rate, formatting.number)
    }
    known |= {tuple(map(formatting.rate, one)) for one in replayed(told)}
    for said in re.findall(rf"{RATE} -> {RATE} samples/s [\[(]{RATE}(?:,| to) {RATE}", text):
        if said not in known:
            yield (
                f"it predicts {said[0]} -> {said[1]} samples/s [{said[2]}, {said[3]}], and no "
                f"finding does"
            )


def replayed(told: Any) -> Iterator[tuple[float, ...]]:
    """Gains with an interval: of the replay of the loader or of the ranks."""
    for finding in told["findings"]:
        gain = finding["gain"]
        if gain and gain["low"] is not None and gain["high"] is not None:
            yield tuple(gain[name] for name in ("before", "after", "low", "high"))


def limits(told: Any, text: str) -> Iterator[str]:
    """Times that limits leave out, and the times that are left of the step."""
    bar = Bar(told)
    comm = told["ranks"][shown(told)].get("comm") or {}
    parts = {
        "waiting for other ranks": comm.get("exposed_wait_s") or 0.0,
        "waiting for batches": bar.stage("wait", "epoch_start"),
    }
    for what, part in parts.items():
        for said in re.findall(rf"{TIME} {what}", text):
            if not printed_as(said, part):
                yield f"it leaves out {said} {what}, the step has {part}"
    for said in re.findall(rf"then computes on it, {TIME}", text):
        if not printed_as(said, bar.mean - parts["waiting for other ranks"]):
            yield f"making and computing take turns for {said} of {bar.mean}"


def shown(told: Any) -> str:
    """The rank that all figures are of."""
    return str(told["shown"]) if told["shown"] is not None else min(told["ranks"], key=int)


#: Sentences about one thing: the first group says which.
ONE_THING = (
    rf"[Rr]ank (\d+) is the straggler[^:]*: the other[\w ]* waits? (?:for it in \d+ of \d+ steps, "
    rf")?{TIME}",
    rf"[Rr]ank (\d+) is {TIME} late",
    r"[Ii]nput-(bound): ([\d.]+ %)",
    rf"(late_rank|late_ranks|\w+_bound|\w+_communication|\w+_workers) costs (?:up to|about) {TIME}",
)


def once(text: str) -> Iterator[str]:
    """One thing of which two sentences give different numbers."""
    found: dict[tuple[str, str], set[str]] = {}
    for pattern in ONE_THING:
        for thing, said in re.findall(pattern, text):
            found.setdefault((pattern, thing), set()).add(said)
    yield from (
        f"of {thing} it says {sorted(said)}" for (_, thing), said in found.items() if len(said) > 1
    )
