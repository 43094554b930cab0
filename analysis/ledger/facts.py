"""What rules read: of a recorded run, and of ranks that were recorded or traced together.

Of traces: trace_facts.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from feedline.analysis.ledger.finding import Evidence
from feedline.analysis.ledger.table import Ledger, sample_rows, step_rows
from feedline.analysis.measure.clues import (
    Denormal,
    DroppedForwards,
    Making,
    OneByOne,
    Padding,
    Parts,
    SameSamples,
    Skipped,
    UnusedGradients,
)
from feedline.analysis.measure.code_places import COMPILE
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import (
    Certainty,
    Cost,
    Cpus,
    KeptGraphs,
    KilledWorker,
    Loader,
    MemoryGrowth,
    Moved,
    Recompiled,
    Throughput,
    Traffic,
    Unseen,
    Updated,
    Workers,
)
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.ranks.communication import Communication, ExposedKind, LateRank, RankParts


@dataclass(frozen=True)
class RuleInputs:
    """One rank's training loader and step.

    Attributes:
        loader: that feeds the steps; of several, what they have in common (measure/feeding.py).
        wait_share: share of the mean step spent waiting for the loader (wait + transport +
            epoch_start + sampler; with num_workers=0 also read, decode, augment, dataset, collate),
            or making a batch in the program itself (input).
        ready_share: share of the requests for a batch that found one ready (None: num_workers=0).
        effective_cpus: CPUs that this process may use: its affinity, capped by the cgroup quota.
        main_runqueue_share: share of the step that the main thread was runnable but had no CPU.
        process_cpu_s: CPU seconds per sample of whole worker processes, helper threads included
            (None: not measured).
        straggler_share: share of worker time idle while another batch was awaited in order (None:
            no workers or out of order).
        epochs: how many epochs were begun.
        cpus: who used the CPUs while the steps ran (None: not known).
        batch_tensors: tensors in a batch as collate made it (None: not known).
        moved: stage -> what one step moves in it, of ``transport``, ``pin`` and ``copy``.
        swapped_in: bytes per second that the machine reads back from swap while the steps run
            (None: not sampled).
        full_limit_bytes: the memory limit of its control group, if that was full while the steps ran
            (None: there was room, no limit, or the machine was full).
        loader_elsewhere: only threads of the program's own ask the loader: how long steps wait for
            them is not measured.
        comm: what the ranks did together (None: one rank, or no collective was seen).
        comm_parts: by rank, where ranks were compared.
        ddp: DistributedDataParallel sends most of what the ranks all-reduce in backward, as far as
            that is known.
        sharded: what is reduce-scattered in backward is known to be gradients, and what is gathered
            parameters.
        certainty: of the share of the input (None: not computed).
        shown: number of the rank (None: not known).
        making: functions of the program that make its batches (None: not known, or a loader does).
        unseen: where no loader feeds the steps, what else may be input (None: not computed).
        staying_s: CPU seconds that a batch takes more in workers that stay between passes, if these
            did not.
        settling_s: CPU seconds that a batch would still take for page faults in workers that stay
            between passes, if these become fewer there; 0: they do not.
        glibc: version of its malloc, if the program has it as it is, without settings in the
            environment; () if not.
        closures: whether updates call closures, whose own code is in the stage "optimizer".
        main_queued_share: share (0 to 1) of the time in which the main thread wants a CPU that it
            has none, in forward and backward (None: not measured).
        ledger: where the time of the step and of the run went (None: not computed).
        updated: what its optimizer updates in each step, or several of one kind (None: they are of
            different kinds or take turns, or none was described).
        finds_unused: DistributedDataParallel looks for parameters without a gradient in each step.
        recompiled: functions that were compiled more than once, most often compiled first.
        compiling_s: seconds for which the main process compiled, also in steps that a long run
            forgot (None: not known).
        order_s: seconds in which a pass over the loader draws its first indices, on average (None:
            not known).
        same_samples: the loader's workers were seen to deliver the same samples of a stream.
        worker_parts: samples of each of the loader's workers (None: no pass was ended by all of them).
        first_made_s: seconds in which a worker makes the first batch of a later pass (None: there
            was none).
        failed: the run ended with an error: how, in words; empty: it did not.
        code: the program's functions in sampled stacks (None: none were sampled).
        growth: memory that grows while the steps run.
        kept: graphs of past steps that are still in memory (None: none are, or not known).
        dropped: forwards whose graph is dropped in each step (None: there are none, or not known).
        skipped: first batches of each pass that nothing is trained on (None: there are none).
        one_by_one: a model that is called for each sample of a batch on its own (None: it is not).
        padding: of batches of indices (None: none were looked at).
        denormal: parameters and gradients that are nearly zero (None: none were seen).
        adding_line: the line of the loop that adds to what outlives a step, ``train.py:31``; empty:
            none, several, or not known.
        cut_first: whether samples are cropped or resized before the transform that takes most. None:
            no transform does so, or it is not known.
        unused_gradients: that no update uses. None: there are none, or it is not known.
        saved_bytes: size of a checkpoint, the median. None: there was none, or it is not known.
        not_evaluating: other ranks, where only the shown one evaluates; 0: there are none, or some do.
        killed: the worker whose end was that of the training; None: there was none.
        several_loaders: more than one loader feeds the steps: which of them they wait for, and how
            many workers each needs, is not known. Loaders that take turns, with as many workers
            each, are as one.
    """

    throughput: Throughput
    step: StepSummary
    loader: Loader | None
    workers: Workers | None
    traffic: Traffic
    wait_share: float
    ready_share: float | None
    effective_cpus: float
    main_runqueue_share: float | None
    process_cpu_s: float | None
    straggler_share: float | None
    epochs: int
    cpus: Cpus | None = None
    batch_tensors: float | None = None
    moved: dict[str, Moved] = field(default_factory=dict)
    swapped_in: float | None = None
    full_limit_bytes: float | None = None
    loader_elsewhere: bool = False
    comm: Communication | None = None
    comm_parts: dict[int, RankParts] = field(default_factory=dict)
    ddp: bool = False
    sharded: bool = False
    certainty: Certainty | None = None
    making: Making | None = None
    unseen: Unseen | None = None
    staying_s: float = 0.0
    settling_s: float = 0.0
    glibc: tuple[int, ...] = ()
    main_queued_share: float | None = None
    ledger: Ledger | None = None
    updated: Updated | None = None
    finds_unused: bool = False
    recompiled: tuple[Recompiled, ...] = ()
    compiling_s: float | None = None
    order_s: float | None = None
    same_samples: SameSamples | None = None
    worker_parts: Parts | None = None
    first_made_s: float | None = None
    failed: str = ""
    closures: bool = False
    shown: int | None = None
    code: SampledCode | None = None
    growth: Sequence[MemoryGrowth] = ()
    kept: KeptGraphs | None = None
    dropped: DroppedForwards | None = None
    skipped: Skipped | None = None
    one_by_one: OneByOne | None = None
    padding: Padding | None = None
    denormal: Denormal | None = None
    adding_line: str = ""
    cut_first: bool | None = None
    unused_gradients: UnusedGradients | None = None
    not_evaluating: int = 0
    saved_bytes: float | None = None
    killed: KilledWorker | None = None
    several_loaders: bool = False

    @cached_property
    def rows(self) -> dict[str, float]:
        """Seconds of each row of the ledger.

        They are those of the mean step, and of a mean sample (``sample/decode/cpu``).
        """
        _, of_sample = sample_rows(self.costs, self.code)
        parts = self.comm_parts.get(self.shown) if self.shown is not None else None
        of_step = step_rows(self.step, parts, self.exposed, self.code)
        return {row.where: row.s for row in of_step if row.s > 0} | {
            f"sample/{row.where}": row.s for row in of_sample if row.s > 0
        }

    @property
    def exposed(self) -> Sequence[ExposedKind]:
        """Communication of its rank that nothing hides."""
        return self.comm.exposed.get(str(self.shown), []) if self.comm is not None else []

    @property
    def on_gpu(self) -> bool:
        """Whether the training was seen to use a GPU.

        One's work was timed, or tensors were copied to a device.
        """
        return (
            self.step.gpu_stages is not None
            or self.step.gpu_work is not None
            or bool(self.step.stages.get("copy"))
        )

    @property
    def compiled(self) -> bool:
        """Whether torch.compile was seen to compile, also where it did so before the mean's steps."""
        run = self.ledger.run if self.ledger is not None else None
        before = run is not None and any(row.where.endswith(f"/{COMPILE}") for row in run.rows)
        return before or COMPILE in self.step.stages

    @property
    def decodes_images(self) -> bool:
        """Whether samples were seen to decode images."""
        return bool(self.workers and self.workers.decoded_pixels)

    @property
    def is_stream(self) -> bool:
        """Whether the training loader reads an iterable dataset.

        Each worker has a copy of its own then.
        """
        return self.setting("map_style") is False

    @property
    def may_be_split(self) -> bool:
        """Whether more than one worker may share the samples.

        They may not of a stream whose workers deliver the same, or that does not ask for its
        worker.
        """
        return not (
            self.is_stream
            and (self.same_samples is not None or self.setting("asks_for_worker") is False)
        )

    @property
    def shards(self) -> int | None:
        """Shards of a stream: more workers than that get nothing.

        None: its library does not tell.
        """
        shards = self.setting("dataset_shards")
        return shards if self.is_stream and isinstance(shards, int) and shards > 0 else None

    @property
    def dataset_changes(self) -> list[str]:
        """Attributes of the dataset that the program was seen to change between passes."""
        changes = self.setting("dataset_changes")
        return [str(name) for name in changes] if isinstance(changes, list) else []

    @property
    def costs(self) -> Mapping[str, Cost]:
        """Stage -> mean cost of one sample, ``total`` among them; empty where no workers are known."""
        return self.workers.per_sample if self.workers else {}

    @property
    def unseen_at_most(self) -> float | None:
        """Share (0 to 1) of the step that may be input without a loader.

        It is the upper end of its interval where most steps were only timed.
        """
        if self.unseen is None:
            return None
        return self.unseen.share if self.step.sampled is None else self.unseen.high

    @property
    def idle_workers(self) -> int:
        """Workers that never made a batch: more of them would not make any, either."""
        return self.workers.without_batches if self.workers else 0

    @property
    def batches_per_step(self) -> float:
        """Batches per step, more than 1 with gradient accumulation."""
        workers, per_step = self.workers, self.throughput.batch_size
        if workers is None or not workers.batches or not workers.samples or not per_step:
            return 1.0
        return per_step * workers.batches / workers.samples

    def sample_share(self, stage: str) -> float:
        """Return the share (0 to 1) of a sample's wall time that this stage takes.

        It is 0 where the stage did not occur.
        """
        part, total = self.costs.get(stage), self.costs.get("total")
        return part.wall_s / total.wall_s if part and total and total.wall_s else 0.0

    @property
    def runqueue_share(self) -> float | None:
        """Share (0 to 1) of a sample's wall time in which it could run but had no CPU.

        None: not measured.
        """
        cost = self.costs.get("total")
        return (
            cost.runqueue_s / cost.wall_s
            if cost and cost.wall_s > 0 and cost.runqueue_s is not None
            else None
        )

    def waiting_cpus(self) -> float:
        """Return how many CPUs the training lacks.

        They are its threads that could run but have no CPU, on average, of those that are measured.
        """
        workers, queued = self.workers, self.runqueue_share or 0.0
        return (self.main_runqueue_share or 0.0) + (
            workers.processes * (workers.busy_share or 0.0) * queued if workers else 0.0
        )

    @property
    def all_steps_s(self) -> float:
        """Seconds of all steps, with those that the mean leaves out, as the whole run's table.

        Where that is not known, they are taken to be like the mean step.
        """
        run = self.ledger.run if self.ledger is not None else None
        recorded_s = run.total_s("steps") if run is not None else 0.0
        return recorded_s or self.step.mean_s * self.throughput.steps

    def computing_s(self, *stages: str) -> float:
        """Return the seconds of the mean step that stages take, on the host or on a GPU.

        The host only launches a GPU's work: where that was timed and takes longer, it counts.
        """
        host_s, gpu_s = (
            sum(of.get(name, 0.0) for name in stages)
            for of in (self.step.stages, self.step.gpu_stages or {})
        )
        return min(self.step.mean_s, max(host_s, gpu_s))

    def computing_part_s(self, stage: str, host_s: float) -> float:
        """Return the same of calls in one stage, in proportion to the host's time.

        Args:
            host_s: of these calls in the mean step. They have no more than the stage.
        """
        whole_s = self.step.stages.get(stage, 0.0)
        return self.computing_s(stage) * min(host_s / whole_s, 1.0) if whole_s > 0 else 0.0

    def setting(self, name: str, default: object = None) -> object:
        """Return a setting of the training loader, such as ``num_workers``."""
        return self.loader.settings.get(name, default) if self.loader else default

    @property
    def loader_made_again(self) -> bool:
        """Whether each pass is over a new DataLoader, whose workers end with it, persistent or not."""
        return self.loader is not None and self.loader.objects >= self.epochs > 1


@dataclass(frozen=True)
class Waiting:
    """How long a rank waits for others.

    Attributes:
        rank: in a run, the one that waits most; of traces, the first that is not late itself.
        s: seconds per step.
        step_s: the step that costs are shares of.
        share: of it that the rank waits, from 0 to 1.
        parts: of the same rank's step; None: not known.
        more: how long it waits, in sentences, where its share decides.
        evidence: of the source: what other sources do not measure.
    """

    rank: int
    s: float
    step_s: float
    share: float
    parts: RankParts | None
    more: list[str] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(frozen=True)
class Exposed:
    """Communication of a rank during which nothing computes.

    Attributes:
        rank: in a run, the one that has least of it: what the others have more is waiting in
            disguise. Of traces, the one that is shown.
        s: seconds per step; of a trace without steps, in all of it.
        share: the same, from 0 to 1, of the step or the trace.
        beyond: what hides the rest of it: "backward" in a run, "computation" where kernels were
            traced.
        kinds: it by what moves, most first.
        hidden_share: of the transfer, from 0 to 1. None: not known.
        more: which rank it is, where that has to be said, and why waiting for other ranks may be
            part of it; sentences.
        separate: how to separate transfer from waiting, in sentences; empty: they are.
        evidence: of the source.
        place: file and line of the program that call what takes most, outside of forward and
            backward; empty: unknown.
        ddp: DistributedDataParallel is known to all-reduce gradients.
        sharded: FSDP is known to scatter gradients and gather parameters.
    """

    rank: int
    s: float
    share: float
    beyond: str
    kinds: list[ExposedKind]
    hidden_share: float | None
    more: list[str]
    separate: list[str]
    evidence: list[Evidence]
    place: str = ""
    ddp: bool = False
    sharded: bool = False


@dataclass(frozen=True)
class RankFacts:
    """What ranks cost each other, whether they were recorded or traced.

    view/recorded_ranks.py and trace_facts.py make them.

    Attributes:
        ranks: how many were compared.
        whole: what shares are of, in words.
        comm: None: one rank was traced.
        late: those that others waited for, most costly first. None of a run that has too few steps
            with a late rank.
        waiting: None: no rank is late.
        exposed: None: nothing is known of it.
        code: of the program. None: its stacks were not sampled.
        traced: they were traced, not recorded.
    """

    ranks: int
    whole: str
    comm: Communication | None
    late: list[LateRank]
    waiting: Waiting | None
    exposed: Exposed | None
    code: SampledCode | None = None
    traced: bool = False
