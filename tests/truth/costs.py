"""What each finding costs, worked out again from the figures of its report: seconds per step, by
arithmetic of its own.
"""

import math
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from feedline.analysis.explain.next_limit import _cpus_are_full, _lifted

INLINE = ("read", "decode", "augment", "dataset", "user", "collate")
CONVERSIONS = frozenset(
    (
        "totensor",
        "to_tensor",
        "convertimagedtype",
        "convert_image_dtype",
        "todtype",
        "to_dtype",
        "tofloat",
        "normalize",
    )
)
RESIZES = frozenset(("resize", "randomresizedcrop", "smallestmaxsize", "longestmaxsize"))


@dataclass(frozen=True)
class Bar:
    """The mean step of a report, what its loader takes of it, and what a sample costs; and the
    finding that is looked at.
    """

    told: Any
    finding: Any = None

    def evidence(self, id: str, otherwise: float | None = None) -> float:
        """What the finding shows of it."""
        found = [one["value"] for one in self.finding["evidence"] if one["id"] == id]
        assert found or otherwise is not None, f"{self.finding['cause']} has no evidence '{id}'"
        return float(found[0]) if found else float(otherwise or 0.0)

    @property
    def mean(self) -> float:
        return float(self.told["step"]["mean_s"])

    @property
    def waits(self) -> Mapping[str, float]:
        return self.told["step"]["waits"]  # type: ignore[no-any-return]

    @property
    def workers(self) -> Any:
        return self.told["workers"] or {}

    @property
    def loader(self) -> Any:
        none = {"settings": {}, "flags": [], "epochs": 0, "objects": 0}
        return next((one for one in self.told["loaders"] if one["role"] == "training"), none)

    def stage(self, *names: str) -> float:
        return sum(self.told["step"]["stages"].get(name, 0.0) for name in names)

    def wait(self, kind: str) -> float:
        return float(self.waits.get(kind, 0.0))

    @property
    def number(self) -> int | None:
        """Workers of the training loader."""
        setting = self.loader["settings"].get("num_workers")
        return setting if isinstance(setting, int) else self.workers.get("processes") or None

    @property
    def alone(self) -> bool:
        """Whether the main process makes its batches itself."""
        return self.number == 0

    @property
    def starts(self) -> float:
        return self.stage("epoch_start") + self.wait("first_batch")

    @property
    def once(self) -> float:
        """The loader's only start."""
        return self.starts if self.loader["epochs"] <= 1 else 0.0

    @property
    def input(self) -> float:
        return self.stage("wait", "transport", "epoch_start", "sampler", "input", *INLINE)

    @property
    def computing(self) -> float:
        """C: the step without its input."""
        return max(self.mean - self.input, 0.0)

    @property
    def transport(self) -> float:
        return self.stage("transport") + self.wait("in_transit")

    @property
    def sending(self) -> float:
        """From when a batch was made until it is there."""
        return self.wait("handover") - self.hidden + self.transport

    @property
    def hidden(self) -> float:
        """Of handover, what workers that never idle lack: a batch leaves late because its worker
        makes the next one.
        """
        if not self.number or not self.workers.get("fetch_mean_s"):
            return 0.0
        rest = max(self.computing, float(self.told["step"].get("gpu_s") or 0.0))
        return min(self.wait("handover"), max(0.0, self.work / self.number - rest - self.starved))

    @property
    def making(self) -> float:
        """What the step waits for batches that are being made, or makes them itself."""
        if self.alone:
            return self.stage(*INLINE)
        return self.starved + self.hidden

    @property
    def starved(self) -> float:
        """What it waits for while no batch is ready."""
        waited = self.stage("wait") - sum(
            self.wait(kind) for kind in ("first_batch", "handover", "in_transit")
        )
        return waited if waited > 1e-9 else 0.0  # times are whole nanoseconds

    @property
    def batches(self) -> float:
        """Per step."""
        size = self.told["throughput"]["batch_size"]
        return (
            float(size * self.workers["batches"] / self.workers["samples"])
            if size and self.workers.get("batches")
            else 1.0
        )

    @property
    def work(self) -> float:
        """S: making the batches of a step, one after another."""
        return self.making if self.alone else float(self.workers["fetch_mean_s"]) * self.batches

    def cost(self, stage: str, column: str = "wall_s") -> float:
        return float((self.workers.get("per_sample", {}).get(stage) or {}).get(column) or 0.0)

    def of_sample(self, *stages: str, column: str = "wall_s") -> float:
        """Share of a sample, or without workers of what the step spends on samples."""
        if self.alone and column == "wall_s":
            return self.stage(*stages) / self.making if self.making else 0.0
        parts = sum(self.cost(one, column) for one in INLINE)
        whole = max(self.cost("total", column), parts if column == "cpu_s" else 0.0)
        return min(1.0, sum(self.cost(one, column) for one in stages) / whole) if whole else 0.0

    def operations(self, names: frozenset[str]) -> float:
        """Share of a sample in operations of these names."""
        spent = sum(
            one["wall_s"]
            for one in self.workers.get("operations", [])
            if one["name"].rpartition(".")[2].lower() in names
        )
        return min(1.0, float(spent) / self.cost("total")) if self.cost("total") else 0.0

    def of_time(self, column: str) -> float:
        """Share of a sample's time blocked or without a CPU."""
        return self.cost("total", column) / self.cost("total") if self.cost("total") else 0.0

    def blocked_by(self, *kinds: str) -> float:
        """Share of a sample's time; where it was not looked at, all that is blocked."""
        seen = (
            self.workers["blocked_by"]
            if self.workers["blocked_looks"] >= 10
            else dict.fromkeys(kinds[:1], 1.0)
        )
        return self.of_time("blocked_s") * float(sum(seen.get(kind, 0.0) for kind in kinds))


Formula = Callable[[Bar], float]


def spared(bar: Bar, share: float) -> float:
    """A part of the making of batches gone: of S / W only what is longer than C is waited for."""
    if not bar.number or not bar.workers.get("fetch_mean_s"):
        return bar.making * share
    supply = bar.work / bar.number
    lack = min(bar.making + bar.sending, max(supply - bar.computing, 0.0))
    return max(bar.making - lack, 0.0) * share + max(
        lack - max(supply * (1 - share) - bar.computing, 0.0), 0.0
    )


def receiving(bar: Bar, per_batch: float, per_tensor: float, per_byte: float) -> float:
    """t: measured where there are workers, else what a batch, a tensor and a byte take."""
    if not bar.alone:
        return bar.transport
    tensors = bar.workers.get("batch_tensors")
    one = (
        per_batch
        + per_tensor * (2 if tensors is None else tensors)
        + per_byte * (bar.loader.get("batch_bytes") or 0.0)
    )
    return float(one * bar.batches)


def at_least(bar: Bar) -> float:
    return receiving(bar, 0.2e-3, 0.1e-3, 0.2e-9)


def at_most(bar: Bar) -> float:
    return receiving(bar, 1.0e-3, 0.4e-3, 0.6e-9)


def effective(bar: Bar) -> float:
    machine = bar.told["run"]["machine"]
    return float(machine.get("effective_cpus") or machine.get("cpus") or 1)


def step_with(bar: Bar, workers: float, taking: float) -> float:
    """max((S + t) / W, C + t, CPU time / CPUs), and the beginnings of passes after the first, whose
    batch nobody makes ahead.
    """
    both_sides, use = 2 * taking * bar.alone, bar.told["cpus"] or {}
    if use.get("own") is None or use.get("free") is None:
        on_cpus = (
            bar.computing + bar.work * (1 - bar.of_time("blocked_s")) + both_sides
        ) / effective(bar)
    else:
        on_cpus = (use["own"] * bar.mean + both_sides) / max(use["own"] + use["free"], 1e-9)
    steady = max(
        (bar.work + taking) / workers, bar.computing + bar.stage("sampler") + taking, on_cpus
    )
    passes = bar.loader.get("epochs") or 0
    begins = max(0, passes - 1) / max(bar.told["throughput"]["steps"], 1)
    starting = 40e-3 * workers if bar.alone and bar.loader["objects"] >= passes > 1 else 0.0
    return steady + begins * max(
        0.0,
        bar.computing
        + bar.stage("sampler")
        + (bar.work + taking) / bar.batches
        + starting
        - steady,
    )


def step_alone(bar: Bar) -> float:
    """S + C"""
    return bar.computing + bar.stage("sampler") + bar.work


def enough_workers(bar: Bar, one_each: bool = False) -> int:
    """W*: they keep pace with the step, as far as the CPUs that others leave carry them: one each,
    more where samples are blocked.
    """
    use, cpus = bar.told["cpus"] or {}, effective(bar)
    room = max(1.0, (cpus - (use.get("others") or 0.0)) / use.get("ranks", 1)) if use else cpus
    wanted = math.ceil(1.15 * bar.work / max(bar.computing + at_least(bar), 0.05 * bar.mean))
    each = bar.cost("total", "cpu_s")
    busy = (
        1.0
        if one_each or not each
        else (bar.cost("total") - bar.cost("total", "runqueue_s")) / each
    )
    carried = min(wanted, math.ceil(4 * room))  # no more than four per CPU are advised
    return max(
        (bar.number or 0) + 1, min(wanted, math.ceil(min(carried, room * busy) if each else room))
    )


def shorter(bar: Bar, taking: float, least: float = 0.0, one_each: bool = False) -> float:
    """By how much the step is shorter with enough workers; it stays as long as ``least``."""
    now = step_with(bar, bar.number, bar.transport) if bar.number else step_alone(bar)
    return max(
        0.0,
        min(bar.making, now - max(step_with(bar, enough_workers(bar, one_each), taking), least)),
    )


def shorter_at_least(bar: Bar, one_each: bool = False) -> float:
    waited = bar.blocked_by("", "lock") if bar.workers["blocked_looks"] >= 10 else 0.0
    number = bar.number or 0
    held = waited if number < 2 else min(1 / number, math.sqrt(2 * waited / (number - 1)))
    locks = held * bar.work
    return shorter(bar, at_most(bar), locks, one_each)


def without_data(bar: Bar) -> float:
    """The step that those workers make which have data, beside the one of all.

    Of uneven parts, it is the step of as many workers as would do with even ones.
    """
    workers = bar.number or 0
    fed = bar.evidence("even_workers", workers - bar.evidence("idle_workers", 0))
    return max(
        0.0,
        min(
            bar.making,
            step_with(bar, fed, bar.transport) - step_with(bar, workers, bar.transport),
        ),
    )


def without_others(bar: Bar) -> Bar:
    """The step with the other programs' CPUs free, and without what making batches waited for them."""
    told, sooner = deepcopy(bar.told), 1 - bar.of_time("runqueue_s")
    told["cpus"] |= {"others": 0.0, "free": max(0.0, told["cpus"]["allowed"] - told["cpus"]["own"])}
    told["workers"]["fetch_mean_s"] *= sooner
    if bar.alone:
        told["step"]["mean_s"] -= bar.making * (1 - sooner)
        told["step"]["stages"] |= {
            name: told["step"]["stages"][name] * sooner
            for name in INLINE
            if name in told["step"]["stages"]
        }
    return Bar(told)


def theirs(bar: Bar) -> float:
    """Share of the waiting for a CPU that is for those of other programs: what they hold over what
    the run lacks.
    """
    use, of_main = bar.told["cpus"] or {}, bar.told["step"]["main_runqueue_share"] or 0.0
    lacking = of_main + bar.workers.get("processes", 0) * (
        bar.workers.get("busy_share") or 0.0
    ) * bar.of_time("runqueue_s")
    if not lacking or not use.get("others") or use.get("own") is None:
        return 0.0
    return min(
        1.0,
        min(float(use["others"]), max(0.0, float(use["allowed"] - use["own"])))
        / (lacking * use["ranks"]),
    )


def full(bar: Bar) -> bool:
    """Whether the training itself fills its CPUs: samples would wait for one without other programs
    too.
    """
    use, pace = bar.told["cpus"] or {}, bar.told["throughput"]["samples_per_s"] or 0.0
    each = bar.workers.get("process_cpu_s")
    own = (
        use.get("own")
        if use.get("own") is not None
        else pace * (bar.cost("total", "cpu_s") if each is None else each)
    )
    share = (own or 0.0) / effective(bar)
    free = use.get("free")
    none_free = (
        free is None or free < 0.25 * use["allowed"]
        if use.get("others") is not None
        else share > 0.5
    )
    queued = bar.of_time("runqueue_s") * (1 - theirs(bar)) > 0.15 and none_free
    return bar.of_time("blocked_s") <= 0.5 and (queued or share > 0.8)


def of_cpus(bar: Bar) -> float:
    """Share of the training's CPU time in which it makes samples."""
    return min(
        1.0, bar.evidence("cpus_of_making", math.inf) / bar.evidence("cpus_of_training", 1.0)
    )


def by_neighbors(bar: Bar) -> float:
    """What waits for a CPU that others hold, or what workers would spare on their CPUs."""
    queued = (bar.told["step"]["main_runqueue_share"] or 0.0) * bar.mean
    queued += bar.making * bar.of_time("runqueue_s") if bar.number else 0.0
    waits = min(queued, bar.mean) * theirs(bar)
    if bar.number is None or not bar.workers.get("fetch_mean_s") or not bar.work:
        return waits
    computes = max(bar.cost("total", "cpu_s"), float(bar.workers.get("process_cpu_s") or 0.0))
    if computes < 0.25 * (computes + bar.cost("total", "blocked_s")):  # it mostly sleeps
        return waits
    return max(waits, shorter_at_least(without_others(bar), one_each=True) - shorter_at_least(bar))


def by_share(
    *stages: str, operations: frozenset[str] = frozenset(), of: Formula | None = None
) -> Formula:
    """What stages and operations cost of the making of batches: by their wall time, or where the
    CPUs are full by their CPU time.
    """

    def formula(bar: Bar) -> float:
        share = max(
            bar.of_sample(*stages), bar.of_sample(*stages, column="cpu_s") if full(bar) else 0.0
        )
        making = bar.making + (bar.sending if full(bar) else 0.0)
        return making * min(1.0, share + bar.operations(operations)) * (of(bar) if of else 1.0)

    return formula


def elsewhere(bar: Bar) -> list[str]:
    """What samples are said to wait for that is not storage."""
    return [one["of"] for one in bar.finding["evidence"] if one["id"] == "blocked_by_share"]


def helpers(bar: Bar) -> float:
    """Share of the workers' CPU time that is not the threads' that make samples and send them."""
    return 1 - (bar.cost("total", "cpu_s") + bar.cost("transport", "cpu_s")) / float(
        bar.workers["process_cpu_s"]
    )


def too_long(bar: Bar) -> float:
    """What a stage takes of the step beyond what it should, and all that runs on the same threads."""
    (stage,) = (one["of"] for one in bar.finding["evidence"] if one["id"] == "wall_s")
    per_time = bar.evidence("wall_s")
    working = max(bar.cost("total", "cpu_s"), bar.cost("total") - bar.cost("total", "runqueue_s"))
    in_kernel = per_time / working if bar.cost("total", "cpu_s") else 0.0
    of_step = {
        "transport": bar.transport,
        "pin": bar.stage("pin"),
        "copy": (bar.told["step"]["gpu_stages"] or {}).get("copy", 0.0),
        "kernel": bar.making * min(1.0, in_kernel),
    }
    took = of_step.get(stage, bar.making * bar.of_sample(stage))
    return took * max(0.0, 1 - bar.evidence("expected_s") / per_time) + bar.evidence("model_s", 0.0)


def of_calls(bar: Bar) -> float:
    """Share of reading that is blocked, or takes 30 µs of CPU time per read: the rest is spent on
    what was read.
    """
    cpu, blocked = bar.cost("read", "cpu_s"), bar.cost("read", "blocked_s")
    return (blocked + min(cpu, 30e-6 * bar.evidence("reads"))) / (blocked + cpu) if cpu else 1.0


def moved_twice(bar: Bar, taking: float, sent: float, most: float, *stages: str) -> float:
    """Of taking batches and of these stages, what ``sent`` bytes per batch need less, with 24 ms of
    ``most`` ms for 38.5 MB.
    """
    moving = taking + bar.making * min(
        1.0, sum(bar.cost(one) for one in stages) / bar.cost("total")
    )
    return min((1 - 24 / most) * moving, (most - 24) * 1e-3 / 38.5e6 * sent * bar.batches)


def of_float32(bar: Bar) -> float:
    """The conversion, and three quarters of the bytes."""
    moving = bar.transport + bar.stage("pin", "copy")
    return (
        bar.making * min(1.0, bar.operations(CONVERSIONS) + 0.75 * bar.of_sample("collate"))
        + 0.75 * moving
    )


def restarts(bar: Bar) -> float:
    """Starts in later epochs, less the making of the first batch."""
    first = bar.loader["first_batch_s"]
    batch = max(bar.workers.get("fetch_mean_s") or 0.0, bar.evidence("batch_s", 0.0))
    return bar.starts * (max(0.0, 1 - batch / first) if first else 1.0)


def out_of_order(bar: Bar) -> float:
    """Waiting behind a slow batch, as far as it is not a lack of workers."""
    lack = min(bar.making, max(bar.work / (bar.number or 1) - bar.computing, 0.0))
    return min(bar.wait("head_of_line"), bar.making - lack)


def of_ranks(told: Any, *parts: str) -> list[float]:
    return [
        sum(own["comm"].get(part) or 0.0 for part in parts)
        for own in told["ranks"].values()
        if own["comm"]
    ]


def least_exposed(bar: Bar) -> float:
    return min(of_ranks(bar.told, "exposed_transfer_s"))


def exposed(bar: Bar) -> float:
    """What sending in fewer passes leaves of it stays."""
    passes = re.fullmatch(r"accumulate (\d+) batches", bar.finding["action"])
    return least_exposed(bar) * (1 - 1 / int(passes[1]) if passes else 1.0)


def of_late_rank(bar: Bar) -> float:
    """What the replay answers, else what it says of the rank, else what the rank waits that waits
    most.
    """
    comm, late = bar.told["comm"], bar.told["comm"]["late"][0]
    question = ("rank_on_time", late["rank"]) if late["persistent"] else ("no_late_rank", None)
    answers = [
        one["gain_s"]
        for one in comm["what_if"]
        if (one["id"], one["value"]) == question and one["step_s"] is not None
    ]
    own = [late["cost_s"]] if late["persistent"] and late["cost_s"] is not None else []
    return [*answers, *own, max(of_ranks(bar.told, "hidden_wait_s", "exposed_wait_s"))][0]


def evidence(bar: Bar, name: str) -> float:
    return next(float(one["value"]) for one in bar.finding["evidence"] if one["id"] == name)


def nothing(bar: Bar) -> float:
    return 0.0


def updating(bar: Bar) -> float:
    """The whole update, what a fused one usually saves of it, or its part for rows that a batch
    lacks; where other code runs in it, what
    is beyond the most that its tensors and elements need.
    """
    took, needs = (
        bar.stage("optimizer"),
        25e-6 * bar.evidence("tensors") + 5e-9 * bar.evidence("elements"),
    )
    known = {"fused_speedup", "lacking_share"} & {one["id"] for one in bar.finding["evidence"]}
    if took > 5 * needs + 1e-3 and not known:
        return took - needs
    return took * bar.evidence("lacking_share", 1 - 1 / bar.evidence("fused_speedup", math.inf))


def named_functions(bar: Bar) -> float:
    """The first three functions outside the model that take 3 % of the step or more, without
    freeing batches, waiting for a CPU, and collections (a hundredth of the first or more) or what
    only every nth step runs.
    """
    step = bar.told["step"]
    functions, stall, garbage = step["own_code"]["functions"], step["periodic"], step["garbage"]
    of, name = (
        (garbage or {"stages": {}})["stages"],
        max(functions, key=lambda one: one["s"])["name"],
    )
    if stall is not None:
        of, name = (stall["stages"], stall["function"]) if stall["function"] else ({}, "")
    apart = sum(of.get(stage, 0.0) for stage in ("other", "loss"))
    if stall is None and apart < 0.01 * max(one["s"] for one in functions):
        apart = 0.0
    took = [
        float(one["s"])
        if one["name"].partition(" (")[0] != name.partition(" (")[0]
        else float(one["s"] - apart) * (apart < one["s"] / 2)
        for one in functions
    ]
    named = [s for s in sorted(took, reverse=True)[:3] if s >= 0.03 * bar.mean]
    return (sum(named) - bar.evidence("freeing_s", 0.0)) * (1 - bar.evidence("queued_share", 0.0))


def launching(bar: Bar) -> float:
    """What the host takes for the stages that launch the GPU's work, beyond that work."""
    stages = ("copy", "forward", "loss", "backward", "gradients", "optimizer")
    return sum(bar.stage(name) for name in stages) - float(bar.told["step"]["gpu_work"]["busy_s"])


#: cause -> what it costs by the report's own figures.
COSTS: dict[str, Formula] = {
    "compute_bound": lambda bar: 0.0,
    "borderline_input": lambda bar: bar.input - bar.once,
    "input_bound_unexplained": lambda bar: bar.input - bar.once,
    "too_short": nothing,
    "nothing_trained": nothing,
    "no_batch": nothing,
    "standstill": nothing,
    "input_not_seen": nothing,
    "slow_sampler": lambda bar: bar.stage("sampler"),
    "too_few_workers": lambda bar: shorter(bar, at_least(bar)),
    "workers_without_data": without_data,
    "fewer_workers": lambda bar: bar.mean - bar.once - step_alone(bar),
    "made_one_by_one": lambda bar: bar.making * (1 - bar.of_time("runqueue_s")),
    "own_code": named_functions,
    "anomaly_detection": lambda bar: bar.evidence("stacks_s"),
    "recomputed_forward": lambda bar: bar.evidence("recomputed_s"),
    "unused_gradients": lambda bar: bar.evidence("passes_s"),
    "unused_parameters": lambda bar: bar.evidence("unused_s"),
    "call_in_model": lambda bar: bar.evidence("call_s"),
    "loop_in_model": lambda bar: bar.evidence("loop_s"),
    "dropped_graphs": lambda bar: (
        bar.evidence("dropped_s") / (1 if bar.finding["cost_kind"] == "at_least" else 3)
    ),
    "padded_batches": lambda bar: (
        max(
            bar.evidence("padding_share"),
            bar.evidence("padded_share") if bar.finding["cost_kind"] == "bound" else 0.0,
        )
        * bar.stage("forward", "loss", "backward")
    ),
    "denormal_numbers": lambda bar: bar.evidence("longer_s"),
    "double_precision": lambda bar: bar.stage("forward", "loss", "backward") / 2,
    "recompilation": lambda bar: bar.stage("compile"),
    "checkpoint_time": lambda bar: bar.stage("checkpoint"),
    "garbage_collection": lambda bar: sum(
        seconds
        for stage, seconds in bar.told["step"]["garbage"]["stages"].items()
        if stage != "wait"
    ),
    "memory_growth": nothing,
    "killed_worker": nothing,
    "kept_batches": nothing,
    "chained_graphs": lambda bar: (
        bar.stage("backward") * (bar.evidence("trend") - 1) / (bar.evidence("trend") + 1)
    ),
    "periodic_stall": lambda bar: sum(bar.told["step"]["periodic"]["stages"].values()),
    "optimizer_time": updating,
    "gpu_waits": launching,
    "float32_products": lambda bar: min(
        float(bar.told["step"]["gpu_work"]["float32_products_s"]), bar.mean
    ),
    "gpu_bound": lambda bar: max(bar.mean - float(bar.told["step"]["gpu_work"]["busy_s"]), 0.0),
    "evaluation_time": nothing,
    "same_samples": nothing,
    "made_in_step": lambda bar: bar.stage("input"),
    "epoch_restart": restarts,
    "slow_first_batch": lambda bar: (
        (bar.starts - bar.once)
        * min(
            1.0,
            (bar.evidence("first_made_s") - bar.workers["fetch_mean_s"])
            / bar.loader["first_batch_s"],
        )
    ),
    "skipped_batches": lambda bar: bar.evidence("skipped_s"),
    "many_tensors": lambda bar: bar.evidence("tensors_s"),
    "objects_in_queue": lambda bar: moved_twice(
        bar, bar.sending, bar.loader["pickle_bytes"], 447, "transport"
    ),
    "custom_collate": lambda bar: moved_twice(
        bar, bar.sending, bar.loader["batch_bytes"], 135, "collate", "transport"
    ),
    "slow_for_its_bytes": too_long,
    "blocked": lambda bar: spared(bar, max(bar.blocked_by(kind) for kind in elsewhere(bar))),
    "small_files": lambda bar: spared(
        bar, bar.of_sample("read") * of_calls(bar) or bar.blocked_by("file", "page fault")
    ),
    "cold_storage": lambda bar: spared(bar, bar.blocked_by("file", "page fault")),
    "swapping": lambda bar: spared(
        bar, min(1.0, bar.blocked_by("file", "page fault") + evidence(bar, "kernel_share"))
    ),
    "thread_oversubscription": lambda bar: (bar.making + bar.sending) * helpers(bar),
    "oversize_images": by_share(
        "read",
        "decode",
        operations=RESIZES,
        of=lambda bar: 1 - bar.workers["output_pixels"] / bar.workers["decoded_pixels"],
    ),
    "oversize_reads": lambda bar: (
        bar.making
        * bar.of_sample("read")
        * (1 - bar.evidence("used_bytes") / bar.evidence("read_bytes"))
    ),
    "page_faults": lambda bar: spared(bar, bar.evidence("faults_share")),
    "decode_bound": by_share("decode"),
    "augmentation_bound": by_share("augment"),
    "float32_on_host": of_float32,
    "cpu_saturated": lambda bar: min(bar.making + bar.sending, bar.mean * of_cpus(bar)),
    "workers_hold_cpus": lambda bar: min(
        bar.mean * (bar.told["step"]["main_runqueue_share"] or 0.0), bar.mean * of_cpus(bar)
    ),
    "quota_used_up": lambda bar: min(bar.making + bar.sending, bar.mean * of_cpus(bar)),
    "straggler_in_order": out_of_order,
    "user_code": lambda bar: (
        (bar.making + (bar.sending if full(bar) else 0.0))
        * min(bar.evidence("function_share"), bar.evidence("known_call_share", 1.0))
    ),
    "busy_neighbors": by_neighbors,
    "late_rank": of_late_rank,
    "late_ranks": of_late_rank,
    "exposed_communication": exposed,
    "slow_network": lambda bar: least_exposed(bar) * (1 - bar.told["comm"]["network_share"]),
}

#: What a finding about traces weighs: this part of the bar of the rank that it names, or of the one
#: that is shown.
PART = {
    "input_stall": "input",
    "late_rank": "waiting_for_rank",
    "late_ranks": "waiting_for_rank",
    "exposed_communication": "exposed_transfer",
    "host_bound": "host_launch",
    "synchronisation": "synchronisation",
    "exposed_copy": "exposed_copy",
    "device_bound": "compute",
}


def allowed(told: Any, rule_id: str, full: bool = False) -> float:
    """Seconds per step that the limits above the run leave to its fix, which lifts some of them.

    Args:
        full: the CPUs are, also where no finding that is told says so.
    """
    made, step_s = told["roofline"], float(told["step"]["mean_s"])
    if made is None or made["next"] is None:
        return math.inf
    above = [
        roof for roof in made["roofs"] if roof["binds"] and roof["samples_per_s"] >= made["becomes"]
    ]
    gone = _lifted(
        rule_id, full or _cpus_are_full(finding["cause"] for finding in told["findings"])
    )
    kept = [roof["high"] or roof["samples_per_s"] for roof in above if roof["kind"] not in gone]
    return max(0.0, step_s - step_s * made["samples_per_s"] / min(kept, default=math.inf))


def whose(told: Any, finding: Any) -> str:
    """The rank that a finding about traces weighs: the one that waits, else the one that is shown."""
    waits = [one["of"] for one in finding["evidence"] if one["id"] == "waiting_for_rank_share"]
    return str(waits[0]) if waits else min(told["ranks"], key=int)


def recomputed(told: Any, finding: Any) -> float | None:
    """What a finding costs; None: of its cause nothing is known here."""
    if told["traces"] is None:
        most = math.inf if finding["cost_low_s"] is not None else allowed(told, finding["cause"])
        return (
            min(COSTS[finding["cause"]](Bar(told, finding)), most)
            if finding["cause"] in COSTS
            else None
        )
    if finding["cause"] not in PART:
        return 0.0 if finding["cause"] == "input_not_seen" else None
    own = told["ranks"][whose(told, finding)]
    return (
        float(own["stages"].get(PART[finding["cause"]], 0.0))
        if own["steps"] and finding["severity"] != "info"
        else 0.0
    )
