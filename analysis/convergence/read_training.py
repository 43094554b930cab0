"""What a run folder holds about a training's convergence, its noise scale, and what its report says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from feedline.analysis.convergence import checks, target
from feedline.analysis.convergence.curves import final_value_of
from feedline.analysis.convergence.target import DOUBT
from feedline.analysis.convergence.training_record import (
    ConvergenceSummary,
    Curve,
    CurvePoints,
    GradientNorms,
    NoiseOverTraining,
    NoiseWindow,
    TrainingRecord,
)
from feedline.analysis.intervals import FloatArray, IntArray
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.measure.boundaries import training_loaders
from feedline.profiler.events import Flag, Stage
from feedline.profiler.message import ONE_GRADIENT, Message, id_of
from feedline.profiler.noise_scale import WINDOWS, Window, windows
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.run_folder import Rank, Run
from feedline.profiler.store.segment_reader import Process
from feedline.profiler.store.trainings import open_run, require_one_training

_MAX_CURVE_POINTS = 200

_NEEDS_PARTS = Message(
    "needs two or more ranks, or gradient accumulation over two or more micro-batches", ONE_GRADIENT
)
_AVERAGED_ALREADY = "the ranks' own gradients were not seen before they were averaged"
#: A finite dataset matters once the noise scale is a tenth of it.
_NEAR_BOUND = 0.1
_PIECES = (WINDOWS, 7, 3, 1)
#: Of the windows: where fewer can be measured, they are those whose noise scale came out low by
#: chance.
_MEASURABLE_SHARE = 0.8
#: From this many windows on their lowest and highest value are far enough apart to hold that of the
#: training; of fewer, a standard error is added to each, half of its interval on a scale of ratios.
_MANY_WINDOWS = 8
#: First in a report; the others by name.
_CURVE_ORDER = ("train loss", "eval loss", "lr")
# times the median: an update that took longer has an evaluation or a checkpoint before it, and is
# not a step
_PAUSE = 5.0
#: Ways of sharing gradients after which all ranks have the same one (profiler/taps/convergence/norms.py).
_AVERAGED = ("ddp", "hook")
_SAME_WHOLE = 1e-3  # relative difference of its squared norm between ranks: rounding is far below


def _noise_over_training(recorded: TrainingRecord) -> NoiseOverTraining:
    """Cut into about 20 windows, fewer where so short ones cannot be measured.

    The gradient of an early part is many times that of a late one, so one ratio of means over all
    of it would be that of the beginning.

    The value weighs each window by the progress in it. An update at batch B makes 1 / (1 + Bc / B)
    of the progress of one without noise (arXiv:1812.06162, section 2.3), so updates to a loss at
    another batch follow from sum(w Bc) / sum(w) with w = 1 / (1 + Bc / B), whatever Bc does
    meanwhile. The range is that of the windows: the moment that is looked at changes the advice
    several-fold.
    """
    norms = recorded.norms
    if norms is None:
        why = recorded.why or (_NEEDS_PARTS if recorded.ranks < 2 else _AVERAGED_ALREADY)
        return NoiseOverTraining(None, None, None, why, "", [], 0, id_of(why))
    cut = _windows(norms, None)
    known = [window.scale.value for window in cut if window.scale.value is not None]
    size = recorded.samples_per_epoch
    if size and known and max(known) > _NEAR_BOUND * size:
        cut = _windows(norms, size)
    listed = [_window(window, norms.samples) for window in cut]
    dropped = sum(window.scale.dropped for window in cut)
    sizes = norms.B[np.isfinite(norms.B)]
    batch = recorded.batch or (float(np.median(sizes)) if len(sizes) else math.nan)
    value, low, high, why = _whole(listed, batch)
    return NoiseOverTraining(value, low, high, why, norms.how, listed, dropped)


def usable_noise(recorded: TrainingRecord, findings: Sequence[Finding]) -> NoiseOverTraining:
    """Return the noise scale, without a value where it would only show a mistake.

    That is a mistake in the set-up, or a loss that exploded.
    """
    scale = _noise_over_training(recorded)
    if recorded.norms is None:
        return scale
    why = next(
        (
            checks.WITHOUT_NOISE_SCALE[finding.rule_id]
            for finding in findings
            if finding.rule_id in checks.WITHOUT_NOISE_SCALE
        ),
        "",
    )
    return (
        replace(scale, value=None, low=None, high=None, windows=[], why=why, reason="")
        if why
        else scale
    )


def _windows(norms: GradientNorms, data_set: float | None) -> list[Window]:
    """Cut the training into as many windows as leave most of them measurable.

    Fewer windows are longer, and one has the best bound where nothing can be measured.
    """
    for pieces in _PIECES:
        cut = windows(
            norms.small_sq, norms.big_sq, norms.b, norms.B, pieces=pieces, data_set=data_set
        )
        if sum(window.scale.value is not None for window in cut) >= _MEASURABLE_SHARE * len(cut):
            break
    return cut


def _window(window: Window, samples: np.ndarray) -> NoiseWindow:
    scale = window.scale
    middle = (
        float(np.median(samples[window.first : window.last])) if window.last > window.first else 0.0
    )
    return NoiseWindow(middle, scale.updates, scale.value, scale.low, scale.high, scale.why)


def _whole(
    listed: list[NoiseWindow], batch: float
) -> tuple[float | None, float | None, float | None, str]:
    """Return value and range over all windows, and why there is none."""
    if not listed:
        return None, None, None, "no update was recorded"
    measured = [window for window in listed if window.value is not None]
    if not measured:
        lows = [window.low for window in listed if window.low]
        highs = [window.high for window in listed if window.high is not None and not window.low]
        why = max((window.why for window in listed), key=[window.why for window in listed].count)
        return (
            None,
            min(lows) if lows and not highs else None,
            max(highs) if highs and not lows else None,
            why,
        )
    values = np.array([window.value for window in measured], float)
    weights = 1 / (1 + _steady(values) / batch) if math.isfinite(batch) else np.ones(len(values))
    reach = 1.0 if len(measured) == 1 else 0.5 if len(measured) < _MANY_WINDOWS else 0.0
    low = min(
        (window.value or 0.0) ** (1 - reach) * (window.low or 0.0) ** reach for window in measured
    )
    high = max(
        (window.value or 0.0) ** (1 - reach) * (window.high or 0.0) ** reach for window in measured
    )
    unseen = [window.low for window in listed if window.value is None and window.low]
    return float(np.average(values, weights=weights)), low, max([high, *unseen]), ""


def _steady(values: FloatArray) -> FloatArray:
    """Return the median of each window and its two neighbours.

    A window that came out low by chance should not count more for it.
    """
    if len(values) < 3:
        return np.full(len(values), values.mean())
    padded = np.concatenate([values[1:2], values, values[-2:-1]])
    return np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)


def summarise(recorded: TrainingRecord) -> ConvergenceSummary:
    """Return all that one run tells by itself."""
    names = [name for name in _CURVE_ORDER if name in recorded.curves]
    names += sorted(set(recorded.curves) - set(names))
    findings = checks.run_checks(recorded)
    scale = usable_noise(recorded, findings)
    priced = target.price_batch(scale, recorded.batch) if recorded.batch else None
    notes = list(recorded.notes)
    if priced is None:
        notes.append("the cost of the batch size is unknown: samples per update were not recorded")
    elif scale.value is not None:
        notes.append(DOUBT)
    return ConvergenceSummary(
        [_thinned_points(name, recorded.curves[name]) for name in names],
        scale,
        priced,
        [],
        findings,
        recorded.samples if recorded.samples_known else None,
        recorded.samples_per_epoch if recorded.samples_known else None,
        recorded.updates,
        recorded.fixes,
        notes,
    )


def read(path: Path) -> TrainingRecord:
    """Read a run folder, of one rank or many.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: as ``open_run``, and for a folder that holds several
            trainings.
    """
    return of_run(require_one_training(open_run(path)))


def of_run(run: Run) -> TrainingRecord:
    """Read what the advisor needs of a run that is open.

    Raises:
        RunDamaged: the records of rank 0's training process, or of the lowest rank that is there,
            are missing.
    """
    shown = run.ranks[min(run.ranks)]
    main, feeding = shown.main, training_loaders(shown.main)
    setup = _of_loaders(shown.manifest.training, feeding)
    ranks = int(str(shown.manifest.place.get("world_size", 1)))
    values = main.view(Stage.VALUE)
    curves = {
        main.names.get(source, "?"): _curve(values[values["source"] == source], ranks, values)
        for source in np.unique(values["source"])
    }
    norms, why = _read_norms(run, values, ranks)
    loss = curves.get("train loss")
    loaders = [about for number, about in enumerate(shown.manifest.loaders) if number in feeding]
    updates_of_step = _updates_of_step(setup, loss)
    return TrainingRecord(
        name=run.name,
        curves=curves,
        norms=norms,
        why=why or _why_no_norms(setup) if norms is None else "",
        setup=setup,
        ranks=ranks,
        batch=_batch(loss, updates_of_step),
        samples=float(int(str(setup.get("samples", values["samples"].max() if len(values) else 0))))
        * ranks,
        samples_known=bool(setup.get("samples_known", feeding)),
        samples_per_epoch=_samples_per_epoch(loaders, ranks),
        library=_library(loaders),
        updates=int(
            str(setup.get("updates", int(loss.updates[-1]) + 1 if loss is not None else 0))
        ),
        step_s=_step_s(loss, updates_of_step),
        ended=shown.manifest.ended and shown.manifest.exit_code == 0,
        fixes=str(setup.get("fixes", "")),
        notes=list(run.notes),
    )


def _why_no_norms(setup: dict[str, object]) -> str:
    """Return what the recorder says of it; empty where it saw some."""
    why = str(setup.get("noise_scale", ""))
    reason = str(setup.get("noise_scale_reason", ""))
    return Message(why, reason) if reason else why


def _curve(records: Records, ranks: int, all_values: Records) -> Curve:
    """Return one name's VALUE records, in the order of updates."""
    records = records[np.argsort(records["updates"], kind="stable")]
    begun = int(all_values["start"].min())
    return Curve(
        updates=records["updates"].astype(np.int64),
        samples=records["samples"].astype(np.float64) * ranks,
        at_s=(records["start"] - begun) / 1e9,
        values=np.ascontiguousarray(records["value"]).view(np.float64).copy(),
    )


def _library(loaders: Sequence[Mapping[str, object]]) -> str:
    """Return whose loaders these are, or whose stream a DataLoader reads; "": torch's own."""
    told = (about.get("library") or about.get("dataset_library") for about in loaders)
    return next((str(library) for library in told if library), "")


def _updates_of_step(setup: dict[str, object], loss: Curve | None) -> int:
    """Return how many optimizers update in a step, each on the same samples; 1 where unknown.

    A training that goes on, or was killed, has not told its steps: with several optimizers, one
    begins where there are new samples.
    """
    updates, steps = int(str(setup.get("updates", 0))), int(str(setup.get("steps", 0)))
    if steps:
        return max(1, round(updates / steps))
    optimizers = setup.get("optimizers")
    most = len(optimizers) if isinstance(optimizers, list) else 0
    if loss is None or most < 2:
        return 1
    apart = np.diff(loss.updates[np.diff(loss.samples, prepend=-1.0) > 0])
    usual = round(float(np.median(apart))) if len(apart) else 1
    return usual if 1 <= usual <= most else 1  # more: values between were not kept


def _batch(loss: Curve | None, updates_of_step: int = 1) -> float | None:
    """Return samples per update, median, of all ranks."""
    if loss is None or len(loss.updates) < 2:
        return None
    first = _first_of_step(loss, updates_of_step)
    samples, updates = loss.samples[first], loss.updates[first] / updates_of_step
    apart = np.diff(updates) > 0
    each = np.diff(samples)[apart] / np.diff(updates)[apart]
    usual = float(np.median(each)) if len(each) else 0.0
    return usual if usual > 0 else None


def _first_of_step(loss: Curve, updates_of_step: int) -> npt.NDArray[np.int64]:
    """Return the rows of a loss that begin a step: there may be one before each of its updates."""
    if updates_of_step == 1:
        return np.arange(len(loss.updates))
    return np.flatnonzero(np.diff(loss.samples, prepend=-1.0) > 0)


def _step_s(loss: Curve | None, updates_of_step: int) -> float | None:
    """Return the mean seconds of a step, without those that something else came before."""
    if loss is None or len(loss.updates) < 3:
        return None
    first = _first_of_step(loss, updates_of_step)
    each = np.diff(loss.at_s[first])[np.diff(loss.updates[first]) == updates_of_step]
    each = each[each <= _PAUSE * np.median(each)] if len(each) else each
    return float(each.mean()) if len(each) else None


def _samples_per_epoch(feeding: list[dict[str, object]], ranks: int) -> float | None:
    """Return what all ranks together are handed in a pass over the loader that feeds the training.

    None: it does not say, or there are several.
    """
    counts = [
        entry.get("epoch_samples", entry.get("dataset_samples") if ranks == 1 else None)
        for entry in feeding
    ]
    return (
        float(int(str(counts[0]))) * ranks if len(counts) == 1 and counts[0] is not None else None
    )


def _of_loaders(setup: dict[str, object], feeding: frozenset[int]) -> dict[str, object]:
    """Return the set-up without samplers that draw for other loaders.

    An evaluation may take the same order every time.
    """
    listed = setup.get("samplers")
    if not isinstance(listed, list):
        return setup
    kept = [
        sampler
        for sampler in listed
        if not isinstance(sampler, dict) or "loader" not in sampler or sampler["loader"] in feeding
    ]
    return {**setup, "samplers": kept}


def _read_norms(run: Run, values: Records, ranks: int) -> tuple[GradientNorms | None, str]:
    """Return the updates' norms, mean over the ranks that were recorded.

    None, and why, where there are none.
    """
    own = {number: _gradients(rank) for number, rank in sorted(run.ranks.items())}
    own = {number: (records, names) for number, (records, names) in own.items() if len(records)}
    if not own:
        return None, ""
    records, how = _keep_usual(*next(iter(own.values())))
    shared = records["updates"]
    kept = [records]
    for other, names in list(own.values())[1:]:
        other, other_how = _keep_usual(other, names)
        if other_how == how:
            shared = np.intersect1d(shared, other["updates"])
            kept.append(other)
    sharded = bool(records["flags"][0] & Flag.SHARD)
    if sharded and len(kept) < ranks:
        return (
            None,
            f"with {how}, each rank holds a shard of the gradient, and only {len(kept)} of "
            f"{ranks} ranks are in the run folder",
        )
    if not len(shared):
        return None, "no update was measured by all ranks"
    rows = [rank[np.searchsorted(rank["updates"], shared)] for rank in kept]
    pairs = np.stack(
        [
            np.ascontiguousarray(rank["norms_sq"])
            .view(np.float32)
            .reshape(-1, 2)
            .astype(np.float64)
            for rank in rows
        ]
    )
    if how in _AVERAGED:
        alike = _alike(pairs[:, :, 1])
        if not alike.any():
            return None, "ranks do not average their gradients in each update"
        shared, pairs, rows = shared[alike], pairs[:, alike], [rank[alike] for rank in rows]
    first = rows[0]
    b = first["part_samples"].astype(np.float64)
    b[b == 0] = np.nan
    begun = int(values["start"].min()) if len(values) else int(first["start"].min())
    return (
        GradientNorms(
            updates=shared.astype(np.int64),
            samples=_samples_at(shared, values, ranks),
            at_s=(first["start"] - begun) / 1e9,
            small_sq=pairs[:, :, 0].mean(0),
            big_sq=pairs[:, :, 1].sum(0) if sharded else pairs[:, :, 1].mean(0),
            b=b,
            B=b * first["parts"],
            how=how,
            parts=int(first["parts"][0]),
        ),
        "",
    )


def _alike(whole_sq: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return in which updates all ranks have the same gradient, bool [n].

    Local SGD averages weights instead: each rank's whole gradient is its own.

    Args:
        whole_sq: squared norms, [ranks, n].
    """
    differ = np.ptp(whole_sq, axis=0) > _SAME_WHOLE * whole_sq.max(axis=0)
    return np.asarray(~differ)


def _gradients(rank: Rank) -> tuple[Records, dict[int, str]]:
    """Return a rank's GRADIENT records in the order of updates, each update once."""
    main: Process = rank.main
    records = main.view(Stage.GRADIENT)
    _, first = np.unique(records["updates"], return_index=True)
    return records[first], main.names


def _keep_usual(records: Records, names: dict[int, str]) -> tuple[Records, str]:
    """Return the records that were seen in the way, and made of as many parts, as most were.

    One estimate is of one kind.
    """
    kinds, counts = np.unique(records[["source", "parts"]], return_counts=True)
    usual = kinds[counts.argmax()]
    kept = records[(records["source"] == usual["source"]) & (records["parts"] == usual["parts"])]
    return kept, names.get(int(usual["source"]), "?")


def _samples_at(updates: IntArray, values: Records, ranks: int) -> npt.NDArray[np.float64]:
    """Return how many samples all ranks had trained on by these updates.

    It is interpolated between the values that were written down.
    """
    if not len(values):
        return np.full(len(updates), np.nan)
    ordered = values[np.argsort(values["updates"], kind="stable")]
    return np.interp(updates, ordered["updates"], ordered["samples"]) * ranks


def _thinned_points(name: str, curve: Curve) -> CurvePoints:
    """Thin a curve to at most 200 points.

    Each is the mean of its neighbours' values at the last one's place. A value that is not finite
    is left out.
    """
    fine = np.flatnonzero(np.isfinite(curve.values))
    pieces = (
        [piece for piece in np.array_split(fine, min(_MAX_CURVE_POINTS, len(fine))) if len(piece)]
        if len(fine)
        else []
    )
    return CurvePoints(
        name,
        [int(curve.updates[piece[-1]]) for piece in pieces],
        [float(curve.samples[piece[-1]]) for piece in pieces],
        [float(curve.at_s[piece[-1]]) for piece in pieces],
        [float(curve.values[piece].mean()) for piece in pieces],
        len(curve.values) - len(fine),
        final_value_of(name, curve),
    )
