"""What a stage should take for what it handles: bytes, pixels, calls.

Upper bounds with their sources in docs/rules/slow_for_its_bytes.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.handover import MAX_PICKLE_BYTES, at_best_s
from feedline.analysis.ledger.view.input_wait import input_wait, making_share
from feedline.analysis.ledger.view.sample import from_swap
from feedline.analysis.measure.model import Cost, Moved
from feedline.analysis.text.formatting import count, size

#: What any memory moves, into pages that are touched for the first time.
_MEMORY_B_PER_S = 2e9

#: What collating a sample takes for each of its tensors, whatever their size: looking at its type,
#: a pointer, a call.
_PER_SAMPLE_S = 20e-6

#: Bytes out of the page cache into memory that is touched for the first time.
_READ_B_PER_S = 1e9

#: Opening a file, or asking a library for a part of one, beside its bytes.
_PER_READ_S = 100e-6

#: Beginning to decode an image, and a pixel of it: those of a progressive JPEG.
_PER_IMAGE_S, _PER_PIXEL_S = 150e-6, 12e-9

#: The same of a baseline JPEG, which most are, by Pillow: 3.7 to 6.6 ns per pixel, by quality. What
#: images take once they are converted (docs/rules/slow_for_its_bytes.md).
_JPEG_PER_IMAGE_S, _JPEG_PER_PIXEL_S = 80e-6, 5e-9

#: Decoders that tell how many pixels they made, and bytes of one with four channels. OpenCV tells
#: it of images, not of videos.
_COUNTS_PIXELS, _MOST_PIXEL_BYTES = ("PIL.", "cv2.im", "torchvision."), 4

#: A batch with as many tensors may have more: that many are counted
#: (profiler/taps/batch_contents.py).
_COUNTED_TENSORS = 64

#: Python objects in a batch's pickle: what tensors take in it, and less than 10 kB of labels and
#: names.
TENSOR_PICKLE_BYTES, FEW_OBJECTS_BYTES = 1000, 10_000

#: Beginning to pin a batch, or to copy it to a device.
_PER_BATCH_S = 1e-3


#: Stage of what the kernel does for a sample, which a report does not have as a stage.
KERNEL = "kernel"


@dataclass(frozen=True)
class Work:
    """One stage, with what it takes and what it should take at most.

    Attributes:
        stage: as in the report, or KERNEL.
        per: ``sample``, ``batch`` or ``step``.
        task: what it does, to follow "collate takes 3 ms per sample".
        cost: seconds and bytes of one ``per``. Waiting for a CPU and being blocked are None where
            they were not measured.
        should_s: what the task takes at most on a CPU of its own.
        held_s: seconds of the mean step that the stage holds up.
        as_jpeg_s: of decoding: what it would usually take if the images were baseline JPEGs; 0.0 of
            other stages.
        how: what that takes for granted, to follow ``should_s``.
    """

    stage: str
    per: str
    task: str
    cost: Cost
    should_s: float
    held_s: float
    as_jpeg_s: float = 0.0
    how: str = ""

    @property
    def name(self) -> str:
        """The stage, in words."""
        return "the operating system" if self.stage == KERNEL else self.stage

    @property
    def working_s(self) -> float:
        """Its time without waiting for a CPU."""
        return (self.cost.cpu_s or 0.0) + (self.cost.blocked_s or 0.0)

    @property
    def lost_s(self) -> float:
        """Seconds of the mean step that are too many."""
        return (
            self.held_s * max(0.0, 1 - self.should_s / self.cost.wall_s)
            if self.cost.wall_s > 0
            else 0.0
        )


def works(facts: RuleInputs) -> list[Work]:
    """Return every stage whose task is known."""
    return [
        work
        for of_stage in _OF_STAGES
        if (work := of_stage(facts)) is not None and work.cost.wall_s > 0
    ]


def _copying_s(nbytes: float, tensors: float) -> float:
    """Return the seconds that a sample's bytes, in this many tensors, take at most on a CPU."""
    return nbytes / _MEMORY_B_PER_S + tensors * _PER_SAMPLE_S


def _calls(facts: RuleInputs, stage: str, without: str = "") -> float:
    """Return the calls per sample of a stage's operations, except one."""
    operations = facts.workers.operations if facts.workers else []
    return sum(
        operation.calls
        for operation in operations
        if operation.stage == stage and operation.name != without
    )


def heaviest(facts: RuleInputs, stage: str) -> tuple[str, float]:
    """Return the operation that takes most of a stage, and its share (0 to 1) of it.

    The name is empty where none was seen.
    """
    found = (
        [operation for operation in facts.workers.operations if operation.stage == stage]
        if facts.workers
        else []
    )
    whole = sum(operation.wall_s for operation in found)
    if whole <= 0:
        return "", 0.0
    most = max(found, key=lambda operation: operation.wall_s)
    return most.name, most.wall_s / whole


def _reading(facts: RuleInputs) -> Work | None:
    cost = facts.costs.get("read")
    if cost is None or not cost.bytes:
        return None
    # what is unpacked from files, or the files themselves
    nbytes = max(cost.bytes, facts.traffic.read_chars or 0.0)
    should_s = nbytes / _READ_B_PER_S + _calls(facts, "read") * _PER_READ_S
    work = _making(facts, "read", f"to read {size(nbytes)}", replace(cost, bytes=nbytes), should_s)
    return replace(work, how=" from the page cache")


def _decoding(facts: RuleInputs) -> Work | None:
    cost = facts.costs.get("decode")
    pixels = facts.workers.decoded_pixels if facts.workers else None
    if cost is None or not pixels or not heaviest(facts, "decode")[0].startswith(_COUNTS_PIXELS):
        return None
    # several frames have the pixels of one
    pixels = max(pixels, (cost.bytes or 0.0) / _MOST_PIXEL_BYTES)
    images = _calls(facts, "decode", without="PIL.convert")  # a part of decoding a file's image
    should_s = images * _PER_IMAGE_S + pixels * _PER_PIXEL_S
    as_jpeg_s = images * _JPEG_PER_IMAGE_S + pixels * _JPEG_PER_PIXEL_S
    work = _making(facts, "decode", f"for {count(pixels)} pixels", cost, should_s)
    return replace(work, how=" as a JPEG", as_jpeg_s=as_jpeg_s)


def _collating(facts: RuleInputs) -> Work | None:
    """Expect torch's own collate to copy bytes; where they are few, Python takes most of it."""
    cost = facts.costs.get("collate")
    if (
        cost is None
        or facts.setting("collate", "default") != "default"
        or (cost.bytes or 0.0) < _MEMORY_B_PER_S * _PER_SAMPLE_S
    ):
        return None
    should_s = _copying_s(cost.bytes or 0.0, max(1.0, facts.batch_tensors or 0.0))
    task = f"to copy {size(cost.bytes)}"
    return _making(facts, "collate", task, cost, should_s)


def _in_kernel(facts: RuleInputs) -> Work | None:
    """Expect of the kernel's part of a sample that it copies what is read.

    It also gives memory for what is made. Swap has a rule of its own.
    """
    if from_swap(facts):
        return None
    total = facts.costs.get("total")
    collate = facts.costs.get("collate")
    system_s = facts.traffic.system_s
    if total is None or not total.cpu_s or not system_s:
        return None
    nbytes = sum(
        part or 0.0
        for part in (
            facts.traffic.read_chars,
            collate.bytes if collate else None,
            _decoded_bytes(facts),
        )
    )
    should_s = nbytes / _MEMORY_B_PER_S + (_calls(facts, "read") + 1) * _PER_READ_S
    cost = Cost(system_s, system_s, 0.0, 0.0, nbytes, None)
    held_s = input_wait(facts).making_s * min(
        1.0, system_s / max(total.cpu_s, total.wall_s - (total.runqueue_s or 0.0))
    )
    task = f"to read and allocate {size(nbytes)}"
    return Work(KERNEL, "sample", task, cost, should_s, held_s)


def _receiving(facts: RuleInputs) -> Work | None:
    """Expect a batch to be received without long pickles.

    ``objects_in_queue`` says what those cost.
    """
    sent, per_step = facts.moved.get("transport"), input_wait(facts).transport_s
    if (
        sent is None
        or not sent.times
        or facts.loader is None
        or (facts.batch_tensors or 0.0) >= _COUNTED_TENSORS
    ):
        return None
    if (facts.loader.pickle_bytes or 0.0) > MAX_PICKLE_BYTES:
        return None
    should_s = at_best_s(facts).high / sent.times
    task = f"to receive {size(facts.loader.batch_bytes)}"
    cost = replace(_per_time(sent, per_step), bytes=facts.loader.batch_bytes)
    return Work("transport", "batch", task, cost, should_s, per_step, how=" in shared memory")


def _pinning(facts: RuleInputs) -> Work | None:
    pinned, per_step = facts.moved.get("pin"), facts.step.stages.get("pin", 0.0)
    if pinned is None or not pinned.times:
        return None
    nbytes = pinned.nbytes / pinned.times
    should_s = nbytes / _MEMORY_B_PER_S + _PER_BATCH_S
    task = f"to copy {size(nbytes)}"
    return Work("pin", "batch", task, _per_time(pinned, per_step), should_s, per_step)


def _copying(facts: RuleInputs) -> Work | None:
    """Expect a copy to take what the device's own clock says of its bytes.

    On the host it also waits for what the device has still to do.
    """
    copied, device_s = facts.moved.get("copy"), (facts.step.gpu_stages or {}).get("copy")
    if copied is None or not device_s:
        return None
    should_s = copied.nbytes / _MEMORY_B_PER_S + _PER_BATCH_S
    task = f"to move {size(copied.nbytes)} to the device"
    return Work(
        "copy",
        "step",
        task,
        Cost(device_s, None, None, None, copied.nbytes, None),
        should_s,
        device_s,
    )


_OF_STAGES: tuple[Callable[[RuleInputs], Work | None], ...] = (
    _reading,
    _decoding,
    _collating,
    _in_kernel,
    _receiving,
    _pinning,
    _copying,
)


def _making(facts: RuleInputs, stage: str, task: str, cost: Cost, should_s: float) -> Work:
    return Work(
        stage,
        "sample",
        task,
        cost,
        should_s,
        input_wait(facts).making_s * making_share(facts, stage),
    )


def _per_time(moved: Moved, per_step_s: float) -> Cost:
    cpu_s = None if moved.cpu_s is None else moved.cpu_s / moved.times
    return Cost(per_step_s / moved.times, cpu_s, None, None, moved.nbytes / moved.times, None)


def _decoded_bytes(facts: RuleInputs) -> float | None:
    decode = facts.costs.get("decode")
    return decode.bytes if decode else None
