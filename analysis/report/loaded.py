"""``feedline.load``: a recorded run in Python, as a report and as pandas frames."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.analysis.explain import reports_of_run
from feedline.analysis.explain.measured import gather_ranks
from feedline.analysis.explain.model import Report
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.report.report_frames import (
    FINDINGS,
    USER_CODE,
    FrameTable,
    findings,
    user_code,
)
from feedline.analysis.report.run_frames import (
    COLLECTIVES,
    GAUGES,
    SAMPLES,
    STEPS,
    collectives,
    gauges,
    samples,
    steps,
)
from feedline.analysis.traces.windows import read_windows
from feedline.profiler.ceilings import Ceilings
from feedline.profiler.errors import FeedlineError, OutputError, RunDamaged, RunNotFound
from feedline.profiler.files import output
from feedline.profiler.printable import printable
from feedline.profiler.store import process_log
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.trainings import Training, open_run, trainings, worker_pids

if TYPE_CHECKING:
    import pandas as pd

#: In the order of docs/api.md.
ALL_FRAMES = (STEPS, SAMPLES, COLLECTIVES, GAUGES, USER_CODE, FINDINGS)
_NAMED = 4  # trainings that an error names


def _frame(table: FrameTable) -> "Callable[[Callable[[LoadedRun], pd.DataFrame]], property]":
    """Make a property that is computed once and documented by its table.

    ``help`` shows no ``cached_property`` before Python 3.12.
    """

    def documented(get: "Callable[[LoadedRun], pd.DataFrame]") -> property:
        def kept(self: "LoadedRun") -> "pd.DataFrame":
            if table.name not in self._frames:
                self._frames[table.name] = get(self)
            return self._frames[table.name]

        return property(kept, doc=table.docstring())

    return documented


class LoadedRun:
    """A run opened by ``feedline.load``.

    It has ``report``, ``steps``, ``samples``, ``collectives``, ``gauges``, ``user_code`` and ``findings``. The
    report and each frame are computed on first access and kept. If the run is still being recorded,
    they cover what it had recorded by then; load it again to see more. Nothing is ever written into
    the run folder.

    Every frame of records covers all ranks and has a column ``rank``: compare ranks with
    ``steps.groupby("rank")``, or select one with ``steps[steps["rank"] == 1]``.
    """

    def __init__(
        self, run: Run, ceilings: Ceilings | None = None, notes: Callable[[], list[str]] = list
    ) -> None:
        self._run, self._ceilings, self._notes = run, ceilings, notes
        self._frames: dict[str, pd.DataFrame] = {}

    @property
    def name(self) -> str:
        """Name of the run folder and, if it holds several trainings, which of them this is."""
        return self._run.name

    @property
    def path(self) -> Path:
        """The run folder, or ``RUN/parts/2`` for one of several trainings.

        ``load`` accepts either.
        """
        return self._run.path

    @cached_property
    def report(self) -> Report:
        """What ``feedline report`` shows: docs/report.md describes every field.

        Raises:
            RunDamaged: none of its ranks can be read.
        """
        made = reports_of_run.report_of(self._run, self._ceilings, processes=False)
        return replace(made, notes=[*made.notes, *self._notes()])

    @property
    def stages(self) -> list[str]:
        """The columns of ``steps`` that are stages, in the order in which a step goes through them.

        They sum to ``wall_s``.
        """
        return list(self._steps[1])

    @_frame(STEPS)
    def steps(self) -> "pd.DataFrame":
        return self._steps[0]

    @_frame(SAMPLES)
    def samples(self) -> "pd.DataFrame":
        return samples(self._ranks)

    @_frame(COLLECTIVES)
    def collectives(self) -> "pd.DataFrame":
        return collectives(self._ranks)

    @_frame(GAUGES)
    def gauges(self) -> "pd.DataFrame":
        return gauges(self._ranks)

    @_frame(USER_CODE)
    def user_code(self) -> "pd.DataFrame":
        return user_code(self.report)

    @_frame(FINDINGS)
    def findings(self) -> "pd.DataFrame":
        return findings(self.report)

    def to_html(self, path: "str | Path | None" = None, overwrite: bool = False) -> str | None:
        """Return the HTML report: a single file that needs no others.

        Args:
            path: write it there; None: return it as text.
            overwrite: replace an existing file.

        Raises:
            OutputError: the file already exists, or cannot be written.
        """
        if path is None:
            return self._html
        try:
            output.refuse_taken(Path(path), overwrite)
            output.save(Path(path), self._html)
        except OutputError as error:
            error.for_call()
            raise
        return None

    def __repr__(self) -> str:
        return f"<feedline run {printable(self._said())}>"

    def _repr_html_(self) -> str:
        from feedline.profiler.session.api import Shown

        return Shown(self._said(), self._html)._repr_html_()

    def _said(self) -> str:
        try:
            report = self.report
        except FeedlineError as error:
            return f"{self.name}: {error}"
        from feedline.analysis.report import phrases

        return (
            f"{' · '.join(phrases.about(report.run))}: "
            f"{' '.join(filter(None, [report.headline, str(report.verdict)]))}"
        )

    @property
    def _html(self) -> str:
        from feedline.analysis import report as reports

        return reports.text(self.report, Path("report.html"))

    @cached_property
    def _steps(self) -> "tuple[pd.DataFrame, list[str]]":
        return steps(self._ranks)

    @cached_property
    def _ranks(self) -> dict[int, RankMetrics]:
        if reports_of_run.holds_traces(self._run):
            raise FeedlineError(
                f"{self.path} holds traces that another tool made: they have no frames of records. "
                "Use .report (its step, ranks and traces), .findings and .to_html()"
            )
        return gather_ranks(self._run, [])


def load(path: "str | Path", training: int | None = None) -> LoadedRun:
    """Open a run folder, either recorded or made from traces by ``feedline ingest``.

        run = feedline.load("runs/train-1121-0943")
        run                                   # the verdict; in a notebook the report
        run.steps["wall_s"].describe()        # also .samples, .collectives, .gauges, .user_code, .findings: pandas
        run.report.throughput.samples_per_s   # all that `feedline report` shows
        run.to_html("report.html")

    The run may have ended, have been killed, or still be recording.

    Args:
        path: the run folder, or the folder of one of its trainings: ``RUN/parts/2``, ``RUN/training-1``.
        training: which of several trainings that one process ran one after the other, counted from 1.

    Raises:
        RunNotFound: there is no run, or it holds several trainings. ``load_all`` loads all of them.
        RunDamaged: it cannot be read.
        SchemaTooNew: a newer feedline wrote it.
        CeilingsDamaged: its ceilings.json cannot be read.
    """
    found = load_all(path, training)
    if len(found) > 1:
        names = [str(one.path) for one in found[:_NAMED]] + ["..."] * (len(found) > _NAMED)
        raise RunNotFound(
            f"{path} holds {len(found)} training runs: load one of them ({', '.join(names)}), or "
            f"all with feedline.load_all()"
        )
    return found[0]


def load_all(path: "str | Path", training: int | None = None) -> list[LoadedRun]:
    """Return all trainings in a run folder, in the order in which they began.

    There is usually one, and several for a sweep or a cross-validation.

    Args:
        path, training: as in ``load``.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew, CeilingsDamaged: as in ``load``, except that several
            trainings are not an error.
    """
    folder, number = reports_of_run.place(Path(path), training)
    found = trainings(folder)
    if len(found) > 1 and number is not None:
        open_run(folder)  # raises: of which process?
    ceilings = reports_of_run.ceilings_of(folder)
    runs = [(one.run, run) for one in found for run in reports_of_run.of_process(one.run, number)]
    for _, run in runs:
        _refuse_unreadable(run)
    beside = folder if len(runs) == 1 else None
    return [
        LoadedRun(run, ceilings, partial(_notes, whole, number, beside, found))
        for whole, run in runs
    ]


def _refuse_unreadable(run: Run) -> None:
    """See that the records of one rank at least can be read. Raises RunDamaged."""
    problem: RunDamaged | None = None
    for rank in run.ranks.values() if not reports_of_run.holds_traces(run) else ():
        try:
            if rank.main:
                return
        except RunDamaged as error:
            problem = error
    if problem is not None:
        raise problem


def _notes(whole: Run, number: int | None, folder: Path | None, found: list[Training]) -> list[str]:
    """Return what ``feedline report`` says beside the report itself.

    It is about a window of torch.profiler, and other processes.

    Args:
        whole: all that the process recorded.
        number: of the training that was asked for.
        folder: the run folder, where it holds one training.
    """
    told = (
        []
        if number is not None or reports_of_run.holds_traces(whole)
        else read_windows(whole).notes
    )
    return (
        told
        if folder is None
        else [*told, *process_log.notes(folder, {one.name for one in found}, worker_pids(found))]
    )
