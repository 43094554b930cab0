"""Fixes as a callback for Lightning or transformers, imported when one is created.

They are warm-up, gradient noise and ghost batch norm.
"""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from feedline.convergence.fixes.ghost_bn import convert_ghost_batchnorm
from feedline.convergence.fixes.gradient_noise import GradientNoise
from feedline.convergence.fixes.warmup import Warmup


@dataclass(frozen=True)
class Fixes:
    """The fixes of a callback; None: not used.

    Attributes:
        warmup: length in samples of all ranks together.
        warmup_start: factor on the rate at its beginning.
        gradient_noise: standard deviation of a sample's weight.
        noise_seed: of that noise.
        ghost_bn: samples of a ghost.
    """

    warmup: int | None = None
    warmup_start: float = 0.0
    gradient_noise: float | None = None
    noise_seed: int = 0
    ghost_bn: int | None = None


class _AppliedFixes:
    """Fixes applied to one training, independent of the library that runs its loop."""

    def __init__(self, fixes: Fixes) -> None:
        """Make the noise; nothing acts before ``begin``."""
        self.fixes = fixes
        self.noise = (
            None
            if fixes.gradient_noise is None
            else GradientNoise(fixes.gradient_noise, fixes.noise_seed)
        )
        self.outputs = 0
        self.counted = 0
        self.hooks: list[Any] = []  # handles, removed by ``end``
        self._warmups: list[Warmup] = []

    def norms(self, model: nn.Module) -> None:
        """Convert the model's batch norms."""
        if self.fixes.ghost_bn is not None:
            convert_ghost_batchnorm(model, self.fixes.ghost_bn)

    def begin(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Add noise and warm-ups, continuing from their saved state.

        Those of an earlier training, which may have been interrupted, are removed first.
        """
        self.end()
        if self.noise is not None:
            self.hooks.append(model.register_forward_hook(self._output))
        if self.fixes.warmup is not None:
            self._warmups = [
                Warmup(_inside(optimizer), self.fixes.warmup, self.fixes.warmup_start)
                for optimizer in optimizers
            ]
        self._count(self.counted)

    def count(self, batch: object, ranks: int) -> None:
        """Count a batch of this rank for the next update."""
        samples = (_samples(batch) or 0) * ranks
        self.counted += samples
        self._count(samples)

    def _count(self, samples: int) -> None:
        for warmup in self._warmups:
            warmup.count(samples)

    def _output(self, model: nn.Module, _: object, output: Any) -> None:
        tensors = [
            each
            for each in (getattr(output, "logits", None), *_parts(output))
            if isinstance(each, torch.Tensor)
        ]
        tensor = next((each for each in tensors if each.ndim), None)
        if self.noise is None or tensor is None or not model.training:
            return
        self.outputs += 1
        self.noise(tensor)

    def check_outputs(self) -> None:
        """Check, after a training step, that the noise has seen an output.

        Raises:
            ValueError: it has seen none.
        """
        if self.noise is not None and not self.outputs:
            raise ValueError(
                "gradient noise saw no output of the model: the training step has to call the "
                "model itself, as in self(x)"
            )

    def end(self) -> None:
        """Remove all hooks and warm-ups."""
        for each in (*self.hooks, *self._warmups):
            each.remove()
        self.hooks, self._warmups = [], []

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers and text, which any checkpoint can store."""
        noise = (
            None
            if self.noise is None
            else bytes(self.noise.state_dict()["generator"].tolist()).hex()
        )
        return {"counted": self.counted, "noise": noise}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.counted = int(state["counted"])
        if self.noise is not None and state["noise"] is not None:
            self.noise.load_state_dict(
                {"generator": torch.tensor(list(bytes.fromhex(state["noise"])), dtype=torch.uint8)}
            )


def _inside(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer inside accelerate's wrapper, which has no step hooks."""
    return (
        _inside(optimizer.optimizer)
        if isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer)
        else optimizer
    )


def _parts(batch: object) -> Iterable[Any]:
    if isinstance(batch, Mapping):
        return batch.values()
    return batch if isinstance(batch, list | tuple) else (batch,)


def _samples(batch: object) -> int | None:
    """Return the length of the first tensor in a batch."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.ndim else None
    if not isinstance(batch, Mapping | list | tuple):
        return None
    return next((samples for samples in map(_samples, _parts(batch)) if samples is not None), None)


def lightning_callback(**fixes: Any) -> Any:
    """Make a callback for ``Trainer(callbacks=[...])`` of Lightning.

    Noise is added to the output of the LightningModule's own forward, so ``training_step`` has to
    call ``self(x)``. The state goes into Lightning's checkpoints.
    """
    name = next(
        (name for name in ("lightning.pytorch", "pytorch_lightning") if name in sys.modules), None
    )
    library: Any = importlib.import_module(
        name or _first_installed("lightning.pytorch", "pytorch_lightning")
    )

    class FeedlineFixes(library.Callback):
        def __init__(self) -> None:
            self.applied = _AppliedFixes(Fixes(**fixes))

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            if stage == "fit":
                self.applied.norms(pl_module)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.applied.begin(pl_module, trainer.optimizers)

        def on_train_batch_start(
            self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
        ) -> None:
            self.applied.count(batch, trainer.world_size)

        def on_train_batch_end(self, *_: Any) -> None:
            self.applied.check_outputs()

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            self.applied.end()

        def state_dict(self) -> dict[str, Any]:
            return self.applied.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.applied.load_state_dict(state_dict)

    return FeedlineFixes()


def transformers_callback(**fixes: Any) -> Any:
    """Make a callback for ``Trainer(callbacks=[...])`` of transformers.

    The state goes into the Trainer's checkpoints; with
    ``restore_callback_states_from_checkpoint=True`` among the training's arguments it comes back.
    """
    library: Any = importlib.import_module("transformers.trainer_callback")
    # the Trainer ends no training that raises, and may go on with a copy of the callback
    begun: list[_AppliedFixes] = []

    class FeedlineFixes(library.TrainerCallback, library.ExportableState):
        def __init__(self, **given: Any) -> None:
            self.applied = _AppliedFixes(Fixes(**given))
            self.resumed: dict[str, Any] | None = None

        def on_train_begin(
            self,
            args: Any,
            state: Any,
            control: Any,
            model: Any = None,
            optimizer: Any = None,
            **_: Any,
        ) -> None:
            while begun:
                begun.pop().end()
            if self.resumed is not None:
                self.applied.load_state_dict(self.resumed)
                self.resumed = None
            elif state.global_step:
                warnings.warn(
                    "resumed without the state of the fixes: set "
                    "restore_callback_states_from_checkpoint=True",
                    stacklevel=2,
                )
            self.applied.norms(model)
            self.applied.begin(model, [optimizer])
            begun.append(self.applied)
            self.applied.hooks.append(
                model.register_forward_pre_hook(self._count(args.world_size), with_kwargs=True)
            )

        def _count(self, ranks: int) -> Any:
            def count(model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
                if model.training and torch.is_grad_enabled():
                    self.applied.count((*inputs, named), ranks)

            return count

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.applied.check_outputs()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.applied.end()

        def state(self) -> dict[str, Any]:
            return {
                "args": asdict(self.applied.fixes),
                "attributes": {"resumed": self.applied.state_dict()},
            }

    return FeedlineFixes(**fixes)


def _first_installed(*names: str) -> str:
    return next(
        (name for name in names if importlib.util.find_spec(name.partition(".")[0]) is not None),
        names[-1],
    )
