"""How the training is set up, for ``Manifest.training``:

optimizers   [{"kind": "SGD", "module": "torch.optim.sgd", "groups": [{"lr", "weight_decay", "momentum", "betas", "tensors", "vectors",
             "elements"}]}]            groups as they were at the first update; vectors: tensors of at most 1 dimension
schedulers   [{"kind": "CosineAnnealingLR", "horizon": 1536 | None, "steps": 192}]       horizon: steps until it is through, as it was told;
             steps: made by the last update, or by the end where the scheduler was still there
norms        {"BatchNorm2d": 20, "SyncBatchNorm": 0, ...}                                in models that were trained
samplers     [{"kind": "DistributedSampler", "shuffles": true, "epochs": 3, "distinct": 1, "samples": 512, "of": 4096}]
             epochs: times it was iterated; distinct: values that set_epoch had given it by then; samples: that it draws on this rank in an
             epoch, of so many in the data set
scaler       {"kind": "GradScaler", "skipped": 3} | absent         skipped: updates that were not made
updates, samples     in all, on this rank; absent in a run that was killed
noise_scale  why no gradient norms were seen; "" where some were
"""

import functools
import weakref
from collections import Counter
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader

from feedline.profiler.taps.loader_settings import length
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.unseen import unasked

HORIZONS = ("total_steps", "T_max", "total_iters")  # OneCycleLR, CosineAnnealingLR, LinearLR and its like
FEW = 4  # schedulers, which are looked at on every update
MOST = 64  # optimizers and kinds of samplers: more are those of a search
NUMBERS = ("lr", "weight_decay", "momentum", "eps", "dampening")


class Setup:
    """Gathers it while the training runs.

    Attributes:
        scaler: the GradScaler in use, if any.
        skipped: updates that it has skipped.
    """

    def __init__(self) -> None:
        self.scaler: Any = None
        self.skipped = 0
        self._optimizers: dict[int, dict[str, object]] = {}
        self._norms: Counter[str] = Counter()
        self._models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._schedulers: list[tuple[Any, dict[str, object]]] = []  # weak references, and what was known last
        self._samplers: dict[tuple[object, ...], dict[str, Any]] = {}

    def attach(self, patches: Patches) -> None:
        """Watch schedulers and loaders."""
        schedulers = torch.optim.lr_scheduler.LRScheduler
        original, iterate = schedulers.__init__, DataLoader.__iter__

        @functools.wraps(original)
        def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            original(scheduler, *args, **kwargs)
            if len(self._schedulers) < FEW:
                self._schedulers.append((weakref.ref(scheduler), {}))

        @functools.wraps(iterate)
        def __iter__(loader: Any) -> Any:
            try:
                self._iterated(loader)
            except Exception:  # the program's own sampler: it is not described
                pass
            return iterate(loader)

        patches.set(schedulers, "__init__", __init__)
        patches.set(DataLoader, "__iter__", __iter__)

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""
        if self._schedulers:
            self._look_at_schedulers()
        if id(optimizer) not in self._optimizers and len(self._optimizers) < MOST:
            kind = type(optimizer)
            self._optimizers[id(optimizer)] = {
                "kind": kind.__name__,
                "module": kind.__module__,
                "groups": [group_facts(group) for group in optimizer.param_groups],
            }

    def model(self, module: torch.nn.Module) -> None:
        """A model is being trained."""
        if module not in self._models:
            self._models.add(module)
            self._norms.update(type(part).__name__ for part in module.modules() if "Norm" in type(part).__name__)

    def found(self, why_no_norms: str) -> dict[str, object]:
        """All of it, so far."""
        self._look_at_schedulers()
        described: dict[str, object] = {
            "optimizers": list(self._optimizers.values()),
            "schedulers": [facts for _, facts in self._schedulers if facts],
            "norms": dict(self._norms),
            "samplers": [{**facts, "distinct": len(facts["distinct"])} for facts in self._samplers.values()],
            "noise_scale": why_no_norms,
        }
        if self.scaler is not None:
            described["scaler"] = {"kind": type(self.scaler).__name__, "skipped": self.skipped}
        return described

    def _look_at_schedulers(self) -> None:
        for scheduler, facts in self._schedulers:
            try:
                if (one := scheduler()) is not None:
                    facts.update(scheduler_facts(one) if not facts else {"steps": int(one.last_epoch)})
            except Exception:  # one of the program's own
                pass

    @unasked
    def _iterated(self, loader: Any) -> None:
        """Samplers of one shape count as one: a program may make a loader for every epoch."""
        if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
            return  # it draws by itself
        sampler = loader.sampler
        kind = type(sampler).__name__
        shuffles = bool(getattr(sampler, "shuffle", kind == "RandomSampler"))
        samples, of = length(sampler), length(loader.dataset)
        if samples is None or of is None:
            return
        shape = kind, shuffles, samples, of
        if shape not in self._samplers and len(self._samplers) < MOST:
            self._samplers[shape] = {
                "kind": kind,
                "shuffles": shuffles,
                "epochs": 0,
                "distinct": set(),
                "samples": samples,
                "of": of,
            }
        if facts := self._samplers.get(shape):
            facts["epochs"] += 1
            facts["distinct"].add(getattr(sampler, "epoch", None))


def group_facts(group: dict[str, Any]) -> dict[str, object]:
    """Numbers of a parameter group."""
    tensors = group["params"]
    facts: dict[str, object] = {name: float(group[name]) for name in NUMBERS if isinstance(group.get(name), (int, float))}
    if isinstance(group.get("betas"), tuple):
        facts["betas"] = [float(beta) for beta in group["betas"]]
    vectors = sum(tensor.dim() <= 1 for tensor in tensors)
    return {**facts, "tensors": len(tensors), "vectors": vectors, "elements": sum(tensor.numel() for tensor in tensors)}


def scheduler_facts(scheduler: Any) -> dict[str, object]:
    """A scheduler's name, when it is through, and how far it came."""
    horizon = next((getattr(scheduler, name) for name in HORIZONS if isinstance(getattr(scheduler, name, None), int)), None)
    if horizon is None and getattr(scheduler, "milestones", None) and type(scheduler).__name__ == "MultiStepLR":
        horizon = max(scheduler.milestones)
    return {"kind": type(scheduler).__name__, "horizon": horizon, "steps": int(scheduler.last_epoch)}
