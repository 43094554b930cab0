"""Records the convergence of a training: losses, gradient norms, and the setup of its optimizer."""

from collections.abc import Callable

from feedline.profiler.taps.convergence.norms import WhenImported
from feedline.profiler.taps.convergence.watch import GIVES, NAME, Tell, TellSetup, Watch
from feedline.profiler.taps.patch import Patches

__all__ = ["GIVES", "NAME", "attach"]


def attach(tell: Tell, patches: Patches, tell_setup: TellSetup, when_imported: WhenImported) -> Callable[[], None]:
    """Watch the training of this process; returns a function that ends it."""
    watch = Watch(tell, tell_setup)
    watch.attach(patches, when_imported)
    return watch.stop
