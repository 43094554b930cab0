"""Which tap belongs to torch and which to DALI. Those of a loader's workers are in taps/worker.py; libraries used inside samples are
listed in taps/operations/__init__.py."""

from collections.abc import Callable
from pathlib import Path

from feedline.profiler import reasons
from feedline.profiler.message import Message
from feedline.profiler.record.window import Window
from feedline.profiler.session.hooks import Hooks
from feedline.profiler.taps import operations

NewLoader = Callable[[str, dict[str, object]], int]  # kind, settings -> the loader's number
MoreOfLoader = Callable[[int, dict[str, object]], None]  # the loader's number, settings that have become known
NewSetup = Callable[[dict[str, object]], None]  # Manifest.training


def attach_in_main(
    hooks: Hooks, folder: Path, tell_loader: NewLoader, add_to_loader: MoreOfLoader, tell_setup: NewSetup, window: Window | None
) -> None:
    """Register all taps of the training process. Imports no library: a training that never imports torch pays nothing."""
    hooks.when_imported("torch", lambda: _torch(hooks, folder, tell_loader, add_to_loader, tell_setup))
    hooks.when_imported("torch", lambda: _gpu(hooks, folder, window))
    hooks.when_imported("torch._dynamo", lambda: _dynamo(hooks))
    hooks.when_imported("nvidia.dali.plugin.pytorch", lambda: _dali(hooks, tell_loader))
    hooks.add_undo(operations.attach(hooks.tell))


def _torch(hooks: Hooks, folder: Path, tell_loader: NewLoader, add_to_loader: MoreOfLoader, tell_setup: NewSetup) -> None:
    from feedline.profiler.taps import collectives, convergence, copy, fetch, flops, gradients, making, rests, training
    from feedline.profiler.taps.collectives import other_libraries
    from feedline.profiler.taps.loader import TORCH, TORCHDATA, LoaderTaps, attach_pin

    loaders = LoaderTaps(folder, tell_loader, add_to_loader)
    hooks.attach("DataLoader", "epochs, waits, batches, workers", lambda patches: loaders.attach(TORCH, patches))
    hooks.attach("fetcher", "samples, collate, file traffic, in any worker", fetch.attach)
    hooks.attach("pin_memory", "copies to pinned memory", attach_pin)
    hooks.attach("nn.Module", "forward and loss of the outermost module", training.attach_forward)
    hooks.attach("autograd", "backward", training.attach_backward)
    hooks.attach("optimizer", "updates, which delimit the steps", lambda patches: hooks.add_undo(training.attach_optimizer(patches)))
    hooks.attach(gradients.NAME, gradients.GIVES, gradients.attach)
    hooks.attach(flops.NAME, flops.GIVES, lambda _: hooks.add_undo(flops.FlopTap(hooks.tell).stop))
    hooks.attach(
        convergence.NAME,
        convergence.GIVES,
        lambda patches: hooks.add_undo(convergence.attach(hooks.tell, patches, tell_setup, hooks.when_imported)),
    )
    hooks.attach("torch.save", "checkpoints", training.attach_checkpoint)
    hooks.attach("Tensor.to", "copies between devices", copy.attach)
    hooks.attach(making.NAME, making.GIVES, lambda _: hooks.add_undo(making.attach()))
    hooks.attach(collectives.NAME, collectives.GIVES, lambda patches: hooks.add_undo(collectives.attach(hooks.tell, patches)))
    hooks.attach("rests", "if steps are short: some windows are recorded in full, the others only counted", rests.attach)
    hooks.add_undo(rests.pace.stop)  # the first one to be undone
    other_libraries.attach(hooks.when_imported, hooks.tell)
    hooks.when_imported(
        TORCHDATA.module,
        lambda: hooks.attach("StatefulDataLoader", "the same for torchdata's loader", lambda patches: loaders.attach(TORCHDATA, patches)),
    )


def _gpu(hooks: Hooks, folder: Path, window: Window | None) -> None:
    from feedline.profiler.taps import gpu
    from feedline.profiler.taps.kineto_window import NAME, KinetoWindow

    hooks.add_undo(gpu.attach(hooks.tell))
    if window is not None and not window.active:
        hooks.tell(NAME, False, Message("turned off with --torch-profiler off", reasons.TURNED_OFF))
        return
    kineto = KinetoWindow(folder, window, hooks.tell)
    hooks.attach(NAME, "kernels, copies and operators of a few steps", kineto.attach)
    hooks.add_undo(kineto.stop)


def _dynamo(hooks: Hooks) -> None:
    from feedline.profiler.taps.compile import CompileTap

    tap = CompileTap()
    hooks.attach("torch.compile", "compilations", tap.attach)
    hooks.add_undo(tap.undo)


def _dali(hooks: Hooks, tell_loader: NewLoader) -> None:
    from feedline.profiler.taps import dali

    hooks.attach("DALI", "DALI's iterators as loaders: waits and batches", lambda patches: dali.attach(patches, tell_loader))
