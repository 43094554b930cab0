"""Multiplicative noise: each sample's gradient times 1 + sigma z, z normal.

Hoffer, Hubara, Soudry 2017, arXiv 1705.08741, section 4.
"""

import math
from dataclasses import dataclass

import torch

from feedline.convergence.fix import Fix, FixValue, TrainingHooks

__all__ = ["FIX", "GradientNoise"]


_VALUE = "0.5 (standard deviation of a sample's weight), 0.5:seed=1"


class GradientNoise:
    """Multiplies the gradient that comes back into each sample's row of an output.

    ::

        noise = GradientNoise(0.5)
        for images, labels in loader:
            loss(noise(model(images)), labels).backward()

    For a loss that is a mean or a sum over samples that is the gradient of the loss with sample i
    weighted by ``1 + sigma * z[i]``. The loss itself does not change.

    The numbers are drawn on the CPU from a generator of its own: torch's random states stay what
    they are, and the noise is the same on every device.

    Args:
        sigma: standard deviation of a weight, at least 0. To give a batch k times larger the noise
            of the small one, about sqrt(k - 1).
        seed: of the noise. To it the rank is added, so that no two ranks draw the same.

    Raises:
        ValueError: a sigma that cannot be one.
    """

    def __init__(self, sigma: float, seed: int = 0) -> None:
        """Check sigma; the generator is made when it is first needed."""
        if not 0 <= sigma < math.inf:
            raise ValueError(f"the noise cannot have a standard deviation of {sigma}")
        self.sigma, self.seed = sigma, seed
        self._generator: torch.Generator | None = None

    @property
    def generator(self) -> torch.Generator:
        """The generator of this rank, made on first use: only then is the rank known."""
        if self._generator is None:
            ranked = torch.distributed.is_available() and torch.distributed.is_initialized()
            self._generator = torch.Generator().manual_seed(
                self.seed + (torch.distributed.get_rank() if ranked else 0)
            )
        return self._generator

    def __call__(self, output: torch.Tensor) -> torch.Tensor:
        """Put the noise on the gradient that will come back into an output.

        Without a gradient to come, nothing is drawn.

        Args:
            output: [samples, ...].

        Returns:
            The output itself.

        Raises:
            ValueError: an output without a dimension of samples.
        """
        if output.ndim == 0:
            raise ValueError(
                "noise for each sample needs an output with a first dimension of samples, and "
                "this one is a single number"
            )
        if not (self.sigma and output.requires_grad and torch.is_grad_enabled()):
            return output
        weights = 1 + self.sigma * torch.randn(len(output), generator=self.generator)
        weights = weights.to(output.device, output.dtype).view(-1, *[1] * (output.ndim - 1))
        output.register_hook(lambda grad: grad * weights)
        return output

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the state of this rank's generator."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from a saved state."""
        self.generator.set_state(state["generator"].cpu())


@dataclass(frozen=True)
class _NoiseSetting:
    sigma: float
    seed: int


def _parse(text: str) -> _NoiseSetting:
    value = FixValue.of(text, _VALUE, ("seed",))
    sigma = FixValue.number(value.words[0] if len(value.words) == 1 else "", _VALUE)
    if sigma <= 0:
        raise ValueError(f"{text!r} is not a noise level: expected {_VALUE}")
    return _NoiseSetting(sigma, int(value.options.get("seed", 0)))


def _lines(setting: _NoiseSetting) -> str:
    seed = f", seed={setting.seed}" if setting.seed else ""
    return (
        "from feedline.convergence.fixes.gradient_noise import GradientNoise\n\n"
        f"noise = GradientNoise({setting.sigma:g}{seed})\n"
        "# in the loop:\n"
        "output = noise(model(inputs))"
    )


def _attach(setting: _NoiseSetting, training: TrainingHooks) -> None:
    training.output(GradientNoise(setting.sigma, setting.seed))


FIX = Fix(
    name="gradient_noise",
    value=_VALUE,
    summary="each sample's gradient times a random weight around 1, which puts the noise of a "
    "small batch into a large one",
    parse=_parse,
    lines=_lines,
    attach=_attach,
)
