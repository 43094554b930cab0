"""The taps of torch, in the order in which they are attached once the training imports it."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from feedline.profiler.message import ReportHook
from feedline.profiler.taps import (
    collectives,
    contents,
    convergence,
    fetch,
    flops,
    garbage,
    graphs,
    own_code,
    recording_schedule,
    training,
)
from feedline.profiler.taps.convergence.norms import WhenImported
from feedline.profiler.taps.loader import TORCH, LoaderTaps, attach_pin
from feedline.profiler.taps.patch import Patches


class _TorchTap(NamedTuple):
    """A tap to attach.

    Attributes:
        name: of its hook.
        gives: what it shows.
        attach: may return what ends it, besides undoing its patches.
    """

    name: str
    gives: str
    attach: Callable[[Patches], Callable[[], None] | None]


def torch_taps(
    loaders: LoaderTaps,
    report: ReportHook,
    report_setup: Callable[[dict[str, object]], None],
    when_imported: WhenImported,
) -> list[_TorchTap]:
    """Return all of them.

    Args:
        loaders: of torch.
        report: called by taps that find out later what they cannot see.
        report_setup: called with ``Manifest.training``.
        when_imported: calls a function once a library is imported.
    """
    return [
        _TorchTap("DataLoader", "epochs, waits, batches, workers", partial(loaders.attach, TORCH)),
        _TorchTap("fetcher", "samples, collate, file traffic, in any worker", fetch.attach),
        _TorchTap("pin_memory", "copies to pinned memory", attach_pin),
        _TorchTap("nn.Module", "forward and loss of the outermost module", training.attach_forward),
        _TorchTap("autograd", "backward", training.attach_backward),
        _TorchTap("optimizer", "updates, which delimit the steps", training.attach_optimizer),
        _TorchTap(training.GRADIENTS_NAME, training.GRADIENTS_GIVE, training.attach_gradients),
        _TorchTap(flops.NAME, flops.GIVES, lambda _: flops.FlopTap(report).stop),
        _TorchTap(
            convergence.NAME,
            convergence.GIVES,
            lambda patches: convergence.attach(report, patches, report_setup, when_imported),
        ),
        _TorchTap(graphs.NAME, graphs.GIVES, graphs.GraphTap().attach),
        _TorchTap(contents.NAME, contents.GIVES, contents.ContentTap().attach),
        _TorchTap(garbage.NAME, garbage.GIVES, garbage.GarbageTap().attach),
        _TorchTap("torch.save", "checkpoints", training.attach_checkpoint),
        _TorchTap("Tensor.to", "copies between devices", training.attach_copies),
        _TorchTap(own_code.NAME, own_code.GIVES, lambda _: own_code.attach()),
        _TorchTap(
            collectives.COLLECTIVES_HOOK, collectives.GIVES, partial(collectives.attach, report)
        ),
        _TorchTap(
            "rests",
            "if steps are short: some windows are recorded in full, the others only counted",
            recording_schedule.attach,
        ),
    ]
