"""Figures in what people read, and the figures of the report that they may be."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from truth.costs import Bar

UNITS = {
    "ns": 1e-9,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
}
TIMES = ("ns", "µs", "ms", "s")
PRINTED = 0.006  # three digits
#: A figure with its unit; of a range, both ends have it.
FIGURE = re.compile(
    r"(?<![\w.,-])(<?[\d,]*\d(?:\.\d+)?)(?: to ([\d,]*\d(?:\.\d+)?))? "
    r"(ns|µs|ms|s|%|samples/s|steps/s|[kMGT]?B)(?![\w/-])"
)


def figures(text: str) -> Iterator[tuple[str, str]]:
    """(number, unit) of every figure; durations of minutes and hours are not among them."""
    for number, other, unit in FIGURE.findall(re.sub(r"\d+ (h|min) \d+ (min|s)\b", "", text)):
        yield number, unit
        if other:
            yield other, unit


def value(number: str, unit: str) -> float:
    """In seconds, bytes, samples/s, or a share from 0 to 1."""
    figure = float(number.lstrip("<").replace(",", ""))
    return figure / 100 if unit == "%" else figure * UNITS.get(unit, 1.0)


def printed_as(number: str, unit: str, figure: float) -> bool:
    """Whether a figure may have been printed so."""
    said = value(number, unit)
    if number.startswith("<"):
        return 0 <= figure <= said
    if unit.endswith("/s") and said >= 1000:  # rates have three digits
        return abs(said - figure) <= PRINTED * figure
    last = 10 ** -len(number.partition(".")[2]) * (0.01 if unit == "%" else UNITS.get(unit, 1.0))
    return abs(said - figure) <= 0.501 * last + 1e-12


def kind(unit: str) -> str:
    return "s" if unit in TIMES else "B" if unit.endswith("B") else unit


def of_step(told: Any) -> Iterator[tuple[str, float]]:
    """(kind, figure): of the mean step, its input and a sample, which every sentence may name."""
    step, bar = told["step"], Bar(told)
    times = [
        bar.mean,
        *step["stages"].values(),
        *step["waits"].values(),
        bar.input,
        bar.once,
        bar.computing,
    ]
    times += [bar.transport, bar.making, bar.starts, bar.input - bar.once]
    times.append(
        bar.starts - bar.once + bar.making + bar.sending + bar.stage("sampler")
    )  # less than the input beside a second loader
    yield from (("s", one) for one in times)
    yield from (("%", one / bar.mean) for one in times if bar.mean)
    yield from (("samples/s", one) for one in rates(told["throughput"]))
    yield from of_sample(bar)
    yield from of_interval(step)
    yield from of_ranks(told)


def of_sample(bar: Bar) -> Iterator[tuple[str, float]]:
    """Its stages and operations, and what they are of the whole."""
    columns = [
        (stage, column)
        for stage in bar.workers.get("per_sample", {})
        for column in ("wall_s", "cpu_s", "runqueue_s", "blocked_s")
    ]
    yield from (("s", bar.cost(*one)) for one in columns)
    yield from (
        ("%", share)
        for stage, column in columns
        for share in (bar.of_sample(stage, column=column),)
    )
    operations = bar.workers.get("operations", [])
    yield from (
        ("s", one[column])
        for one in operations
        for column in ("wall_s", "cpu_s")
        if one[column] is not None
    )
    yield "s", bar.workers.get("fetch_mean_s") or 0.0


def rates(pace: Mapping[str, Any]) -> list[float]:
    return [
        pace[name]
        for name in ("samples_per_s", "all_ranks_samples_per_s")
        if pace[name] is not None
    ]


def of_finding(told: Any, finding: Any) -> Iterator[tuple[str, float]]:
    """What a finding may speak of: its evidence, its cost, and the step."""
    kinds = {"share": "%", "1": "1"}
    yield from ((kinds.get(one["unit"], one["unit"].removesuffix("/s") if one["unit"] == "B/s" else one["unit"]), one["value"])
                for one in finding["evidence"])  # fmt: skip
    for name in ("cost_s", "cost_low_s", "cost_high_s"):
        if finding[name] is not None:
            yield "s", finding[name]
    yield from (("samples/s", one) for one in (finding["predicted"] or {}).values())
    yield from of_gain(finding["gain"])
    yield from (
        (kind(unit), value(number, unit)) for number, unit in figures(finding["refused"])
    )  # told there only
    yield from (
        ("s", one["value"] * Bar(told).cost("total"))
        for one in finding["evidence"]
        if one["unit"] == "share"
    )
    if told["step"]["mean_s"]:
        yield "%", (finding["cost_s"] or 0.0) / told["step"]["mean_s"]
        yield from (
            ("%", one["value"] / told["step"]["mean_s"])
            for one in finding["evidence"]
            if one["unit"] == "s"
        )
    yield from of_step(told)


def of_gain(gain: Any) -> Iterator[tuple[str, float]]:
    """The rates of what a fix gives."""
    for name in ("before", "after", "low", "high") if gain else ():
        if gain[name] is not None:
            yield gain["unit"].partition(" of ")[0], gain[name]  # of the whole run


def unknown(text: str, known: Iterator[tuple[str, float]]) -> list[str]:
    """Figures in a text that are none of these."""
    listed = list(known)
    return [
        f"{number} {unit}"
        for number, unit in figures(text)
        if not any(of == kind(unit) and printed_as(number, unit, figure) for of, figure in listed)
    ]


def of_interval(step: Any) -> Iterator[tuple[str, float]]:
    """The share of the input and its interval, of which one percent is told."""
    for name in ("input_share", "input_share_low", "input_share_high"):
        if step[name] is not None:
            yield "%", step[name]
    yield "%", 0.95  # of the interval itself


def of_ranks(told: Any) -> Iterator[tuple[str, float]]:
    """What ranks did together."""
    for own in told["ranks"].values():
        parts = {name: part or 0.0 for name, part in (own.get("comm") or {}).items()}
        waits, moves = (
            sum(parts.get(f"{how}_{what}_s", 0.0) for how in ("hidden", "exposed"))
            for what in ("wait", "transfer")
        )
        yield from (
            ("s", one)
            for one in [*parts.values(), waits, moves, waits + moves, own["mean_s"] or 0.0]
        )
        if waits + moves:
            yield "%", waits / (waits + moves)
        if moves:
            yield "%", parts.get("hidden_transfer_s", 0.0) / moves
    comm = told["comm"] or {
        "late": [],
        "exposed": {},
        "what_if": [],
        "collectives": [],
        "clock_bound_s": None,
    }
    of_kinds = [
        *comm["late"],
        *comm["what_if"],
        *comm["collectives"],
        *(one for kinds in comm["exposed"].values() for one in kinds),
    ]
    named = [
        *(one for of in of_kinds for one in of.items()),
        ("clock_bound_s", comm["clock_bound_s"]),
    ]
    yield from (
        ("s", one)
        for name, one in named
        if (name.endswith("_s") or name in ("low", "high")) and one is not None
    )
    yield from (("B", one["bytes"]) for one in comm["collectives"])


def of_report(told: Any) -> Iterator[tuple[str, float]]:
    """Every figure of the report that a screen may show, and the shares of it that are shown."""
    yield from of_step(told)
    checks = told["convergence"]["checks"] if told["convergence"] else []
    yield from (
        one for finding in [*told["findings"], *checks] for one in of_finding(told, finding)
    )
    yield from (
        ("%", part / sum(told["step"]["waits"].values()))
        for part in told["step"]["waits"].values()
        if part
    )
    yield from of_whole_run(told)
    for own in own_codes(told):
        yield from (("s", one["s"]) for one in [own, *own["functions"]])
        yield from (("%", one["s"] / told["step"]["mean_s"]) for one in own["functions"])
    for path, figure in named(told):
        name = next((one for one in reversed(path) if not one.isdigit()), "")
        if name.endswith("_s") or {"stages", "gpu_stages", "waits", "sample_wall_histogram"} & set(
            path
        ):
            yield "s", figure
        elif name.endswith("bytes") or name == "bytes":
            yield "B", figure
        elif (
            name.endswith("_share")
            or name in ("mfu", "fetch_cv")
            or {"share_low", "share_high"} & set(path)
            or "user_code" in path
            and name in ("share", "low", "high")
        ):
            yield "%", figure
        elif "samples_per_s" in name or name in ("becomes", "at_most_per_s"):
            yield "samples/s", figure
        elif name.endswith("_pct"):
            yield "%", figure / 100
    yield from (("steps/s", one) for one in [told["throughput"]["steps_per_s"]] if one)
    yield from (("samples/s", one) for one in (told["together"] or {}).values())
    yield "s", max(told["step"]["series"]["wall_max_s"], default=0.0)
    yield from (
        (kind(unit), value(number, unit))
        for note in told["notes"]
        for number, unit in figures(note)
    )  # told there only
    yield from gains(told)
    yield from of_gauges(told)
    yield from of_roofs(told)


def of_whole_run(told: Any) -> Iterator[tuple[str, float]]:
    """Seconds and shares of what comes before, in, between and after the steps."""
    run = told["ledger"]["run"] if told["ledger"] else None
    parts: dict[str, float] = {}
    for row in run["rows"] if run else ():
        part = row["where"].partition("/")[0]
        parts[part] = parts.get(part, 0.0) + row["s"]
    for seconds in parts.values():
        yield "s", seconds
        yield "%", seconds / run["whole_s"]


def own_codes(told: Any) -> list[Any]:
    """The program's own code in steps, and in evaluation or rollouts."""
    return [
        told["step"][name]
        for name in ("own_code", "evaluation_code")
        if told["step"][name] is not None
    ]


def named(told: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """(path, figure) of every number, without the courses over time."""
    if isinstance(told, dict):
        items = [
            (key, one)
            for key, one in told.items()
            if key not in ("series", "at_s", "values", "gauges")
        ]
    elif isinstance(told, list):
        items = [(str(at), one) for at, one in enumerate(told)]
    else:
        if isinstance(told, (int, float)) and not isinstance(told, bool):
            yield path, told
        return
    for key, one in items:
        yield from named(one, (*path, key))


def gains(told: Any) -> Iterator[tuple[str, float]]:
    """The rate without each finding's cost."""
    mean, pace = told["step"]["mean_s"], told["throughput"]
    for finding in told["findings"]:
        if 0 < (finding["cost_s"] or 0.0) < mean:
            faster = mean / (mean - finding["cost_s"])
            yield from (("samples/s", rate * faster) for rate in rates(pace))
            yield "steps/s", (pace["steps_per_s"] or 0.0) * faster


def of_gauges(told: Any) -> Iterator[tuple[str, float]]:
    """Smallest, largest and mean value, and when the first and the last were taken."""
    for one in told["gauges"]:
        yield from (("s", at) for at in one["at_s"])
        unit, scale = {"1": ("%", 1.0), "%": ("%", 0.01), "B/s": ("B", 1.0)}.get(
            one["unit"], (one["unit"], 1.0)
        )
        yield from ((unit, one[name] * scale) for name in ("mean", "minimum", "maximum"))


def of_roofs(told: Any) -> Iterator[tuple[str, float]]:
    """A limit is so many samples in so much time, or CPUs over CPU time."""
    made, size = told["roofline"], told["throughput"]["batch_size"]
    if made is None or not size:
        return
    machine = told["run"]["machine"]
    cpus = (machine.get("effective_cpus") or machine.get("cpus") or 1) / max(
        told["run"]["ranks"], 1
    )
    for roof in made["roofs"]:
        yield "samples/s", roof["samples_per_s"]
        yield from (
            ("s", many / roof["samples_per_s"])
            for many in (size, 1.0, cpus, max(Bar(told).workers.get("processes") or 1, 1))
        )
        yield "%", min(made["samples_per_s"] / roof["samples_per_s"], 1.0)
    bar = Bar(told)
    yield "s", bar.stage("wait", "epoch_start")
    yield from (("%", one) for one in (0.95, 0.05))
