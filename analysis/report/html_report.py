"""The report as one self-contained HTML file: styles, script, figures and data are inline."""

import json
import re

from markupsafe import Markup, escape

from feedline.analysis.convergence.training_record import ConvergenceSummary
from feedline.analysis.explain.model import Report, Roofline, Traces
from feedline.analysis.measure.code_places import EVALUATION, MAKING
from feedline.analysis.measure.model import Gauge, Loader, Workers
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.step_model import StepSeries, StepSummary
from feedline.analysis.measure.user_code import CodeLine, UserCode, UserFunction
from feedline.analysis.report import full_report, of_convergence, of_traces, page, phrases
from feedline.analysis.report.figures.batch_size import batch_efficiency, noise_scale
from feedline.analysis.report.figures.loss_curve import colors_of, loss_curve
from feedline.analysis.report.figures.roofline_chart import (
    flops,
    operator_roofline,
    role,
    roofline_figure,
)
from feedline.analysis.report.figures.sample_cost import (
    code_icicle,
    histogram,
    is_split,
    quantile_edge,
    sample_cost,
)
from feedline.analysis.report.figures.step_times import (
    PART_LABELS,
    count_beyond_axis,
    gauge_figure,
    rank_parts,
    step_bar,
    step_series,
    thin_bar,
)
from feedline.analysis.report.figures.throughput import batch_sweep
from feedline.analysis.report.json_report import plain
from feedline.analysis.report.palette import Palette
from feedline.analysis.text import formatting
from feedline.analysis.text.formatting import Scale
from feedline.analysis.traces import kernel_names
from feedline.profiler import masks
from feedline.profiler.printable import printable_in

_RANKS_SHOWN = 16  # as bars of the communication figure
_FIGURES_SHOWN = 3  # of curves, beside those of the batch
_ROWS_SHOWN = 20  # of kernels and of operators
_MOST_QUOTED = 120  # characters of a line
_SETTINGS_SHOWN = ("num_workers", "batch_size")  # as columns; the others are in the details


def render(report: Report, source: SourceLines | None = None) -> str:
    """Return the whole page.

    Args:
        source: reads lines of the program, which are quoted; None: none are.
    """
    report = printable_in(report)  # before figures are drawn: they make room for their labels
    environment = page.environment()
    environment.filters["prose"] = prose
    environment.filters["kernel"] = kernel_names.short_name
    return environment.get_template("report.html").render(
        report=report,
        full_report=full_report,
        phrases=phrases,
        value=formatting.value,
        gauge_value=formatting.gauge_value,
        machine=[
            _fact(name, figure) for name, figure in report.run.machine.items() if figure is not None
        ],
        blank=formatting.BLANK,
        colors=(made := Palette(report)).css_class,
        **page.assets(),
        step=_step(report, report.step, made) if report.step else None,
        workers=_workers(report.workers, report.loaders, made) if report.workers else None,
        code=_code(report.user_code, made, source) if report.user_code else None,
        quotes=source is not None,
        roofline=_roofline(report.roofline) if report.roofline else None,
        comm=_comm(report) if report.comm else None,
        convergence=_convergence(report, report.convergence) if report.convergence else None,
        traces=_traces(report, report.traces) if report.traces else None,
        flops=flops,
        ranks=_ranks(report, made),
        loaders=[_loader(loader) for loader in report.loaders],
        gauges=[_drawn(gauge) for gauge in report.gauges if not _of_memory(gauge)],
        memory=[_drawn(gauge) for gauge in report.gauges if _of_memory(gauge)],
        refused=phrases.refused_that_matter(report.hooks),
        data=_embedded(
            {
                "series": _columns(report.step.series, made, _steps_shown(report))
                if report.step
                else None
            }
        ),
    )


def _of_memory(gauge: Gauge) -> bool:
    """Tell whether a gauge counts bytes that are in memory."""
    return "memory" in gauge.name and gauge.unit == "B" or gauge.name.startswith("shm/")


def _drawn(gauge: Gauge) -> tuple[Gauge, Markup | None, tuple[str, str]]:
    return gauge, gauge_figure(gauge), _span(gauge)


def _embedded(data: object) -> Markup:
    """Return the JSON for a ``<script type="application/json">``.

    Nothing in it can end the element or begin another.
    """
    text = json.dumps(printable_in(plain(data)), separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def prose(text: str) -> Markup:
    """Return sentences with commands in backticks, which become code."""
    parts = _tied(text).split("`")
    if len(parts) % 2 == 0:
        return escape(_tied(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )


def _tied(text: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(%|[µmn]?s|[kMGT]?B|px)(?![a-zA-Z]))", "\u00a0", text)


def _fact(name: str, figure: object) -> str:
    """Return one figure of the machine: ``memory_bytes`` is shown as ``memory 33.6 GB``."""
    if name.endswith("_bytes") and isinstance(figure, (int, float)):
        return f"{name.removesuffix('_bytes')} {formatting.size(figure)}"
    return f"{name.replace('_', ' ')} {figure}"


def _step(report: Report, step: StepSummary, made: Palette) -> dict[str, object]:
    total = sum(step.stages.values())
    waits = sum(step.waits.values())
    gpu_s = sum((step.gpu_stages or {}).values())
    return {
        "bar": step_bar(step, made),
        "scale": Scale.column(max(total, step.mean_s)),
        "on_gpu": thin_bar(step.gpu_stages, max(total, gpu_s), made) if step.gpu_stages else None,
        "gpu_fits": gpu_s <= total,
        "total": total,
        "own_code": [
            (own, Scale.column(own.s), title, mean_s)
            for own, title, mean_s in phrases.own_codes(step)
        ],
        "waits": waits,
        "wait_scale": Scale.column(waits),
        "run": phrases.run_parts(report.ledger),
        "series": step_series(step.series, made, _steps_shown(report)),
        "shown": _steps_shown(report),
        "beyond": count_beyond_axis(step.series) if step.series.steps else 0,
        "longest": max(step.series.wall_max_s, default=None),
    }


def _workers(workers: Workers, loaders: list[Loader], made: Palette) -> dict[str, object]:
    longest = max((cost.wall_s for cost in workers.per_sample.values()), default=0.0)
    operations = sorted(workers.operations, key=lambda operation: -operation.wall_s)
    slowest = max((operation.wall_s for operation in operations), default=0.0)
    bins = workers.sample_wall_histogram
    feeding = [loader.settings for loader in loaders if loader.role == "training"]
    whole = bool(feeding) and all(settings.get("whole_batches") for settings in feeding)
    timed = "batches" if whole else "samples"
    return {
        "figure": sample_cost(workers, made),
        "unsplit": any(
            not is_split(cost) for stage, cost in workers.per_sample.items() if stage != "total"
        ),
        "scale": Scale.column(longest),
        "operations": operations,
        "operation_scale": Scale.of_seconds(slowest, digits=3),
        "slowest": slowest,
        "timed": timed,
        "histogram": histogram(bins, timed),
        "half": quantile_edge(bins, 0.5),
        "most": quantile_edge(bins, 0.95),
        "counted": sum(samples for _, samples in bins),
    }


def _code(
    code: UserCode, made: Palette, source: SourceLines | None
) -> list[tuple[str, Markup | None, list[tuple[UserFunction, list[tuple[CodeLine, str]]]]]]:
    """Title, figure and rows of making samples, and of what the main process does.

    Evaluation is a part of its own, whose shares are of another whole. A row is a function, with
    its lines that can be quoted.
    """
    making = [one for one in code.functions if one.place in MAKING]
    evaluating = [one for one in code.functions if one.place == EVALUATION]
    others = [one for one in code.functions if one.place not in (*MAKING, EVALUATION)]
    parts = (
        ("Making a sample", making),
        ("The main process", others),
        ("Evaluation, share of the main process", evaluating),
    )

    def quote(one: UserFunction, line: CodeLine) -> str:
        text = source(one.file, line.line, one.function) if source is not None else ""
        return masks.token(text[:_MOST_QUOTED])

    return [
        (
            title,
            code_icicle(functions, made, quote),
            [
                (one, [(line, text) for line in one.lines if (text := quote(one, line))])
                for one in sorted(functions, key=_largest)[:_ROWS_SHOWN]
            ],
        )
        for title, functions in parts
        if functions
    ]


def _largest(one: UserFunction) -> float:
    return -one.share


def _roofline(made: Roofline) -> dict[str, object]:
    return {
        "figure": roofline_figure(made),
        "roles": [role(made, roof) for roof in made.roofs],
        "sweep": batch_sweep(made.sweep) if made.sweep else None,
    }


def _comm(report: Report) -> dict[str, object]:
    shown, left_out = phrases.ranks_to_show(report, _RANKS_SHOWN)
    scale = Scale.column(
        max(
            (sum(getattr(own, name) or 0.0 for name in PART_LABELS) for own in shown.values()),
            default=0.0,
        )
    )
    return {
        "figure": rank_parts(shown),
        "left_out": left_out,
        "parts": [(part.words, part.color) for part in PART_LABELS.values()],
        "rows": [
            (rank, [scale(getattr(own, name)) for name in PART_LABELS])
            for rank, own in shown.items()
        ],
        "unit": scale.unit,
    }


def _convergence(report: Report, made: ConvergenceSummary) -> dict[str, object]:
    colors = colors_of(made.curves)
    batch = made.price.batch if made.price else None
    return {
        "checks": of_convergence.own_checks(report),
        "trained": of_convergence.trained(made, report.throughput.steps),
        "lost": [curve for curve in made.curves if curve.not_finite],
        "price": of_convergence.price(made),
        "curves": loss_curve(made.curves, made.samples is not None),
        "legend": [(curve.name, colors[curve.name]) for curve in made.curves if curve.values],
        "told": [curve for curve in of_convergence.told_curves(made) if curve.values][
            :_FIGURES_SHOWN
        ],
        "noise": noise_scale(made.noise, batch, made.samples or 0.0),
        "efficiency": batch_efficiency(made.noise, batch) if batch else None,
    }


def _traces(report: Report, made: Traces) -> dict[str, object]:
    return {
        "heads": of_traces.heads(),
        "rows": of_traces.rows(report),
        "reasons": of_traces.reasons(report),
        "shown": _ROWS_SHOWN,
        "operators": operator_roofline(made.operators),
    }


def _ranks(report: Report, made: Palette) -> list[dict[str, object]]:
    """Return the rows of the table of ranks; none for a run of one process."""
    if len(report.ranks) < 2:
        return []
    longest = max((own.mean_s or 0.0 for own in report.ranks.values()), default=0.0)
    return [
        {
            "rank": rank,
            "steps": own.steps,
            "mean_s": own.mean_s,
            "bar": thin_bar(own.stages, longest, made) if longest > 0 else None,
        }
        for rank, own in report.ranks.items()
    ]


def _loader(loader: Loader) -> dict[str, object]:
    settings = plain(loader.settings)
    assert isinstance(settings, dict)
    shown = {name: settings.get(name, formatting.BLANK) for name in _SETTINGS_SHOWN}
    return {
        "it": loader,
        "shown": shown,
        "settings": {
            name: json.dumps(value, ensure_ascii=False) for name, value in settings.items()
        },
    }


def _span(gauge: Gauge) -> tuple[str, str]:
    """Return the times at both ends of a gauge's figure."""
    return (
        (formatting.duration(gauge.at_s[0]), formatting.duration(gauge.at_s[-1]))
        if gauge.at_s
        else ("", "")
    )


def _steps_shown(report: Report) -> str:
    """Return what the steps of the series are called: they are not numbered as all steps are."""
    assert report.step is not None
    every = sum(report.step.series.steps) >= report.throughput.steps
    return "step" if every else "recorded step"


def _columns(series: StepSeries, made: Palette, shown: str) -> dict[str, object]:
    """Return what the script reads out: times in one unit, four digits each.

    Args:
        series: to be read out.
        made: colors of the stages.
        shown: what its steps are called.
    """
    scale = Scale.column(max(series.wall_max_s, default=0.0))

    def short(values: list[float]) -> list[float]:
        return [float(f"{value / scale.factor:.4g}") for value in values]

    return {
        "unit": scale.unit,
        "shown": shown,
        "start_s": [round(start, 2) for start in series.start_s],
        "steps": series.steps,
        "min": short(series.wall_min_s),
        "median": short(series.wall_s),
        "max": short(series.wall_max_s),
        "stages": [
            {"name": stage, "class": made.css_class(stage), "mean": short(values)}
            for stage, values in series.stages.items()
        ],
    }
