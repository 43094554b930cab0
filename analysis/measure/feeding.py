"""Several loaders that feed the steps, as the rules see them: as one."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from feedline.analysis.measure.boundaries import training_loaders
from feedline.analysis.measure.model import Loader
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import Process

#: Where a loader says nothing of these, they are taken for torch's own.
_USUALLY_TORCHS = ("collate", "batch_sampler")


def take_turns(main: Process) -> bool:
    """Tell whether each pass over a loader of the training ends before one over another begins.

    Then the program changes loaders at most once for each pass.
    """
    numbers = list(training_loaders(main))
    asks, passes = main.view(Stage.NEXT), main.view(Stage.EPOCH)
    asks = asks[np.isin(asks["source"], numbers)]
    order = asks["source"][np.argsort(asks["start"], kind="stable")]
    changes = int(np.count_nonzero(order[1:] != order[:-1]))
    return len(numbers) > 1 and changes < np.isin(passes["source"], numbers).sum()


def together(loaders: Sequence[Loader], in_turn: bool = False) -> Loader | None:
    """Return what the loaders that feed the steps have in common; a single one as it is.

    Batches and samples are those of all, and figures of a batch are means. Settings are those that
    they share, without the number of workers: what was measured is of the workers of all of them.
    None: no loader feeds the steps.

    Args:
        loaders: that feed the steps.
        in_turn: one after another (``take_turns``). If the workers of one end with its pass, their
            number is that of what was measured.
    """
    if len(loaders) <= 1:
        return next(iter(loaders), None)
    return replace(
        loaders[0],
        settings=_shared(loaders, in_turn),
        batches=sum(loader.batches for loader in loaders),
        samples=sum(loader.samples for loader in loaders),
        batch_bytes=_mean(loaders, lambda one: one.batch_bytes, lambda one: one.batches),
        flags=[flag for flag in loaders[0].flags if all(flag in one.flags for one in loaders)],
        pickle_bytes=_mean(loaders, lambda one: one.pickle_bytes, lambda one: one.batches),
        first_batch_s=_mean(loaders, lambda one: one.first_batch_s, lambda one: one.epochs),
        epochs=max(loader.epochs for loader in loaders),
        objects=min(loader.objects for loader in loaders),
    )


def _shared(loaders: Sequence[Loader], in_turn: bool) -> dict[str, object]:
    first, *others = (loader.settings for loader in loaders)
    same: dict[str, object] = {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }
    one_at_a_time = in_turn and not any(one.settings.get("persistent_workers") for one in loaders)
    if same.get("num_workers") != 0 and not one_at_a_time:
        same.pop("num_workers", None)
    named = {name for settings in (first, *others) for name in settings}
    return same | {name: None for name in _USUALLY_TORCHS if name in named and name not in same}


def _mean(
    loaders: Sequence[Loader],
    figure: Callable[[Loader], float | None],
    weight: Callable[[Loader], int],
) -> float | None:
    """Return the mean of a figure; those that do not have it count as 0. None: none has it."""
    figures = [(figure(loader), weight(loader)) for loader in loaders]
    weights = sum(weight for _, weight in figures)
    if not weights or all(value is None for value, _ in figures):
        return None
    return sum((value or 0.0) * weight for value, weight in figures) / weights
