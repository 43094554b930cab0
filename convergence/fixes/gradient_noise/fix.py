"""Gradient noise as ``--fix gradient_noise=VALUE``."""

from dataclasses import dataclass

from feedline.convergence.fix import Fix, Training
from feedline.convergence.fixes.gradient_noise.noise import GradientNoise
from feedline.convergence.value import Value, number

VALUE = "0.5 (standard deviation of a sample's weight), 0.5:seed=1"


@dataclass(frozen=True)
class Setting:
    sigma: float
    seed: int


def parse(text: str) -> Setting:
    value = Value.of(text, VALUE, ("seed",))
    sigma = number(value.words[0] if len(value.words) == 1 else "", VALUE)
    if sigma <= 0:
        raise ValueError(f"{text!r} is not a noise level: expected {VALUE}")
    return Setting(sigma, int(value.options.get("seed", 0)))


def lines(setting: Setting) -> str:
    seed = f", seed={setting.seed}" if setting.seed else ""
    return (
        "from feedline.convergence.fixes.gradient_noise import GradientNoise\n\n"
        f"noise = GradientNoise({setting.sigma:g}{seed})\n"
        "# in the loop:\n"
        "output = noise(model(inputs))"
    )


def attach(setting: Setting, training: Training) -> None:
    training.output(GradientNoise(setting.sigma, setting.seed))


FIX = Fix(
    name="gradient_noise",
    value=VALUE,
    says="each sample's gradient times a random weight around 1, which puts the noise of a small batch into a large one",
    control="",
    parse=parse,
    lines=lines,
    attach=attach,
)
