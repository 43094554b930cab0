"""The user's model on one cached batch: forward, backward and optimizer, apart and together."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from feedline.pipelines.photos import Photo
from feedline.pipelines.probes.probe_rounds import CannotMeasure, Subject, Workload, error_reason
from feedline.pipelines.random_states import OwnRandomState
from feedline.profiler.errors import UserCodeError

_DEFAULT_SHAPE = (3, 224, 224)  # of the images where none are given: ImageNet's usual
_TRIED_IMAGES = 2  # batch norm needs two values of each channel
# what torch says on a GPU, of cuBLAS and on the CPU
_OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "can't allocate memory", "MemoryError")

_WAY_OUT = (
    ". Its forward must take one batch of images: wrap a model of other inputs, or name the "
    "--transforms that give its image size"
)


def tells_full_memory(reason: str) -> bool:
    """Tell whether an error, as ``error_reason`` writes it, is that memory is full."""
    return any(words in reason for words in _OUT_OF_MEMORY)


@dataclass(frozen=True)
class Step:
    """A training step that can run in parts.

    It has SGD with momentum at a rate of 0, so the parameters do not change.

    Attributes:
        batch: float32 [n, ...], on the model's device.
    """

    model: nn.Module
    batch: torch.Tensor
    optimizer: torch.optim.Optimizer

    @classmethod
    def of(cls, model: nn.Module, batch: torch.Tensor, device: str) -> "Step":
        """Make a step, and run it once.

        Raises:
            CannotMeasure: the model does not take such a batch, or has nothing to train.
        """
        model = model.to(device).train()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            raise CannotMeasure("the model has no parameter that requires a gradient")
        dtype = next(
            (parameter.dtype for parameter in parameters if parameter.is_floating_point()),
            torch.float32,
        )
        step = cls(
            model, batch.to(device, dtype), torch.optim.SGD(parameters, lr=0.0, momentum=0.9)
        )
        try:
            step.whole()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            shape = f"a {dtype} batch of shape {list(batch.shape)}"
            raise CannotMeasure(
                f"the model could not train on {shape}: {error_reason(error)}"
                f"{'' if tells_full_memory(error_reason(error)) else _WAY_OUT}"
            ) from error
        return step

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.batch)

    @property
    def dtype(self) -> str:
        """The data type of the batch, as text."""
        return str(self.batch.dtype).removeprefix("torch.")

    def with_samples(self, number: int) -> "Step":
        """Return the same with another batch size: samples are repeated or dropped."""
        times = -(-number // len(self.batch))
        batch = self.batch.repeat(times, *[1] * (self.batch.ndim - 1))[:number].contiguous()
        return Step(self.model, batch, self.optimizer)

    def forward(self) -> torch.Tensor:
        """Return the loss."""
        return _any_loss(self.model(self.batch))

    def whole(self) -> int:
        """Run all parts; returns the number of samples."""
        self.optimizer.zero_grad()
        self.forward().backward()
        self.optimizer.step()
        self.wait()
        return len(self)

    def wait(self) -> None:
        """Wait for the device."""
        if self.batch.is_cuda:
            torch.cuda.synchronize()

    def works(self) -> dict[str, Workload]:
        """Return the workloads ``forward``, ``backward``, ``optimizer``, and ``model``: all."""
        held: list[torch.Tensor] = []

        def forward() -> int:
            self.forward()
            self.wait()
            return len(self)

        def before_backward() -> None:
            self.optimizer.zero_grad()
            held[:] = [self.forward()]
            self.wait()

        def backward() -> int:
            held[0].backward()
            self.wait()
            return len(self)

        def before_optimizer() -> None:
            if any(group["params"][0].grad is None for group in self.optimizer.param_groups):
                self.forward().backward()
                self.wait()

        def optimizer() -> int:
            self.optimizer.step()
            self.wait()
            return len(self)

        parts = {
            "forward": Workload(forward),
            "backward": Workload(backward, before_backward),
            "optimizer": Workload(optimizer, before_optimizer),
        }
        return {"model": Workload(self.whole), **parts}


def _any_loss(output: Any) -> torch.Tensor:
    """Compute a loss for any output of a model.

    Cross entropy for logits [n, classes], else the mean square of all differentiable tensors.

    Raises:
        CannotMeasure: it has no differentiable tensor.
    """
    for name in ("loss", "logits"):
        if getattr(output, name, None) is not None:
            output = getattr(output, name)
    tensors = [
        tensor for tensor in _tensors(output) if tensor.is_floating_point() and tensor.requires_grad
    ]
    if not tensors:
        raise CannotMeasure("its output has no differentiable tensor to compute a loss from")
    if len(tensors) == 1 and tensors[0].ndim == 2:
        logits = tensors[0]
        return nn.functional.cross_entropy(
            logits, torch.arange(len(logits), device=logits.device) % logits.shape[1]
        )
    return torch.stack([tensor.float().square().mean() for tensor in tensors]).sum()


def _tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    parts = (
        output.values()
        if isinstance(output, dict)
        else output
        if isinstance(output, (list, tuple))
        else ()
    )
    return [tensor for part in parts for tensor in _tensors(part)]


def try_model(subject: Subject) -> None:
    """Run one step with few images, to tell at once of a model that cannot be probed.

    Raises:
        UserCodeError: it cannot be trained on such a batch. Full memory is none of its faults.
    """
    if subject.model is None:
        return
    few = replace(subject, batch_size=min(_TRIED_IMAGES, subject.batch_size))
    try:
        _make_step(subject.model, few)
    except Exception:
        try:  # it may be made for this number of images, or need several
            _make_step(subject.model, subject)
        except Exception as error:
            reason = error_reason(error)
            if not tells_full_memory(reason):
                raise UserCodeError(f"--model: {reason}") from error


def _make_step(model: nn.Module, subject: Subject) -> None:
    with OwnRandomState(0):
        Step.of(model, cached_batch(subject)[0], subject.device)


def cached_batch(subject: Subject) -> tuple[torch.Tensor, str]:
    """Make a batch of the user's images through their own transform.

    Without images or a transform, noise of the size that the transforms produce.

    Returns:
        float32 [batch_size, ...], and what it is made of.
    """
    if subject.transform is not None and subject.images:
        try:
            images = [_changed(subject, photo) for photo in subject.images[: subject.batch_size]]
            return _repeated(
                torch.stack(images), subject.batch_size
            ), f"{len(images)} of the user's images"
        except Exception as error:
            why = f"noise, because the images cannot be batched ({error_reason(error)})"
    else:
        why = "noise, because no dataset and transforms were given"
    size = subject.recipe.output_size if subject.recipe else None
    shape = (3, *size) if size else _DEFAULT_SHAPE
    return torch.randn(subject.batch_size, *shape, generator=torch.Generator().manual_seed(0)), why


def _changed(subject: Subject, photo: Photo) -> torch.Tensor:
    image = subject.transform(photo.decoded())
    if not isinstance(image, torch.Tensor):
        raise TypeError(f"the transforms return {type(image).__name__}, not a tensor")
    return image.float()


def _repeated(images: torch.Tensor, number: int) -> torch.Tensor:
    return images.repeat(-(-number // len(images)), *[1] * (images.ndim - 1))[:number]
