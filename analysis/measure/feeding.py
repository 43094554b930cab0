"""Several loaders that feed the steps, as the rules see them: as one."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from feedline.analysis.measure.model import Loader

#: Where a loader says nothing of these, they are taken for torch's own.
_USUALLY_TORCHS = ("collate", "batch_sampler")


def together(loaders: Sequence[Loader]) -> Loader | None:
    """Return what the loaders that feed the steps have in common; a single one as it is.

    Batches and samples are those of all, and figures of a batch are means. Settings are those that
    they share, without the number of workers: what was measured is of the workers of all of them.
    None: no loader feeds the steps.
    """
    if len(loaders) <= 1:
        return next(iter(loaders), None)
    return replace(
        loaders[0],
        settings=_shared(loaders),
        batches=sum(loader.batches for loader in loaders),
        samples=sum(loader.samples for loader in loaders),
        batch_bytes=_mean(loaders, lambda one: one.batch_bytes, lambda one: one.batches),
        flags=[flag for flag in loaders[0].flags if all(flag in one.flags for one in loaders)],
        pickle_bytes=_mean(loaders, lambda one: one.pickle_bytes, lambda one: one.batches),
        first_batch_s=_mean(loaders, lambda one: one.first_batch_s, lambda one: one.epochs),
        epochs=max(loader.epochs for loader in loaders),
        objects=min(loader.objects for loader in loaders),
    )


def _shared(loaders: Sequence[Loader]) -> dict[str, object]:
    first, *others = (loader.settings for loader in loaders)
    same: dict[str, object] = {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }
    if same.get("num_workers") != 0:
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
