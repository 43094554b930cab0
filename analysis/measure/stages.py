"""Every stage of a step and of a sample: one line each.

Names, order, colors, phases and groups come from here. The order is that in which they happen. A
stage that a program names itself (``feedline.stage``) stands under its own name behind these.
"""

from dataclasses import dataclass
from typing import Any

from feedline.profiler.events import Stage


@dataclass(frozen=True)
class _StageSpec:
    """One stage.

    Attributes:
        family: what it does: wait, input, move, compute, rest; user: it is the program's.
        colors: on white and on black; None: the next of those for the program's own stages.
        record: whose spans in the main thread it is; None: it is computed.
        detail: whose spans inside a sample it is, where that was looked at.
        phase: what a late rank is blamed for that spends its time there.
        of_step, of_sample: part of what the report divides there. ``samples`` is divided by what
            samples cost, so it is part of neither.
        is_input: the step has no batch meanwhile.
    """

    name: str
    meaning: str
    family: str
    colors: tuple[str, str] | None
    record: Stage | None = None
    phase: str = ""
    of_step: bool = True
    of_sample: bool = False
    is_input: bool = False
    detail: Stage | None = None


_MAKING: dict[str, Any] = {"phase": "wait", "of_sample": True, "is_input": True}
STAGES = (
    _StageSpec(
        "epoch_start",
        "making or resetting a loader's iterator: starting workers, pickling the dataset",
        "wait",
        ("#7d1f4b", "#b04a7d"),
        Stage.EPOCH,
        "wait",
        is_input=True,
    ),
    _StageSpec(
        "sampler",
        "drawing indices in the main process",
        "wait",
        ("#c7688c", "#dc86a6"),
        Stage.SAMPLER,
        "wait",
        is_input=True,
    ),
    _StageSpec(
        "input",
        "without a loader: functions of the program that make its batches",
        "input",
        ("#e8a01c", "#f0b13f"),
        is_input=True,
    ),
    _StageSpec(
        "samples",
        "a loader's own work in the main process",
        "input",
        ("#c98a3a", "#d69c50"),
        Stage.FETCH,
        "wait",
        of_step=False,
    ),
    _StageSpec(
        "read", "reading files", "input", ("#7a4a12", "#a8713a"), detail=Stage.READ, **_MAKING
    ),
    _StageSpec(
        "decode",
        "decoding images, audio, arrays",
        "input",
        ("#e8a01c", "#f0b13f"),
        detail=Stage.DECODE,
        **_MAKING,
    ),
    _StageSpec(
        "augment", "transforms", "input", ("#a85b0b", "#c07428"), detail=Stage.AUGMENT, **_MAKING
    ),
    _StageSpec(
        "user",
        "inside feedline.stage(...) in a dataset",
        "user",
        None,
        of_step=False,
        of_sample=True,
        is_input=True,
        detail=Stage.USER,
    ),
    _StageSpec("dataset", "the dataset's own code", "input", ("#f3d58e", "#f5deaa"), **_MAKING),
    _StageSpec(
        "collate",
        "making one batch of samples",
        "input",
        ("#57571a", "#5f5d20"),
        Stage.COLLATE,
        **_MAKING,
    ),
    _StageSpec(
        "wait",
        "the main process has no batch yet",
        "wait",
        ("#cf3f16", "#e2562c"),
        Stage.NEXT,
        "wait",
        is_input=True,
    ),
    _StageSpec(
        "transport",
        "receiving and unpickling a batch from a worker, in the main thread",
        "move",
        ("#8fd3bd", "#a5e0cd"),
        Stage.TRANSPORT,
        **_MAKING,
    ),
    _StageSpec(
        "pin", "copying a batch to pinned memory", "move", ("#17695a", "#1f6f5f"), Stage.PIN, "wait"
    ),
    _StageSpec(
        "copy", "moving tensors between devices", "move", ("#46b08f", "#58c7a4"), Stage.COPY, "copy"
    ),
    _StageSpec(
        "forward",
        "the model's forward pass",
        "compute",
        ("#3577c0", "#5a9be0"),
        Stage.FORWARD,
        "forward",
    ),
    _StageSpec(
        "loss", "computing the loss", "compute", ("#b4d2f0", "#c9e0f7"), Stage.LOSS, "forward"
    ),
    _StageSpec(
        "backward",
        "the backward pass",
        "compute",
        ("#1e3a80", "#3d57a6"),
        Stage.BACKWARD,
        "backward",
    ),
    _StageSpec(
        "gradients",
        "clearing, unscaling and clipping gradients: zero_grad, unscale_, clip_grad_norm_",
        "compute",
        ("#6c5fb0", "#8a7fd0"),
        Stage.GRADIENTS,
        "optimizer",
    ),
    _StageSpec(
        "optimizer",
        "the update of the parameters; with the code of its closure, outside model and backward",
        "compute",
        ("#a99be0", "#b7abeb"),
        Stage.OPTIMIZER,
        "optimizer",
    ),
    _StageSpec(
        "compile",
        "torch.compile compiling a graph",
        "rest",
        ("#55565c", "#73757c"),
        Stage.COMPILE,
        "compile",
    ),
    _StageSpec(
        "checkpoint", "torch.save", "rest", ("#9a9ca3", "#a7a9b0"), Stage.CHECKPOINT, "checkpoint"
    ),
    _StageSpec(
        "unattributed",
        "in steps that were only timed: what they took longer than those recorded in detail, in "
        "an unknown stage",
        "rest",
        ("#b9a58f", "#8f7d68"),
    ),
    _StageSpec("other", "what no stage accounts for", "rest", ("#d3d5da", "#8d9098")),
)

#: Stages of a step, in order. ``step.stages`` has those that occurred, and always "other".
STEP_STAGES = tuple(spec.name for spec in STAGES if spec.of_step)
#: What a sample costs in the process that makes it.
SAMPLE_STAGES = tuple(spec.name for spec in STAGES if spec.of_sample)
#: Making a batch, which is inside the step where a loader has no workers.
MAKING_STAGES = tuple(name for name in SAMPLE_STAGES if name != "transport")
#: In these the step has no batch.
INPUT_STAGES = tuple(spec.name for spec in STAGES if spec.is_input)
#: Stage of time that no recorded step accounts for (counted_steps.py).
UNATTRIBUTED = "unattributed"
#: Stage of what no other one accounts for.
OTHER = "other"
#: Stage of a record -> stage of a step. What is not here (samples seen in detail) is part of its
#: parent.
STAGE_OF_RECORD = {spec.record: spec.name for spec in STAGES if spec.record is not None}
#: Stage of a record inside a sample -> stage of a sample.
STAGE_OF_DETAIL = {spec.detail: spec.name for spec in STAGES if spec.detail is not None}
#: Of these, the operations of libraries.
TAPPED_STAGES = tuple(name for name in STAGE_OF_DETAIL.values() if name != "user")
#: Stage of a step -> phase that is blamed; a stage that is not here is blamed by its own name.
PHASE_OF = {spec.name: spec.phase for spec in STAGES if spec.phase}
