"""Measure a run: what each rank did, what ranks cost each other, and the facts that rules read."""

import dataclasses
from collections.abc import Mapping

from feedline.analysis.convergence import read_training
from feedline.analysis.convergence.read_training import summarise
from feedline.analysis.convergence.training_record import ConvergenceSummary
from feedline.analysis.explain.headline import headline
from feedline.analysis.explain.hung import Hang, hung
from feedline.analysis.explain.model import MeasuredRun, RankSummary
from feedline.analysis.explain.notes_of_rank import ending, notes_of
from feedline.analysis.explain.run_facts import (
    effective_cpus,
    failure_of,
    glibc_version,
    graph_breaks_of,
    hooks_of,
    recompiled_functions,
    run_info,
    source_of,
    updated_by,
)
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.recorded_ledger import ledger_of
from feedline.analysis.ledger.view.input_wait import steady_share
from feedline.analysis.ledger.view.own_functions import place_of
from feedline.analysis.measure import (
    batch_making,
    memory,
    needless,
    own_code,
    rank_metrics,
    user_code,
    waits,
)
from feedline.analysis.measure.at_end import AtEnd, at_end
from feedline.analysis.measure.code_tree import MAIN, WORKER, SampledCode
from feedline.analysis.measure.crops import cut_first
from feedline.analysis.measure.feeding import take_turns, together
from feedline.analysis.measure.full_memory import filled_since, full_limit, killed_worker
from feedline.analysis.measure.growing_lines import line_of_samples
from feedline.analysis.measure.model import (
    Cpus,
    Gauge,
    KilledWorker,
    Loader,
    MemoryGrowth,
    Throughput,
    Traffic,
    Workers,
)
from feedline.analysis.measure.needless import unused_gradients
from feedline.analysis.measure.noise import (
    certainty,
    half_width,
    interval_of_rate,
    means_of,
    relative,
    unseen,
)
from feedline.analysis.measure.periodic import periodic_stall
from feedline.analysis.measure.rank_gauges import cpu_use, mean_of, read_rank_gauges
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.measure.steps import runs_closures
from feedline.analysis.predict.main_process import rank_cpus
from feedline.analysis.predict.starts import settling_cpu_s, staying_cpu_s
from feedline.analysis.ranks import comparison
from feedline.analysis.ranks.comparison import NO_HINTS, Compared, NetworkHints
from feedline.profiler import masks
from feedline.profiler.ceilings import Ceilings
from feedline.profiler.errors import FeedlineError, shows_tracebacks
from feedline.profiler.events import Stage
from feedline.profiler.message import reworded
from feedline.profiler.session.ending import INTERRUPTED
from feedline.profiler.store.run_folder import Rank, Run
from feedline.profiler.store.sampled_stacks import ProcessStacks
from feedline.profiler.store.stacks_reader import read_stacks


def gather_ranks(run: Run, notes: list[str]) -> dict[int, RankMetrics]:
    """Return what each rank did, by its number.

    Ranks that cannot be read are left out, and named in the notes.

    Raises:
        RunDamaged: none can be read.
    """
    gathered: dict[int, RankMetrics] = {}
    problem: FeedlineError | None = None
    for number, rank in sorted(run.ranks.items()):
        try:
            gathered[number] = RankMetrics.of(rank)
        except FeedlineError as error:
            problem = error
            notes.append(f"rank {number}: {error}")
    if not gathered:
        assert problem is not None
        raise problem
    return gathered


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What is known of a run before anything is said about it.

    Attributes:
        run: what was measured, as a report has it.
        shown: the rank that it shows.
        facts: of that rank, for rules and predictions; None: it made no step.
        end: how the rank ended that ended first.
        killed: the worker whose end that was; None: none.
        hang: why no step passed when the run was interrupted; None: it was not, or steps passed.
    """

    run: MeasuredRun
    shown: RankMetrics
    facts: RuleInputs | None
    end: AtEnd
    killed: KilledWorker | None = None
    hang: Hang | None = None

    @property
    def ended_badly(self) -> bool:
        """Whether it failed, was killed, or no longer made progress.

        A person may interrupt any other run.
        """
        about = self.run.run
        failed = about.state == "cut" or bool(about.exit_code) and about.exit_code != INTERRUPTED
        return failed or self.end.hangs


def measure(
    run: Run, ceilings: Ceilings | None = None, hints: NetworkHints = NO_HINTS
) -> Measurement:
    """Measure a run. Args and errors as for ``build``."""
    notes = list(run.notes)
    source = _source(run, ceilings, hints, notes)
    shown, ended, end = source.shown, source.ended, source.end
    trained = _convergence(run, notes)
    killed, hang = killed_worker(ended), hung(source.ranks)
    step = _step(source)
    use = _cpu_use(source) if step is not None else None
    workers, loaders = batch_making.workers(shown), batch_making.loaders(shown)
    facts = _facts(source, step, workers, loaders, use, killed)
    about = run_info(run, ended.rank, end, [rank.rank for rank in source.ranks.values()])
    pace, trained = _throughput(source, trained, step)
    measured = MeasuredRun(
        run=about,
        throughput=pace,
        step=_with_input(facts) if facts is not None else step,
        workers=workers,
        loaders=loaders if run.part is None else _used(loaders, shown),
        ranks={
            str(number): _rank_summary(rank, source.compared)
            for number, rank in source.ranks.items()
        },
        gauges=source.gauges,
        hooks=hooks_of(shown.rank.manifest),
        notes=_worded(run, [*notes, *_notes_of_ranks(source)]),
        comm=source.compared.communication if source.compared else None,
        convergence=trained,
        cpus=use,
        shown=shown.rank.number,
        ledger=facts.ledger if facts is not None else None,
        user_code=_user_code(facts),
        memory_growth=list(facts.growth) if facts is not None else [],
        graph_breaks=graph_breaks_of(shown.rank.manifest.training),
        headline=headline(
            about,
            pace.steps,
            trained.updates if trained else 0,
            "The training" if len(source.ranks) == 1 else f"Rank {ended.rank.number}",
            end,
            "batch" if step is not None and step.boundary == "loader" else "step",
            filled_since(ended),
            hang is not None,
        ),
    )
    return Measurement(measured, shown, facts, end, killed, hang)


@dataclasses.dataclass(frozen=True)
class _Source:
    """What a run is measured from.

    Attributes:
        ranks: by number, as far as they can be read.
        compared: with each other; None: there is nothing to compare.
        shown: the rank that a report shows.
        gauges: of that rank.
        stacks: of that rank.
        code: the program's functions in these stacks; None without any.
        lines: reads the program's source.
        ended: the rank that ended first.
        end: how it did.
    """

    ranks: Mapping[int, RankMetrics]
    compared: Compared | None
    shown: RankMetrics
    gauges: list[Gauge]
    stacks: tuple[ProcessStacks, ...]
    code: SampledCode | None
    lines: SourceLines
    ended: RankMetrics
    end: AtEnd


def _source(run: Run, ceilings: Ceilings | None, hints: NetworkHints, notes: list[str]) -> _Source:
    """Read the ranks of a run, and note what cannot be read."""
    ranks = gather_ranks(run, notes)
    compared = comparison.compare_recorded(
        ranks, ranks[min(ranks)], ceilings, hints, notes, rank_cpus(ranks)
    )
    shown = ranks[comparison.choose_shown_rank(ranks, compared)]
    gauges = read_rank_gauges(shown.rank, notes)
    stacks, lines = _stacks(shown.rank, notes), source_of(shown.rank)
    ended = ranks[comparison.first_failed(ranks)]
    return _Source(
        ranks=ranks,
        compared=compared,
        shown=shown,
        gauges=gauges,
        stacks=stacks,
        code=SampledCode.of(
            stacks,
            lines,
            shown.steps.boundaries.evaluation if shown.steps is not None else None,
            shown.steps.making.names if shown.steps and shown.steps.making else frozenset(),
            shown.counted_since,
            {
                MAIN: rank_metrics.main_queued_share(shown) or 0.0,
                WORKER: batch_making.queued_share(shown),
            },
        ),
        lines=lines,
        ended=ended,
        end=at_end(ended, gauges if ended is shown else []),
    )


def _used(loaders: list[Loader], rank: RankMetrics) -> list[Loader]:
    """Return the loaders that were gone through."""
    numbers = set(rank.main.of(Stage.EPOCH, Stage.NEXT)["source"].tolist())
    return [loader for number, loader in enumerate(loaders) if number in numbers]


def _notes_of_ranks(source: _Source) -> list[str]:
    """Return what is to be said of the shown rank, and how the others ended."""
    others = [rank for rank in source.ranks.values() if rank is not source.shown]
    return [
        *notes_of(source.shown),
        *(note for rank in others for note in ending(rank)),
    ]


def _worded(run: Run, notes: list[str]) -> list[str]:
    """Return notes as a report shows them."""
    return [reworded(note, masks.text(run.named(note))) for note in notes]


def _step(source: _Source) -> StepSummary | None:
    """Return the mean step, with the CPU time of the whole training and its own code."""
    shown, code = source.shown, source.code
    step = rank_metrics.step_summary(shown)
    if step is None:
        return None
    return dataclasses.replace(
        step,
        cpu_s=_cpu_s(shown, source.gauges, step.mean_s),
        own_code=user_code.looked_or_sampled(
            own_code.of_steps(shown, step),
            user_code.loop_code(code, step.stages) if code is not None else None,
        ),
        evaluation_code=own_code.of_evaluation(shown, step),
        periodic=periodic_stall(shown, step.mean_s, step.stages, source.stacks),
        evaluation_place=user_code.evaluating_line(
            shown.steps.boundaries.evaluation, code, source.stacks
        )
        if shown.steps is not None
        else "",
    )


def _cpu_use(source: _Source) -> Cpus | None:
    """Return who used the CPUs while the steps of the shown rank ran."""
    beside = [
        (rank, read_rank_gauges(rank.rank, []))
        for rank in source.ranks.values()
        if rank is not source.shown
    ]
    return cpu_use(source.shown, source.gauges, beside)


def _throughput(
    source: _Source, trained: ConvergenceSummary | None, step: StepSummary | None
) -> tuple[Throughput, ConvergenceSummary | None]:
    """Return the rate with its interval, and the convergence with the same number of samples."""
    shown = source.shown
    pace = comparison.throughput(source.ranks, shown)
    profiled = len(shown.main.of(Stage.PROFILED)) > 0  # such steps do not count
    if len(source.ranks) == 1 and shown.rank.manifest.ended and not profiled:
        pace, trained = _trained_on(pace, trained)
    if pace.of_all_ranks and step is not None:
        low, high = interval_of_rate(pace.of_all_ranks, half_width(*relative(means_of(shown))))
        pace = dataclasses.replace(pace, low=low, high=high)
    return pace, trained


def _trained_on(
    pace: Throughput, trained: ConvergenceSummary | None
) -> tuple[Throughput, ConvergenceSummary | None]:
    """Return the throughput and the convergence with the same number of samples.

    One counts the batches of the steps. The other counts as updates come, when it is not known yet
    that a batch before them was only looked at, or is fetched ahead.
    """
    if trained is None or trained.samples is None or not pace.samples:
        return pace, trained
    samples = min(pace.samples, round(trained.samples))
    return dataclasses.replace(pace, samples=samples), dataclasses.replace(
        trained, samples=float(samples)
    )


def _convergence(run: Run, notes: list[str]) -> ConvergenceSummary | None:
    """Return how the training got on; None where nothing was trained."""
    try:
        recorded = read_training.of_run(run)
        return summarise(recorded) if recorded.updates else None
    except Exception as error:  # the rest of the report does not need it
        if shows_tracebacks() and not isinstance(error, FeedlineError):
            raise
        notes.append(f"convergence was not analyzed: {error or type(error).__name__}")
        return None


def _cpu_s(rank: RankMetrics, gauges: list[Gauge], mean_s: float) -> float | None:
    """Return the CPU seconds of the mean step, of everything that the training started."""
    tree = next((gauge for gauge in gauges if gauge.name == "cpu/processes"), None)
    anchors = rank.rank.manifest.anchors
    if tree is None or rank.steps is None or not anchors:
        return None
    return rank_metrics.cpu_s(rank.steps, rank.first, tree, anchors[0]["perf_counter_ns"], mean_s)


def _facts(
    source: _Source,
    step: StepSummary | None,
    workers: Workers | None,
    loaders: list[Loader],
    use: Cpus | None,
    killed: KilledWorker | None,
) -> RuleInputs | None:
    """Return what the rules read; None without a step."""
    rank, compared, code = source.shown, source.compared, source.code
    if step is None or rank.steps is None:
        return None
    feeding = [loader for loader in loaders if loader.role == "training"]
    in_turn = len(feeding) > 1 and take_turns(rank.rank.main)
    training = together(feeding, in_turn)
    epochs, manifest = training.epochs if training else 0, rank.rank.manifest
    glibc, pace = glibc_version(manifest), rank_metrics.throughput(rank)
    facts = RuleInputs(
        throughput=pace,
        step=step,
        loader=training,
        workers=workers,
        traffic=_traffic(rank),
        wait_share=_wait_seconds(step) / step.mean_s if step.mean_s else 0.0,
        ready_share=waits.ready_share(rank.steps.asked, rank.ready),
        effective_cpus=effective_cpus(manifest),
        main_runqueue_share=step.main_runqueue_share,
        main_queued_share=rank_metrics.main_queued_share(rank),
        updated=updated_by(manifest.training, rank.main, pace.steps),
        finds_unused=manifest.training.get("finds_unused") is True,
        recompiled=recompiled_functions(manifest.training),
        compiling_s=rank.main.total(Stage.COMPILE)["wall"] / 1e9,
        process_cpu_s=workers.process_cpu_s if workers else None,
        straggler_share=batch_making.straggler_share(rank),
        epochs=epochs,
        certainty=certainty(rank, epochs <= 1),
        cpus=use,
        batch_tensors=workers.batch_tensors if workers else None,
        moved=rank_metrics.moved_per_step(rank.main, rank.steps, rank.first),
        swapped_in=mean_of(rank, rank, source.gauges, "memory/swapped_in"),
        full_limit_bytes=full_limit(rank),
        loader_elsewhere=rank.loader_elsewhere,
        making=rank.steps.making,
        unseen=unseen(rank),
        staying_s=staying_cpu_s(rank.makers) if glibc else 0.0,
        settling_s=settling_cpu_s(rank.makers),
        glibc=glibc,
        order_s=batch_making.order_s(rank, epochs),
        same_samples=batch_making.same_samples(rank),
        worker_parts=batch_making.worker_parts(rank),
        first_made_s=batch_making.first_made_s(rank),
        failed=failure_of(manifest),
        closures=runs_closures(rank.main),
        comm=compared.communication if compared else None,
        comm_parts=compared.parts if compared else {},
        ddp=compared is not None and compared.ddp,
        sharded=compared is not None and compared.sharded,
        shown=rank.rank.number,
        code=code,
        killed=killed,
        several_loaders=len(feeding) > 1
        and not (in_turn and training is not None and "num_workers" in training.settings),
    )
    return _completed(facts, source)


def _completed(facts: RuleInputs, source: _Source) -> RuleInputs:
    """Return what the rules read, with what is measured by the rest of it, and its ledger."""
    rank, code, workers, step = source.shown, source.code, facts.workers, facts.step
    assert rank.steps is not None
    training = rank.rank.manifest.training
    parts = facts.comm_parts.get(rank.rank.number)
    return dataclasses.replace(
        facts,
        kept=memory.chained(rank.main, source.lines),
        dropped=needless.dropped_forwards(rank.main, source.lines),
        skipped=needless.skipping(rank.main, rank.steps, source.lines),
        one_by_one=needless.one_by_one(rank.main, rank.steps),
        padding=needless.padding(rank.main),
        denormal=needless.denormal(
            rank.main, rank.steps.start, rank.steps.wall, facts.throughput.steps
        ),
        adding_line=memory.adding_line(rank.main, source.lines),
        saved_bytes=needless.saved_bytes(rank.main),
        unused_gradients=unused_gradients(rank.main, training, source.stacks),
        not_evaluating=_not_evaluating(source),
        cut_first=cut_first(workers.operations, rank.makers.processes) if workers else None,
        growth=_growth(rank, source.gauges, facts, source.lines),
        killed=_killed(facts, rank, source.lines),
        ledger=ledger_of(rank, step, facts.costs, parts, facts.exposed, code),
    )


_HARDLY = 0.1  # of what the shown rank evaluates: less on another is none


def _not_evaluating(source: _Source) -> int:
    """Return the other ranks, where only the shown one evaluates; 0: there are none, or some do."""
    steps = source.shown.steps
    if source.compared is None or source.compared.communication is None or steps is None:
        return 0
    others = [
        rank.steps.evaluating
        for rank in source.ranks.values()
        if rank is not source.shown and rank.steps is not None
    ]
    alone = steps.evaluating > 0 and max(others, default=0) < _HARDLY * steps.evaluating
    return len(others) if alone else 0


def _growth(
    rank: RankMetrics, gauges: list[Gauge], facts: RuleInputs, source: SourceLines
) -> list[MemoryGrowth]:
    """Return the memory that grows while the steps of a rank run."""
    anchors = rank.rank.manifest.anchors
    if not anchors:
        return []
    origin = anchors[0]["perf_counter_ns"]
    return [
        memory.placed(grown, rank.main, source, *_sample_code(facts))
        for grown in memory.growths(rank.main, rank.steps, rank.counted, gauges, origin, source)
    ]


def _killed(facts: RuleInputs, rank: RankMetrics, source: SourceLines) -> KilledWorker | None:
    """Return the worker that was killed, with the line of the data set that makes it grow.

    That is known of the loaders that feed the steps.
    """
    killed = facts.killed
    if killed is None or killed.per_second_bytes is None and not killed.kept_perhaps:
        return killed
    if killed.loader not in rank.makers.loaders:
        return killed
    return dataclasses.replace(killed, place=line_of_samples(*_sample_code(facts), source))


def _sample_code(facts: RuleInputs) -> tuple[str, str]:
    """Return where the function is that makes samples, and the name of that which collates."""
    return place_of(str(facts.setting("sample_code", ""))), str(facts.setting("collate") or "")


def _stacks(rank: Rank, notes: list[str]) -> tuple[ProcessStacks, ...]:
    """Return the rank's stacks; none where nothing was sampled.

    What is wrong with them is noted: the rest of the report does not need them.
    """
    try:
        return read_stacks(rank)
    except FeedlineError as error:
        notes.append(str(error))
        return ()


def _user_code(facts: RuleInputs | None) -> user_code.UserCode | None:
    """Return what functions of the program take; None where no stacks were sampled."""
    if facts is None or facts.code is None:
        return None
    batch_s = facts.workers.fetch_mean_s if facts.workers else None
    making_s = batch_s * facts.batches_per_step if batch_s is not None else None
    return user_code.user_code(facts.code, facts.step.mean_s, making_s)


def _with_input(facts: RuleInputs) -> StepSummary:
    """Return the step with the share that its input takes of it, and how sure that is.

    The step is returned as it is where that is not known.
    """
    sure = facts.certainty
    if facts.loader is None or facts.loader_elsewhere or sure is None:
        return facts.step
    return dataclasses.replace(
        facts.step,
        input_share=steady_share(facts),
        input_share_low=sure.low,
        input_share_high=sure.high,
    )


def _wait_seconds(step: StepSummary) -> float:
    return sum(step.stages.get(name, 0.0) for name in INPUT_STAGES)


def _traffic(rank: RankMetrics) -> Traffic:
    seen = rank.makers.traffic()
    if seen is None or not rank.samples:
        return Traffic(None, None, None, None)
    kernel = rank.makers.kernel()
    return Traffic(
        read_chars=seen.read_bytes,
        read_calls=seen.reads,
        disk_bytes=seen.disk_bytes,
        major_faults=seen.major_faults,
        minor_faults=kernel.minor_faults if kernel else None,
        system_s=kernel.system_cpu / 1e9 if kernel else None,
    )


def _rank_summary(rank: RankMetrics, compared: Compared | None) -> RankSummary:
    step = rank_metrics.step_summary(rank)
    return RankSummary(
        steps=len(rank.steps.wall) + rank.counted.number if rank.steps else 0,
        mean_s=step.mean_s if step else None,
        stages=step.stages if step else {},
        state=rank.rank.manifest.state,
        comm=compared.parts.get(rank.rank.number) if compared else None,
    )
