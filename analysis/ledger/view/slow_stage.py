"""The stage that takes far longer than its bytes or pixels explain, and why.

The cause is the first one whose own figures show it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Change, Evidence, Factor, Refused
from feedline.analysis.ledger.view import cpus, loader_call, sample
from feedline.analysis.ledger.view.expected import (
    FEW_OBJECTS_BYTES,
    KERNEL,
    TENSOR_PICKLE_BYTES,
    Work,
    heaviest,
    works,
)
from feedline.analysis.ledger.view.input_wait import maker, num_workers
from feedline.analysis.ledger.view.slow_code import slow_code
from feedline.analysis.ledger.view.storage import blocked_by, decoder_threads
from feedline.analysis.measure.costs import PAGE_BYTES
from feedline.analysis.text.sentences import COUNT, NAME, NUMBER, PART, PERCENT, SIZE, Sentence

#: A slower machine, or copying twice, does not explain a stage that takes this many times as long.
_FAR_OFF = 10

#: Waiting for a CPU stretches a stage but does not make it compute longer: at three times what it
#: should take, two thirds are not its task.
_NOT_THE_TASK = 3

#: The largest part of something: more than all others together.
_MOST = 0.5

#: Stages of the main process whose operations torch runs in parallel.
_SAME_THREADS = ("forward", "loss", "backward", "optimizer")

#: Formats that are coded bit by bit (arithmetic coding in several passes): 10 and more times what a
#: JPEG takes (docs/rules/slow_for_its_bytes.md).
_SLOW_FORMATS = ("jpeg2000", "jp2", "j2k")

#: How a library uses one thread, as the names of its operations begin; of others, the variable that
#: most obey.
_ONE_THREAD = {
    "PIL.AVIF": "PIL.AvifImagePlugin.DEFAULT_MAX_THREADS = 1",
    "cv2.": "cv2.setNumThreads(0)",
    "decord.": "VideoReader(file, num_threads=1)",
    "zarr.": "numcodecs.blosc.use_threads = False",
}

_SPINS = Sentence("its thread {does} while {threads} wait for a CPU", does=PART, threads=PART)
_HELPERS = Sentence("they use {ratio} times its CPU time", ratio=NUMBER)
_LET = Sentence("Let {operation} use one thread: {way}.", operation=NAME, way=PART)
_SET_IN_WORKERS = Sentence("Call torch.set_num_threads({threads}) in the workers.", threads=COUNT)
_LOOK_IN_WORKERS = [
    "A DataLoader worker starts with one thread of torch.",
    "Look for what sets another number in the dataset, collate_fn or worker_init_fn.",
]
_SET_IN_MAIN = Sentence("Call torch.set_num_threads({threads}) in the main process.", threads=COUNT)
_SET_BY_VARIABLE = Sentence("Or start the program with OMP_NUM_THREADS={threads}.", threads=COUNT)
_FAULTS = Sentence(
    "probably most of it is {faults} page faults, for new memory",
    faults=COUNT,
)
_FORMAT = Sentence(
    "{part} of that time is spent in {operation}, whose format is slow to decode",
    part=PERCENT,
    operation=NAME,
)
_OBJECTS = Sentence("{length} of Python objects are pickled and unpickled", length=SIZE)
_COPIES = Sentence(
    "{part} of the bytes, in {copies} copies per step, come from pageable memory",
    part=PERCENT,
    copies=NUMBER,
)
UNKNOWN_CAUSE = "the cause is unknown"
_PINNED_FIRST = "the CPU first copies bytes from pageable memory into pinned memory"
_PIN = Sentence("Pin the batches: {change}", change=PART)
_ACCOUNTS = Sentence("{operation} accounts for {part} of that time", operation=NAME, part=PERCENT)
_FIND = Sentence("Find the call: `py-spy record --native --pid PID` on {maker}.", maker=NAME)

_MODEL_SPINS = Refused(
    "unknown_spinning",
    "How long forward and backward would take with fewer threads is unknown: the helper threads "
    "may spin or compute there. Run a few "
    "hundred steps with fewer threads, and compare.",
)
_UNKNOWN_FAULTS = Refused(
    "unknown_faults",
    "The time per sample without these page faults is unknown. Allocate the arrays once, and "
    "record again.",
)
_UNKNOWN_COPY = Refused(
    "unknown_copy",
    "This machine's speed of copies from pinned memory is unknown. `feedline probe --parts copy` "
    "measures it.",
)
UNKNOWN_CALL = Refused(
    "unknown_cause", "The cause is unknown, so there is no specific fix to predict."
)


@dataclass(frozen=True)
class Why:
    """A cause of slowness.

    Attributes:
        more: sentences about it; they follow what the stage takes and should take.
        fix: as that of a finding, and so on.
        change: what the fix changes: a stage then takes what it should.
        also_s: seconds of the mean step that it costs elsewhere, at most.
    """

    more: list[str]
    fix: str
    how_to_check: str
    change: Change | Refused
    evidence: list[Evidence] = field(default_factory=list)
    also_s: float = 0.0
    fix_more: list[str] = field(default_factory=list)
    place: str = ""


def slowest_stage(facts: RuleInputs) -> tuple[Work, Why] | None:
    """Return the stage that costs most of those that are far off, and why.

    None: there is none.
    """
    slow = [(work, cause) for work in works(facts) if (cause := _why(facts, work)) is not None]
    return max(slow, key=lambda both: both[0].lost_s) if slow else None


def is_slowest_stage(facts: RuleInputs, stage: str) -> bool:
    """Tell whether this stage is the slowest one.

    Rules that take a stage's time for what its bytes or pixels cost are then silent.
    """
    slowest = slowest_stage(facts)
    return slowest is not None and slowest[0].stage == stage


def _at_helpers(facts: RuleInputs) -> bool:
    """Tell whether that one waits for threads that a library has started.

    It then stands at a lock that the program did not make.
    """
    slowest = slowest_stage(facts)
    return (
        slowest is not None and _spins(slowest[0].stage) and _waits_for_helpers(facts, slowest[0])
    )


def at_own_locks(facts: RuleInputs) -> bool:
    """Tell whether the locks at which samples wait are those of a library's threads.

    Other workers do not wait for them.
    """
    return _at_helpers(facts) or decoder_threads(facts)


def _why(facts: RuleInputs, work: Work) -> Why | None:
    """Return the cause.

    None: the stage is not ten times off, or only waits for what other rules name.
    """
    if work.cost.wall_s < _FAR_OFF * work.should_s:
        return None
    return next((found for cause in _CAUSES if (found := cause(facts, work)) is not None), None)


def _spins(stage: str) -> bool:
    """Tell whether libraries run parts of this stage in helper threads."""
    return stage in ("read", "decode", "collate")


def _waits_for_helpers(facts: RuleInputs, work: Work) -> bool:
    """Tell whether a stage takes so long because its helper threads lack a CPU.

    They are there if the process uses more CPU time than the threads that are accounted for. A
    parallel loop ends when its last thread has had a CPU: until then the others spin, and wait for
    a CPU in their turn, or they sleep at a lock.
    """
    ratio, cost = sample.process_ratio(facts), work.cost
    if (
        ratio is None
        or ratio <= sample.MIN_PROCESS_RATIO
        or work.working_s < _NOT_THE_TASK * work.should_s
    ):
        return False
    at_lock = (cost.blocked_s or 0.0) * (blocked_by(facts) or {}).get("lock", 0.0)
    return (
        cost.runqueue_s or 0.0
    ) > cpus.MAX_RUNQUEUE_SHARE * cost.wall_s or at_lock > _MOST * cost.wall_s


def _threads(facts: RuleInputs, work: Work) -> Why | None:
    if not _spins(work.stage) or not _waits_for_helpers(facts, work):
        return None
    ratio, of_torch = sample.process_ratio(facts) or 1.0, work.stage == "collate"
    does = "spins" if (work.cost.cpu_s or 0.0) >= (work.cost.blocked_s or 0.0) else "waits"
    whose = "torch's helper threads" if of_torch else "helper threads"
    threads, beside = _enough_threads(facts), _beside_s(facts) if of_torch else 0.0
    found = [
        Evidence(
            "process_cpu_over_thread_cpu",
            "CPU time of the process divided by that of the thread",
            ratio,
            "1",
        )
    ]
    if beside:
        found.append(
            Evidence(
                "model_s",
                "forward, loss, backward and optimizer per step, on the same threads",
                beside,
                "s",
            )
        )
    fix, *others = (
        _fewer_threads(facts, threads)
        if of_torch
        else [_one_thread(heaviest(facts, work.stage)[0])]
    )
    return Why(
        [_SPINS(does=does, threads=whose), _HELPERS(ratio=ratio - 1), *cpus.use(facts)],
        fix,
        _unless(f"Run with {f'OMP_NUM_THREADS={threads}' if of_torch else 'one thread'}", work),
        _MODEL_SPINS if beside else replace(_as_it_should(work), helper_threads=False),
        found,
        beside,
        others,
    )


def _as_it_should(work: Work) -> Change:
    """Return the change after which the stage takes what its task takes at most."""
    return _taking(work, work.should_s)


def _taking(work: Work, takes_s: float) -> Change:
    """Return the change after which the stage takes ``takes_s`` seconds."""
    left = min(1.0, takes_s / (work.cost.cpu_s or work.cost.wall_s))
    return Change(stages={work.stage: Factor(left, min(left, takes_s / work.cost.wall_s))})


def _unless(change: str, work: Work) -> str:
    """Return how to check a cause by taking it away."""
    return f"{change}. If {work.name} is no faster, this finding is wrong."


def _one_thread(operation: str) -> str:
    way = next(
        (way for library, way in _ONE_THREAD.items() if operation.startswith(library)),
        "OMP_NUM_THREADS=1",
    )
    return _LET(operation=operation or "the library", way=way)


def _fewer_threads(facts: RuleInputs, threads: int) -> list[str]:
    if num_workers(facts):
        return [_SET_IN_WORKERS(threads=threads), *_LOOK_IN_WORKERS]
    return [_SET_IN_MAIN(threads=threads), _SET_BY_VARIABLE(threads=threads)]


def _page_faults(facts: RuleInputs, work: Work) -> Why | None:
    faults, system_s, total = (
        facts.traffic.minor_faults,
        facts.traffic.system_s,
        sample.total(facts),
    )
    if (
        work.stage != KERNEL
        or faults is None
        or system_s is None
        or total is None
        or not total.cpu_s
    ):
        return None
    # a page at least
    if faults * PAGE_BYTES < _FAR_OFF * (work.cost.bytes or 0.0) or system_s < _MOST * total.cpu_s:
        return None
    if (facts.traffic.major_faults or 0.0) > faults:  # it brings pages from the disk
        return None
    return Why(
        [_FAULTS(faults=faults)],
        "Allocate large work arrays once and write into them again (out=).",
        "Allocate the arrays once. If the page faults per sample stay the same, this finding is "
        "wrong.",
        _UNKNOWN_FAULTS,
        [
            Evidence("minor_faults", "minor page faults per sample", faults, "faults"),
            Evidence(
                "kernel_share",
                "in the kernel, share of CPU time per sample",
                min(1.0, system_s / total.cpu_s),
                SHARE,
            ),
        ],
        fix_more=["Open a memory map once, not per sample, and read adjacent rows."],
    )


def _format(facts: RuleInputs, work: Work) -> Why | None:
    name, part = heaviest(facts, work.stage)
    if (
        work.stage != "decode"
        or part < _MOST
        or not any(slow in name.lower() for slow in _SLOW_FORMATS)
    ):
        return None
    return Why(
        [_FORMAT(part=part, operation=name)],
        "Convert the images once to JPEG (8 bits, lossy), and keep the originals.",
        _unless("Convert 50 of the files to JPEG and read only those", work),
        _taking(work, work.as_jpeg_s),
        [_part(work, name, part)],
        fix_more=[
            "The predicted gain assumes JPEG.",
            "Or convert them to PNG: up to 16 bits, lossless, several times slower to decode than "
            "JPEG.",
        ],
    )


def _objects(facts: RuleInputs, work: Work) -> Why | None:
    length = facts.loader.pickle_bytes if facts.loader else None
    tensors = facts.batch_tensors or 0.0
    if (
        work.stage != "transport"
        or length is None
        or length < FEW_OBJECTS_BYTES + TENSOR_PICKLE_BYTES * tensors
    ):
        return None
    if (work.cost.cpu_s or 0.0) < _NOT_THE_TASK * work.should_s:
        return None
    return Why(
        [_OBJECTS(length=length)],
        "In the worker, convert lists, dicts and strings to a few tensors, or drop what the "
        "training does not use.",
        _unless("Run with batches that hold only tensors", work),
        _as_it_should(work),
        [Evidence("pickle_bytes", "pickled bytes per batch", length, "B")],
    )


def _pageable(facts: RuleInputs, work: Work) -> Why | None:
    copied = facts.moved.get("copy")
    if work.stage != "copy" or copied is None or copied.pageable < _MOST:
        return None
    pins, at = "Pin the tensors first (Tensor.pin_memory()).", ""
    if not facts.several_loaders and not (facts.loader and facts.setting("pin_memory")):
        pins = _PIN(change=loader_call.change(facts, {"pin_memory": True}))
        at = loader_call.place(facts)
    return Why(
        [_COPIES(part=copied.pageable, copies=copied.times), _PINNED_FIRST],
        "Copy few large tensors, from pinned memory, with .to(device, non_blocking=True).",
        _unless("Copy from pinned memory", work),
        _UNKNOWN_COPY,
        [
            Evidence(
                "pageable_share", "share of the bytes from pageable memory", copied.pageable, SHARE
            ),
            Evidence("copies", "copies per step", copied.times, "copies"),
        ],
        fix_more=[pins],
        place=at,
    )


def _unknown(facts: RuleInputs, work: Work) -> Why | None:
    """Say of CPU time alone that its cause is unknown.

    What a stage waits for is named by other rules, or unknown there.
    """
    if work.stage == KERNEL or (work.cost.cpu_s or 0.0) < _FAR_OFF * work.should_s:
        return None
    slow = slow_code(facts)
    if slow is not None and slow.of_stages.get(work.stage, 0.0) > _MOST:
        return None  # it is known which line takes so long
    name, part = heaviest(facts, work.stage)
    return Why(
        [UNKNOWN_CAUSE, *([_ACCOUNTS(operation=name, part=part)] if name else [])],
        _FIND(maker=maker(facts)),
        _unless("Return a precomputed result", work),
        UNKNOWN_CALL,
        [_part(work, name, part)] if name else [],
    )


def _part(work: Work, name: str, part: float) -> Evidence:
    return Evidence("operation_share", f"{name}, share of {work.name}", part, SHARE, name)


_CAUSES: tuple[Callable[[RuleInputs, Work], Why | None], ...] = (
    _threads,
    _page_faults,
    _pageable,
    _objects,
    _format,
    _unknown,
)


def _beside_s(facts: RuleInputs) -> float:
    """Return the seconds of the mean step in torch's operations on the threads that collate.

    They spin as well, how much is not known.
    """
    return (
        0.0
        if num_workers(facts)
        else sum(facts.step.stages.get(stage, 0.0) for stage in _SAME_THREADS)
    )


def _enough_threads(facts: RuleInputs) -> int:
    """Return how many threads have a CPU each beside the workers, or else beside other programs."""
    return 1 if num_workers(facts) else int(cpus.left_by_others(facts))
