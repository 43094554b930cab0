"""A scaling study as a document and as a page: the conclusion, then its table."""

from collections.abc import Iterator
from pathlib import Path

from feedline.analysis.report import page, phrases
from feedline.analysis.report.document import Document, Headline, Items, Note, Table
from feedline.analysis.report.figures.throughput import throughput_by_ranks
from feedline.analysis.scaling.efficiency import ScalingRow, Unit
from feedline.analysis.scaling.more_ranks import ThroughputPrediction
from feedline.analysis.scaling.study import Study, counted
from feedline.analysis.text.formatting import BLANK, count, rate, seconds, share
from feedline.profiler.printable import printable_in

_KIND_TEXTS = {
    "weak": "Weak scaling: constant batch of {batch} samples per rank.",
    "strong": "Strong scaling: constant total batch of {whole} samples.",
    "mixed": "Neither the batch per rank nor the total batch is constant: efficiencies compare "
    "different work.",
    "unknown": "Batch sizes are unknown: weak scaling (constant batch per rank) is assumed.",
}


def document_of(study: Study) -> Document:
    """Return the study: the conclusion, measured and predicted rates, and what they mean."""
    study = printable_in(study)
    lists = {"Flagged": study.flags, "Meaning": list(_meaning(study)), "Notes": study.notes}
    return Document(
        (
            Headline(*phrases.opening(study.conclusion)),
            Note(_kind(study)),
            _table(study),
            *(Items(tuple(rows), title) for title, rows in lists.items() if rows),
        )
    )


def _kind(study: Study) -> str:
    """Return weak or strong, in words."""
    if study.refused:
        return "Throughput by number of ranks."
    if study.unit == Unit.STEPS:
        return (
            "No samples were recorded: steps of all ranks together are compared, assuming weak "
            "scaling (constant batch per rank)."
        )
    first = study.rows[0].point
    batch = first.batch or 0.0
    return _KIND_TEXTS[study.kind].format(
        batch=count(round(batch, 2)), whole=count(round(batch * first.ranks, 2))
    )


def _table(study: Study) -> Table:
    """Return measured rows, then predicted ones with their interval; flagged rows stand out."""
    timed = [*["to accuracy"] * bool(study.times)]
    heads = ("ranks", study.unit, "interval", "efficiency", "marginal", "Karp-Flatt", *timed)
    rows = [
        (
            count(row.point.ranks),
            rate(row.point.samples_per_s),
            _interval(row.point.low, row.point.high),
            *_efficiency_cells(row),
            *(_time_to_accuracy(study, row.point.ranks, False) for _ in timed),
        )
        for row in study.rows
    ]
    rows += [
        (
            count(prediction.ranks),
            rate(prediction.samples_per_s),
            _interval(prediction.low, prediction.high),
            f"{_efficiency(study, prediction)}  ",
            "predicted",
            "",
            *(_time_to_accuracy(study, prediction.ranks, True) for _ in timed),
        )
        for prediction in study.predictions
        if prediction.samples_per_s is not None
    ]
    flagged = frozenset(at for at, row in enumerate(study.rows) if row.flagged)
    return Table(tuple(rows), heads, right=frozenset(range(len(heads))), marked=flagged)


def _interval(low: float | None, high: float | None) -> str:
    """Return ``1,200 to 1,300``."""
    return BLANK if low is None or high is None else f"{rate(low)} to {rate(high)}"


def _efficiency_cells(row: ScalingRow) -> list[str]:
    """Return efficiency with a mark if it is flagged, marginal efficiency, Karp-Flatt."""
    marginal = BLANK if row.marginal is None else share(row.marginal)
    return [
        f"{BLANK if row.efficiency is None else share(row.efficiency)} "
        f"{'!' if row.flagged else ' '}",
        marginal,
        BLANK if row.karp_flatt is None else f"{row.karp_flatt:.3f}",
    ]


def _efficiency(study: Study, prediction: ThroughputPrediction) -> str:
    """Return the efficiency of a prediction, relative to the same base as the measured rows."""
    assert prediction.samples_per_s is not None
    return share(prediction.samples_per_s / prediction.ranks * study.rows[0].point.rank_s)


def _time_to_accuracy(study: Study, ranks: int, predicted: bool) -> str:
    """Return seconds if Smin is known, else the share of the time on the fewest ranks."""
    time = next(
        (time for time in study.times if (time.ranks, time.predicted) == (ranks, predicted)), None
    )
    if time is None:
        return BLANK
    return seconds(time.seconds) if time.seconds is not None else f"{time.ratio:.2f} x"


def _meaning(study: Study) -> Iterator[str]:
    """Return the shape, the laws, and what cannot be predicted.

    Nothing is returned if the conclusion says that the launches show no scaling.
    """
    if study.refused:
        return
    if study.shape is not None:
        yield (
            f"{study.shape.message}; this includes the time lost to the straggler"
            if study.late
            else study.shape.message
        )
    for prediction in study.predictions:
        if prediction.samples_per_s is None:
            yield f"no prediction for {count(prediction.ranks)} ranks: {prediction.why}"
    predicted = [
        prediction for prediction in study.predictions if prediction.samples_per_s is not None
    ]
    if predicted:
        yield (
            f"predicted with {predicted[0].model}; about 80 % of measurements fall within such "
            f"an interval"
        )
        others = [law for law in study.laws if law.name != predicted[0].model]
        for prediction in predicted if others else []:
            rates = ", ".join(
                f"{law.name} {rate(law.samples_per_s[prediction.ranks])}" for law in others
            )
            yield f"other laws for {count(prediction.ranks)} ranks: {rates} {study.unit}"
        yield from study.contradictions
        yield from study.left_out
    if study.times:
        best = min(study.times, key=lambda time: time.ratio)
        yield (
            f"fastest to the same accuracy: {counted(best.ranks)}, {share(best.ratio)} of the "
            f"time on {counted(study.times[0].ranks)}"
        )


def render(study: Study) -> str:
    """Render the study as a self-contained HTML file: a figure and its table."""
    study = printable_in(study)
    return page.render(
        Path(__file__).with_name("scale.html"),
        it=study,
        opening=phrases.opening(study.conclusion),
        about=_kind(study),
        figure=throughput_by_ranks(study),
        predicted=[
            prediction for prediction in study.predictions if prediction.samples_per_s is not None
        ],
        meaning=list(_meaning(study)),
        worth=_efficiency_cells,
        interval=_interval,
        efficiency=lambda prediction: _efficiency(study, prediction),
        to_accuracy=lambda ranks, predicted: _time_to_accuracy(study, ranks, predicted),
    )
