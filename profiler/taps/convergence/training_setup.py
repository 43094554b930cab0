"""Describes the setup of the training for ``Manifest.training``.

optimizers   [{"kind": "SGD", "module": "torch.optim.sgd", "step": "SGD", "groups": [{"lr", "weight_decay", "momentum", "betas", "tensors",
             "vectors", "elements", "fused", "foreach", "sparse", "complex"}], "samplers"}]
             in the order of their first updates; step: class of torch whose step() it runs, "": none is; groups as they were then;
             vectors: tensors of at most 1 dimension; sparse, complex: tensors whose gradients are, absent where none are; samplers: as
             below, those that were iterated between an update of this optimizer and the update before
schedulers   [{"kind": "CosineAnnealingLR", "horizon": 1536 | None, "steps": 192, "optimizer": 0}]
             horizon: steps until it is through, as it was told; steps: made by the last update, or by the end where the scheduler was still
             there; optimizer: number of the one that it moves, absent before its first update
norms        {"BatchNorm2d": 20, "SyncBatchNorm": 0, ...}                                in models that were trained
embeddings   {"rows": 400000, "elements": 12800000} | absent                             of tables in such models whose gradients are dense,
             but for most of their rows zero in the first update
finds_unused true: DistributedDataParallel looks for parameters without a gradient in each step | absent
shares_gradients true: ranks were seen to exchange gradients | absent
ddp_hook     true: DistributedDataParallel has a hook in Python that sends its buckets | absent
batch_norms  [{"layers": 20, "synced": 0, "samples": 2, "gpu": true}]
             models with batch norm, in the order of their first forwards; layers: those that normalize with the statistics of this rank's
             batch; synced: those that take them over all ranks; samples: most in one of the first forwards, 0: unknown
samplers     [{"kind": "DistributedSampler", "shuffles": true, "epochs": 3, "distinct": 1, "samples": 512, "of": 4096, "loader": 0}]
             epochs: times it was iterated and trained on; distinct: values that set_epoch had given it by then; samples: that it draws
             on this rank in an epoch; of: samples in the dataset; loader: number of the one that it draws for, absent where that is
             not recorded
scaler       {"kind": "GradScaler", "skipped": 3} | absent         skipped: updates that were not made
updates, samples     in all, on this rank; absent in a run that was killed
steps                updates, those of optimizers that take turns as one
samples_known        false: samples are rows that the model was given (taps/convergence/sample_count.py)
noise_scale  why no gradient norms were seen; "" where some were
noise_scale_reason  the same as an identifier, where something depends on it (message.py)
"""

import functools
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import BatchSampler, DataLoader

from feedline.profiler import clock
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.message import id_of
from feedline.profiler.record.optimizer_tracker import ObjectNumbers
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.loader_settings import ENDLESS, drawn_length, length
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
            with fail_open:  # a program's own parameters() may ask for anything
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


def rows_of(tensor: torch.Tensor) -> int:
    """Return the length of a tensor's first dimension; 0: it does not say."""
    try:
        return int(tensor.size(0))  # a nested tensor has no shape
    except Exception:
        reraise_of_handler()
        return 0


def parts_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what a model is given; of a batch that is a dictionary, its values."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Mapping):
            yield from value.values()
        else:
            yield value


def rows(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the rows of the first tensor in a model's input.

    Of a list of tensors, such as images of different sizes, it is its length.
    """
    for value in parts_of(args, kwargs):
        if isinstance(value, torch.Tensor) and value.dim():
            return rows_of(value)
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
_MAX_VALUES = 64  # of set_epoch that are kept: later ones only count


@dataclass
class _Passes:
    """Passes over samplers of one shape.

    Attributes:
        epochs: how many.
        last: value that set_epoch had given the sampler of the last one.
    """

    epochs: int = 0
    last: object = None
    _values: set[object] = field(default_factory=set)
    _others: int = 0  # passes whose value was new and is not kept

    def add(self, epoch: object) -> None:
        """Count a pass.

        Args:
            epoch: what set_epoch had given its sampler.
        """
        if epoch not in self._values:
            if len(self._values) < _MAX_VALUES:
                self._values.add(epoch)
            elif epoch != self.last:
                self._others += 1
        self.epochs, self.last = self.epochs + 1, epoch

    @property
    def distinct(self) -> int:
        """Values of set_epoch: of more than are kept, those that are taken up again count again."""
        return len(self._values) + self._others


_Shape = tuple[str, bool, int, int, int | None]  # kind, shuffles, samples, of, loader
_Samplers = dict[_Shape, _Passes]
_NUMBER_SETTINGS = ("lr", "weight_decay", "momentum", "eps", "dampening")
_ROWS = 64  # of a table's gradient that are looked at
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
        # whose gradients are not seen yet; torch does not swap a parameter that has weak references
        self._tables: list[weakref.ref[torch.nn.Module]] = []
        self._finds_unused = False
        self._ddp_hook = False
        self._models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._schedulers: list[
            tuple[Any, dict[str, object]]
        ] = []  # weak references, and what was known last
        self._past: list[dict[str, object]] = []  # of schedulers that are gone
        self._samplers: _Samplers = {}
        # passes since the last update: ns, and the sampler with what set_epoch had given it
        self._fresh: list[tuple[int, _Shape, object]] = []
        self._fresh_updates: dict[_Shape, int] = {}  # made before the last of these passes

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
        if self._tables:
            self._look_at_tables()
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
                        "step": _step_of(kind),
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
        self._fresh_updates.clear()
        began = recorder.optimizers.began if new and recorder.optimizers is not None else 0
        for at, shape, epoch in fresh:
            _count_pass(shape, epoch, self._samplers)
            of = number - 1 if at < began else number
            if 0 <= of < len(self._optimizers):
                _count_pass(shape, epoch, self._optimizers[of]["samplers"])

    def model(self, module: torch.nn.Module) -> None:
        """Note that a model is being trained."""
        if module not in self._models:
            self._models.add(module)
            self._norms.update(
                type(part).__name__ for part in module.modules() if "Norm" in type(part).__name__
            )
            own = _tables_of(module)[: _MAX_DESCRIBED - len(self._tables)]
            self._tables += [weakref.ref(table) for table in own]
            self._finds_unused |= _finds_unused(module)
            self._ddp_hook |= _has_ddp_hook(module)
            self.batch_norms.begin(module, _MAX_DESCRIBED)

    def found(self, why_no_norms: str, shared: bool = False) -> dict[str, object]:
        """Return the setup so far.

        Args:
            why_no_norms: why no gradient norms were seen; "": some were.
            shared: whether ranks have exchanged gradients.
        """
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
        if shared:
            described["shares_gradients"] = True
        if self._ddp_hook:
            described["ddp_hook"] = True
        if self.scaler is not None:
            described["scaler"] = {"kind": type(self.scaler).__name__, "skipped": self.skipped}
        return described

    def _look_at_tables(self) -> None:
        """Count embeddings of which an update needs few rows, once their gradients are there."""
        waiting = []
        for table in self._tables:
            weight = getattr(table(), "weight", None)
            if not isinstance(weight, torch.nn.Parameter):  # the module is gone, or another one now
                continue
            if weight.grad is None:
                waiting.append(table)
            elif _leaves_rows_alone(weight.grad):
                self._embeddings.update(rows=weight.shape[0], elements=weight.numel())
        self._tables = waiting

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

        A program may make a loader for every epoch. A pass after which no update is made trains on
        nothing, such as a look at the first batch.

        Args:
            loader: that is iterated.
            state: what the loader's tap knows of the iterator, which has the loader's number.
        """
        if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
            return  # it draws by itself
        sampler = loader.sampler
        kind = type(sampler).__name__
        shuffles = bool(getattr(sampler, "shuffle", kind == "RandomSampler"))
        if (samples := drawn_length(sampler)) is None or (of := length(loader.dataset)) is None:
            return
        shape = kind, shuffles, samples, of, getattr(state, "loader", None)
        epoch = getattr(sampler, "epoch", None)
        if len(self._samplers) < _MAX_DESCRIBED:
            self._samplers.setdefault(shape, _Passes())
        watch = recorder.convergence
        updates = watch.updates_with_pause if watch is not None else 0
        if self._fresh_updates.get(shape) == updates:
            last = max(at for at, (_, other, _) in enumerate(self._fresh) if other == shape)
            del self._fresh[last]
        if len(self._fresh) < _MAX_DESCRIBED:
            self._fresh.append((clock.wall_ns(), shape, epoch))
            self._fresh_updates[shape] = updates


def _count_pass(shape: _Shape, epoch: object, into: _Samplers) -> None:
    """Add a pass over a sampler to those of others."""
    if shape in into or len(into) < _MAX_DESCRIBED:
        into.setdefault(shape, _Passes()).add(epoch)


def _sampler_facts(samplers: _Samplers) -> list[dict[str, object]]:
    """Return the samplers, for the manifest."""
    return [
        {
            "kind": kind,
            "shuffles": shuffles,
            "epochs": passes.epochs,
            "distinct": passes.distinct,
            "samples": samples,
            "of": of,
        }
        | ({} if loader is None else {"loader": loader})
        for (kind, shuffles, samples, of, loader), passes in samplers.items()
    ]


def _step_of(kind: type) -> str:
    """Return the class of torch whose ``step()`` a kind of optimizer runs; empty: none is."""
    step = getattr(kind, "step", None)
    module, name = getattr(step, "__module__", None), getattr(step, "__qualname__", None)
    of_torch = isinstance(module, str) and module.startswith("torch.optim.")
    return name.partition(".")[0] if of_torch and isinstance(name, str) else ""


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
    if sparse := sum(_is_sparse(tensor) for tensor in tensors):
        facts["sparse"] = sparse
    if complex_ := sum(tensor.is_complex() for tensor in tensors):
        facts["complex"] = complex_
    return {
        **facts,
        "tensors": len(tensors),
        "vectors": vectors,
        "elements": sum(tensor.numel() for tensor in tensors),
    }


def _is_sparse(tensor: torch.Tensor) -> bool:
    """Return whether a parameter has a sparse gradient now; a failure to tell says no."""
    try:
        return tensor.grad is not None and bool(tensor.grad.is_sparse)
    except Exception:  # a kind of tensor of its own
        reraise_of_handler()
        return False


def _has_ddp_hook(model: torch.nn.Module) -> bool:
    """Tell whether the program gave DistributedDataParallel a hook that sends gradients."""
    return type(model).__name__ == "DistributedDataParallel" and bool(
        getattr(model, "_comm_hooks", None)
    )


def _finds_unused(model: torch.nn.Module) -> bool:
    """Tell whether a model is wrapped so that each forward looks for parameters without a gradient."""
    return (
        type(model).__name__ == "DistributedDataParallel"
        and getattr(model, "find_unused_parameters", False) is True
        and getattr(model, "static_graph", False) is not True
    )


def _tables_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return a model's embeddings whose gradients are dense.

    A table that is also the weight of another layer has a gradient for all rows in any case.
    """
    tables, others = [], set()
    for part in model.modules():
        weight = getattr(part, "weight", None)
        if not isinstance(weight, torch.nn.Parameter) or not weight.requires_grad:
            continue
        if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag):
            if not part.sparse:
                tables.append(part)
        else:
            others.add(id(weight))
    return [table for table in tables if id(table.weight) not in others]


def _leaves_rows_alone(gradient: torch.Tensor) -> bool:
    """Return whether most rows of a table's gradient are zero, by some of them.

    They are not where scores are computed with the table itself. A tensor of another kind, such as
    one that is sharded, would be asked by each rank alone: it says no.
    """
    if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided:
        return False
    rows = gradient.detach()[:: max(1, len(gradient) // _ROWS)]
    return 2 * int((rows != 0).any(1).sum()) <= len(rows)


def _scheduler_facts(scheduler: Any) -> dict[str, object]:
    """Return the name of a scheduler, its horizon, and its position."""
    horizon: Any = next(
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
        # a number of another type (0.5 * epochs, one of NumPy's) cannot be JSON, or is not whole
        "horizon": None if horizon is None or not 0 <= horizon < ENDLESS else int(horizon),
        "steps": int(scheduler.last_epoch),
    }
