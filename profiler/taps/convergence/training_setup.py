"""Describes the setup of the training for ``Manifest.training``.

optimizers   [{"kind": "SGD", "module": "torch.optim.sgd", "groups": [{"lr", "weight_decay", "momentum", "betas", "tensors", "vectors",
             "elements", "fused", "foreach"}], "samplers"}]
             in the order of their first updates; groups as they were then; vectors: tensors of at most 1 dimension; samplers: as below,
             those that were iterated between an update of this optimizer and the update before
schedulers   [{"kind": "CosineAnnealingLR", "horizon": 1536 | None, "steps": 192, "optimizer": 0}]
             horizon: steps until it is through, as it was told; steps: made by the last update, or by the end where the scheduler was still
             there; optimizer: number of the one that it moves, absent before its first update
norms        {"BatchNorm2d": 20, "SyncBatchNorm": 0, ...}                                in models that were trained
embeddings   {"rows": 400000, "elements": 12800000} | absent                             of tables in such models whose gradients are dense
finds_unused true: DistributedDataParallel looks for parameters without a gradient in each step | absent
batch_norms  [{"layers": 20, "synced": 0, "samples": 2, "gpu": true}]
             models with batch norm, in the order of their first forwards; layers: those that normalize with the statistics of this rank's
             batch; synced: those that take them over all ranks; samples: most in one of the first forwards, 0: unknown
samplers     [{"kind": "DistributedSampler", "shuffles": true, "epochs": 3, "distinct": 1, "samples": 512, "of": 4096, "loader": 0}]
             epochs: times it was iterated; distinct: values that set_epoch had given it by then; samples: that it draws on this rank in an
             epoch; of: samples in the dataset; loader: number of the one that it draws for, absent where that is not recorded
scaler       {"kind": "GradScaler", "skipped": 3} | absent         skipped: updates that were not made
updates, samples     in all, on this rank; absent in a run that was killed
samples_known        false: samples are rows that the model was given (taps/convergence/sample_count.py)
noise_scale  why no gradient norms were seen; "" where some were
noise_scale_reason  the same as an identifier, where something depends on it (message.py)
"""

import functools
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import BatchSampler, DataLoader

from feedline.profiler import clock
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import id_of
from feedline.profiler.record.optimizer_tracker import ObjectNumbers
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.loader_settings import length
from feedline.profiler.taps.patch import Patches
from feedline.profiler.torch_internals import below_function_modes

# of one model that are looked at; its layers are counted again where their number is a power of two
_FORWARDS = 64


class _BatchNormFacts:
    """Looks at each model with batch norm in its first forwards in training, and then no more."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []
        self._looks: weakref.WeakKeyDictionary[torch.nn.Module, dict[str, Any]] = (
            weakref.WeakKeyDictionary()
        )

    def begin(self, model: torch.nn.Module, most: int) -> None:
        """Note that a model begins to train.

        Args:
            model: that begins.
            most: models that are described.
        """
        if len(self._found) < most and any(
            isinstance(part, _BatchNorm) for part in model.modules()
        ):
            facts: dict[str, Any] = {
                "layers": 0,
                "synced": 0,
                "samples": 0,
                "gpu": False,
                "forwards": 0,
            }
            self._found.append(facts)
            self._looks[model] = facts

    def forwarded(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        handed_over: int,
    ) -> None:
        """Note that a model has received a batch in training.

        Args:
            model: that received it.
            args: of the call.
            kwargs: of the call.
            handed_over: samples of the last batch from a loader; 0: unknown. Where the input has
                fewer rows, they need not be samples (the two rows of a graph's edges), or the
                program divides the batch.
        """
        facts = self._looks.get(model)
        if facts is None:
            return
        facts["forwards"] += 1
        facts["samples"] = max(
            facts["samples"], max(rows(args, kwargs), handed_over) // _replicas(model)
        )
        if not facts["forwards"] & (facts["forwards"] - 1):
            layers = [part for part in model.modules() if isinstance(part, _BatchNorm)]
            facts["synced"] = sum(_is_synced(layer) for layer in layers)
            facts["layers"] = sum(_uses_its_batch(layer) for layer in layers)
            facts["gpu"] = any(parameter.is_cuda for parameter in model.parameters())
        if facts["forwards"] >= _FORWARDS:
            del self._looks[model]

    @property
    def active(self) -> bool:
        """Whether a model is still looked at."""
        return bool(self._looks)

    def found(self) -> list[dict[str, object]]:
        """Return the models with batch norm, for the manifest."""
        return [
            {key: value for key, value in facts.items() if key != "forwards"}
            for facts in self._found
        ]


def _is_synced(layer: _BatchNorm) -> bool:
    """Return whether a layer takes its statistics over all ranks.

    It is torch's SyncBatchNorm, or one of a library.
    """
    return "sync" in type(layer).__name__.lower()


def _uses_its_batch(layer: _BatchNorm) -> bool:
    """Return whether a layer normalizes with the statistics of this rank's batch.

    It is then not frozen, and not meant to look at less.
    """
    takes_one_batch = not _is_synced(layer) and not hasattr(layer, "ghost")
    return takes_one_batch and (
        layer.training or not layer.track_running_stats or layer.running_mean is None
    )


def _replicas(model: torch.nn.Module) -> int:
    """Return how many copies of a model share a batch."""
    return max(1, len(model.device_ids)) if isinstance(model, torch.nn.DataParallel) else 1


def rows(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the rows of the first tensor in a model's input.

    Of a list of tensors, such as images of different sizes, it is its length.
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.dim():
            return int(value.shape[0])
        if (
            isinstance(value, list | tuple)
            and value
            and all(isinstance(item, torch.Tensor) for item in value)
        ):
            return len(value)
    return 0


# OneCycleLR, CosineAnnealingLR, LinearLR and its like
_HORIZONS = ("total_steps", "T_max", "total_iters")
_MAX_SCHEDULERS = 4  # schedulers, which are looked at on every update
_MAX_DESCRIBED = 64  # optimizers and kinds of samplers: more are those of a search
#: kind, shuffles, samples, of, loader -> epochs, values of set_epoch
_Samplers = dict[tuple[str, bool, int, int, int | None], tuple[int, set[object]]]
_NUMBER_SETTINGS = ("lr", "weight_decay", "momentum", "eps", "dampening")
_HOW = ("fused", "foreach")  # it updates; None, the default, is not described


class TrainingSetup:
    """Collects the setup while the training runs.

    Attributes:
        batch_norms: what batch norm layers are given.
        scaler: the GradScaler in use, if any.
        skipped: updates that it has skipped.
    """

    def __init__(self) -> None:
        self.batch_norms = _BatchNormFacts()
        self.scaler: Any = None
        self.skipped = 0
        self._optimizers: list[dict[str, Any]] = []
        self._known = ObjectNumbers()  # optimizers
        self._norms: Counter[str] = Counter()
        self._embeddings: Counter[str] = Counter()
        self._finds_unused = False
        self._models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._schedulers: list[
            tuple[Any, dict[str, object]]
        ] = []  # weak references, and what was known last
        self._past: list[dict[str, object]] = []  # of schedulers that are gone
        self._samplers: _Samplers = {}
        self._fresh: list[tuple[int, _Samplers]] = []  # ns, passes since the last update

    def attach(self, patches: Patches) -> None:
        """Watch schedulers and loaders."""
        schedulers = torch.optim.lr_scheduler.LRScheduler
        original, iterate = schedulers.__init__, DataLoader.__iter__

        @functools.wraps(original)
        def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            original(scheduler, *args, **kwargs)
            self._retire_schedulers()
            if len(self._schedulers) < _MAX_SCHEDULERS:
                self._schedulers.append((weakref.ref(scheduler), {}))

        @functools.wraps(iterate)
        def __iter__(loader: Any) -> Any:
            iterator = iterate(loader)
            try:
                self._iterated(loader, getattr(iterator, "_feedline", None))
            except Exception:  # the program's own sampler: it is not described
                reraise_of_handler()
            return iterator

        patches.set(schedulers, "__init__", __init__)
        patches.set(DataLoader, "__iter__", __iter__)

    def optimizer(self, optimizer: torch.optim.Optimizer) -> bool:
        """Note that an optimizer is about to step.

        Returns whether it is a new one that is described.
        """
        if self._schedulers:
            self._look_at_schedulers()
        number = self._known.known.get(id(optimizer))
        new = number is None
        if number is None:
            number = self._known.meet(optimizer)
            new = number < _MAX_DESCRIBED
            if new:
                kind = type(optimizer)
                groups = [_group_facts(group) for group in optimizer.param_groups]
                self._optimizers.append(
                    {
                        "kind": kind.__name__,
                        "module": kind.__module__,
                        "groups": groups,
                        "samplers": {},
                    }
                )
        if self._fresh:
            self._share_out(number, new)
        return new

    def _share_out(self, number: int, new: bool) -> None:
        """Give passes over samplers to the optimizer that updates after them.

        Those before its training began belong to the one before.
        """
        fresh, self._fresh = self._fresh, []
        began = recorder.optimizers.began if new and recorder.optimizers is not None else 0
        for at, samplers in fresh:
            of = number - 1 if at < began else number
            if 0 <= of < len(self._optimizers):
                _count_samplers(samplers, self._optimizers[of]["samplers"])

    def model(self, module: torch.nn.Module) -> None:
        """Note that a model is being trained."""
        if module not in self._models:
            self._models.add(module)
            self._norms.update(
                type(part).__name__ for part in module.modules() if "Norm" in type(part).__name__
            )
            self._embeddings.update(_embedding_facts(module))
            self._finds_unused |= _finds_unused(module)
            self.batch_norms.begin(module, _MAX_DESCRIBED)

    def found(self, why_no_norms: str) -> dict[str, object]:
        """Return the setup so far."""
        self._look_at_schedulers()
        described: dict[str, object] = {
            "optimizers": [
                {**facts, "samplers": _sampler_facts(facts["samplers"])}
                for facts in self._optimizers
            ],
            "schedulers": [*self._past, *(facts for _, facts in self._schedulers if facts)],
            "norms": dict(self._norms),
            "batch_norms": self.batch_norms.found(),
            "samplers": _sampler_facts(self._samplers),
            "noise_scale": why_no_norms,
            "noise_scale_reason": id_of(why_no_norms),
        }
        if self._embeddings:
            described["embeddings"] = dict(self._embeddings)
        if self._finds_unused:
            described["finds_unused"] = True
        if self.scaler is not None:
            described["scaler"] = {"kind": type(self.scaler).__name__, "skipped": self.skipped}
        return described

    def _look_at_schedulers(self) -> None:
        for scheduler, facts in self._schedulers:
            try:
                if (alive := scheduler()) is not None:
                    facts.update(
                        _scheduler_facts(alive) if not facts else {"steps": int(alive.last_epoch)}
                    )
                    if (
                        "optimizer" not in facts
                        and (number := self._known.known.get(id(alive.optimizer))) is not None
                    ):
                        facts["optimizer"] = number
            except Exception:  # one of the program's own
                reraise_of_handler()

    def _retire_schedulers(self) -> None:
        """Drop the schedulers of trainings that are over."""
        past = [facts for scheduler, facts in self._schedulers if scheduler() is None]
        self._past += [facts for facts in past if facts][: _MAX_DESCRIBED - len(self._past)]
        self._schedulers = [entry for entry in self._schedulers if entry[0]() is not None]

    @below_function_modes
    def _iterated(self, loader: Any, state: Any) -> None:
        """Count the samplers of one shape as one.

        A program may make a loader for every epoch.

        Args:
            loader: that is iterated.
            state: what the loader's tap knows of the iterator, which has the loader's number.
        """
        if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
            return  # it draws by itself
        sampler = loader.sampler
        kind = type(sampler).__name__
        shuffles = bool(getattr(sampler, "shuffle", kind == "RandomSampler"))
        samples, of = length(sampler), length(loader.dataset)
        if samples is None or of is None:
            return
        passes = {
            (kind, shuffles, samples, of, getattr(state, "loader", None)): (
                1,
                {getattr(sampler, "epoch", None)},
            )
        }
        _count_samplers(passes, self._samplers)
        if len(self._fresh) < _MAX_DESCRIBED:
            self._fresh.append((clock.wall_ns(), passes))


def _count_samplers(more: _Samplers, into: _Samplers) -> None:
    """Add passes over samplers to those of others."""
    for shape, (epochs, distinct) in more.items():
        if shape in into or len(into) < _MAX_DESCRIBED:
            before, values = into.get(shape, (0, set()))
            into[shape] = before + epochs, values | distinct


def _sampler_facts(samplers: _Samplers) -> list[dict[str, object]]:
    """Return the samplers, for the manifest."""
    return [
        {
            "kind": kind,
            "shuffles": shuffles,
            "epochs": epochs,
            "distinct": len(distinct),
            "samples": samples,
            "of": of,
        }
        | ({} if loader is None else {"loader": loader})
        for (kind, shuffles, samples, of, loader), (epochs, distinct) in samplers.items()
    ]


def _group_facts(group: dict[str, Any]) -> dict[str, object]:
    """Return the settings of a parameter group."""
    tensors = group["params"]
    facts: dict[str, object] = {
        name: float(group[name])
        for name in _NUMBER_SETTINGS
        if isinstance(group.get(name), (int, float))
    }
    if isinstance(group.get("betas"), tuple):
        facts["betas"] = [float(beta) for beta in group["betas"]]
    facts |= {name: group[name] for name in _HOW if isinstance(group.get(name), bool)}
    vectors = sum(tensor.dim() <= 1 for tensor in tensors)
    return {
        **facts,
        "tensors": len(tensors),
        "vectors": vectors,
        "elements": sum(tensor.numel() for tensor in tensors),
    }


def _finds_unused(model: torch.nn.Module) -> bool:
    """Tell whether a model is wrapped so that each forward looks for parameters without a gradient."""
    return (
        type(model).__name__ == "DistributedDataParallel"
        and getattr(model, "find_unused_parameters", False) is True
        and getattr(model, "static_graph", False) is not True
    )


def _embedding_facts(model: torch.nn.Module) -> dict[str, int]:
    """Return rows and elements of a model's embeddings whose gradients are dense.

    A table that is also the weight of another layer has a dense gradient in any case.
    """
    tables, others = [], set()
    for part in model.modules():
        weight = getattr(part, "weight", None)
        if not isinstance(weight, torch.nn.Parameter) or not weight.requires_grad:
            continue
        if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag):
            if not part.sparse:
                tables.append(weight)
        else:
            others.add(id(weight))
    own = [table for table in tables if id(table) not in others]
    if not own:
        return {}
    return {
        "rows": sum(table.shape[0] for table in own),
        "elements": sum(table.numel() for table in own),
    }


def _scheduler_facts(scheduler: Any) -> dict[str, object]:
    """Return the name of a scheduler, its horizon, and its position."""
    horizon = next(
        (
            getattr(scheduler, name)
            for name in _HORIZONS
            if isinstance(getattr(scheduler, name, None), int)
        ),
        None,
    )
    if (
        horizon is None
        and getattr(scheduler, "milestones", None)
        and type(scheduler).__name__ == "MultiStepLR"
    ):
        horizon = max(scheduler.milestones)
    return {
        "kind": type(scheduler).__name__,
        "horizon": horizon,
        "steps": int(scheduler.last_epoch),
    }
