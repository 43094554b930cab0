"""The arms of the table: one change each, and the control of equal budget that it has to beat.

Batch 32 stands for one GPU, batch 256 for eight. Rates of arms with an optimizer other than SGD,
their warm-up and weight decay were tuned on seeds 100 to 102; no seed of the table was seen in
tuning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from acceptance.model import Norm

SMALL, LARGE = 32, 256
EPOCHS = 12
RATE = 0.08  # of SGD, tuned at the small batch
SGD_DECAY = 5e-4
REFERENCE = "L"  # the small batch with the same model: what a larger batch would have to reach


@dataclass(frozen=True)
class Arm:
    """The settings of a training, except its seed.

    Attributes:
        letter: as in the results; stable.
        name: what it is, or what it adds to its control.
        control: letter of the arm that it is compared with first; "": none.
        also: others that it is compared with.
        norm: after each convolution.
        batch: samples of an update.
        epochs: passes over the data.
        optimizer: a name of optimizers.OPTIMIZERS.
        rate: learning rate, before the rule.
        rule: how the rate grows with the batch: "" (not at all), "linear" or "sqrt".
        warmup: epochs from the base rate to the scaled one; from 0 where there is no rule.
        settings: further arguments of the optimizer.
        noise: standard deviation of the factor on each sample's loss; 0: none.
        core: is in the table unless arms are named.
    """

    letter: str
    name: str
    control: str = ""
    also: tuple[str, ...] = ()
    norm: Norm = "batch"
    batch: int = LARGE
    epochs: int = EPOCHS
    optimizer: str = "sgd"
    rate: float = RATE
    rule: str = ""
    warmup: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=lambda: {"weight_decay": SGD_DECAY})
    noise: float = 0.0
    core: bool = True


def _layerwise(
    letter: str, name: str, optimizer: str, rate: float, weight_decay: float, **more: Any
) -> Arm:
    """An arm with another optimizer than SGD, two epochs of warm-up, compared with scaled and
    warmed-up SGD.
    """
    settings: dict[str, Any] = {"weight_decay": weight_decay, **more}
    return Arm(letter, name, "E", optimizer=optimizer, rate=rate, warmup=2, settings=settings)


def _variant(of: Arm, letter: str, name: str, control: str, **changes: Any) -> Arm:
    return replace(
        of, letter=letter, name=name, control=control, **{"also": (), "core": False, **changes}
    )


_E = Arm("E", "D + 5 epochs of warm-up", "C", ("D",), rule="linear", warmup=5)
_G = _layerwise("G", "C + LARC", "larc", 0.5, SGD_DECAY, trust_coefficient=0.02)
_H = replace(_layerwise("H", "C + LAMB", "lamb", 0.04, 0.01), control="J", also=("E",))
_I = _layerwise("I", "C + NovoGrad (.8, .5)", "novograd", 0.2, 1e-3, betas=(0.8, 0.5))
_J = _layerwise("J", "C + AdamW", "adamw", 0.06, 0.01)
_K = _layerwise("K", "C + Muon", "muon", 0.12, 0.01)
_B = Arm("B", "batch 256, nothing changed", "A", norm="none")

ARMS: tuple[Arm, ...] = (
    Arm("A", "batch 32", norm="none", batch=SMALL),
    _B,
    Arm("C", "B + batch norm", "B"),
    Arm("C2", "B + ghost batch norm (32)", "C", ("B",), norm="ghost"),
    Arm("D", "C + rate x 8 (linear)", "C", rule="linear"),
    _E,
    _variant(_E, "E2", "C2 + rate x 8 + warm-up", "E", also=("C2",), norm="ghost"),
    _variant(_E, "E3", "C + rate x 2.83 (sqrt) + warm-up", "E", rule="sqrt", core=True),
    _layerwise("F", "C + LARS", "lars", 3.0, SGD_DECAY, trust_coefficient=0.01),
    _G,
    _H,
    _variant(
        _I,
        "I0",
        "C + NovoGrad (.95, .98)",
        "E",
        rate=0.05,
        settings={"weight_decay": 0.01, "betas": (0.95, 0.98)},
    ),
    _I,
    _J,
    _K,
    Arm("L", "A + batch norm", "A", batch=SMALL),
    _variant(_B, "M", "B + rate x 8 (linear)", "B", rule="linear"),
    _variant(_B, "M2", "M + 5 epochs of warm-up", "B", also=("M",), rule="linear", warmup=5),
    _variant(_H, "N", "B + LAMB", "N3", also=("B",), norm="none", rate=0.06),
    _variant(_G, "N2", "B + LARC", "B", norm="none", rate=1.0),
    _variant(_J, "N3", "B + AdamW", "B", norm="none"),
    _variant(_K, "N4", "B + Muon", "N3", also=("B",), norm="none"),
    _variant(_E, "O", "E + gradient noise .5", "E", noise=0.5),
    _variant(_E, "O2", "E + gradient noise 1", "E", noise=1.0),
    _variant(_B, "P", "B, 8 x the epochs", "B", also=("A",), epochs=8 * EPOCHS),
)
BY_LETTER = {arm.letter: arm for arm in ARMS}
