"""Where public implementations of LARS, LAMB and NovoGrad leave their papers. From the folder
tests:

python -m optimizers.differences > ../docs/measured/optimizer-differences.md

Each library's optimizer gets, before every step, the weights that the paper's transcription has,
and the gradients there; so a figure is the difference of that one step, |step - paper's| /
|paper's|, the largest over the tensors, and not what grew out of earlier ones.
"""

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytorch_optimizer
import timm.optim
import torch
import torch_optimizer
from optimizers import paper
from optimizers.problems import made
from torch import Tensor, nn

from feedline.convergence.fixes.lamb import Lamb
from feedline.convergence.fixes.lars import Lars
from feedline.convergence.fixes.novograd import NovoGrad

LR, SMALL = 0.02, 1e-6  # what is less than SMALL is rounding, or the eps that some add to a norm
CONSTANT, WARM_UP = [1.0] * 10, [0.1 * step for step in range(1, 11)]
Make = Callable[..., torch.optim.Optimizer]


@dataclass(frozen=True)
class Entry:
    """One row of the table, twice: without and with weight decay.

    Attributes:
        step: the paper's.
        shared: settings of the paper that the library gets too.
        names: the library's own names of them, where they differ.
        more: its further settings.
    """

    library: str
    made: Make
    step: paper.Step
    shared: dict[str, Any]
    names: dict[str, str]
    more: dict[str, Any]

    def optimizer(
        self, params: list[nn.Parameter], lr: float, decay: float
    ) -> torch.optim.Optimizer:
        given = {self.names.get(name, name): value for name, value in self.shared.items()}
        return self.made(params, lr=lr, weight_decay=decay, **given, **self.more)

    def row(self, decay: float) -> list[str]:
        short, long = [0.3 * made(6, 4, seed=1), 0.3 * made(3, 6, seed=2)], [made(20, 20, seed=3)]
        with_it = {"decay": decay}
        return [
            ", ".join([self.library, *(f"`{name}={value}`" for name, value in self.more.items())]),
            f"{decay:g}",
            shown(self.furthest(short, CONSTANT[:1], **with_it)),
            shown(self.furthest(short, CONSTANT, **with_it)),
            shown(self.furthest(short, WARM_UP, **with_it)),
            shown(self.furthest(long, CONSTANT[:1], **with_it)),
            self.vectors(decay),
            "yes" if self.changes_gradient(decay) else "no",
        ]

    def furthest(
        self, start: list[Tensor], rates: Sequence[float], decay: float, adapted: bool = True
    ) -> float:
        weights, memory, worst = start, [{} for _ in start], 0.0
        params = [nn.Parameter(weight.clone()) for weight in start]
        optimizer = self.optimizer(params, LR * rates[0], decay)
        for number, rate in enumerate(rates):
            grads = [(1 + number) * made(*weight.shape, seed=20 + number) for weight in weights]
            optimizer.param_groups[0]["lr"] = LR * rate
            after = [
                self.step(
                    w,
                    g,
                    seen,
                    LR * rate,
                    adapted,
                    weight_decay=decay,
                    excluded_lr_scale=1.0,
                    **self.shared,
                )
                for w, g, seen in zip(weights, grads, memory)
            ]
            for param, weight, grad in zip(params, weights, grads):
                param.data.copy_(weight)
                param.grad = grad.clone()
            optimizer.step()
            for param, weight, asked in zip(params, weights, after):
                worst = max(worst, float((param.detach() - asked).norm() / (asked - weight).norm()))
            weights = after
        return worst

    def vectors(self, decay: float) -> str:
        """What becomes of a tensor of one dimension."""
        excluded = self.furthest([made(5, seed=5)], CONSTANT[:1], decay, adapted=False) < SMALL
        if self._same_as_matrix(decay):
            return "no difference" if excluded else "as matrices"
        return "excluded" if excluded else "otherwise"

    def _same_as_matrix(self, decay: float) -> bool:
        moved = []
        for shape in ((5,), (5, 1)):
            param = nn.Parameter(made(5, seed=5).reshape(shape).clone())
            param.grad = made(5, seed=6).reshape(shape).clone()
            self.optimizer([param], LR, decay).step()
            moved.append(param.detach().flatten())
        return bool(torch.allclose(*moved, rtol=1e-9, atol=0))

    def changes_gradient(self, decay: float) -> bool:
        param = nn.Parameter(made(6, 4, seed=1))
        param.grad = made(6, 4, seed=2)
        before = param.grad.clone()
        self.optimizer([param], LR, decay).step()
        return not torch.equal(param.grad, before)


def shown(difference: float) -> str:
    return (
        "0"
        if difference < SMALL
        else f"{difference:.2g}"
        if difference < 10
        else f"{difference:.0f}"
    )


TRUST: dict[str, Any] = {"trust_coefficient": 0.02, "momentum": 0.9}
ADAM: dict[str, Any] = {"betas": (0.9, 0.999), "eps": 1e-6}
NOVO: dict[str, Any] = {"betas": (0.95, 0.98), "eps": 1e-8}
TIMM_TRUST = {"trust_coefficient": "trust_coeff"}

ENTRIES = {
    "LARS": [
        Entry("feedline", Lars, paper.lars, TRUST, {}, {"excluded_lr_scale": 1.0}),
        Entry("pytorch_optimizer", pytorch_optimizer.LARS, paper.lars, TRUST, {}, {}),
        Entry("torch_optimizer", torch_optimizer.LARS, paper.lars, TRUST, {}, {}),
        Entry("timm", timm.optim.Lars, paper.lars, TRUST, TIMM_TRUST, {}),
        Entry("timm", timm.optim.Lars, paper.lars, TRUST, TIMM_TRUST, {"always_adapt": True}),
    ],
    "LAMB": [
        Entry("feedline", Lamb, paper.lamb, ADAM, {}, {}),
        Entry("pytorch_optimizer", pytorch_optimizer.Lamb, paper.lamb, ADAM, {}, {}),
        Entry(
            "pytorch_optimizer",
            pytorch_optimizer.Lamb,
            paper.lamb,
            ADAM,
            {},
            {"weight_decouple": False, "adam_debias": True},
        ),
        Entry("torch_optimizer", torch_optimizer.Lamb, paper.lamb, ADAM, {}, {}),
        Entry("torch_optimizer", torch_optimizer.Lamb, paper.lamb, ADAM, {}, {"debias": True}),
        Entry("timm", timm.optim.Lamb, paper.lamb, ADAM, {}, {}),
        Entry(
            "timm",
            timm.optim.Lamb,
            paper.lamb,
            ADAM,
            {},
            {"always_adapt": True, "max_grad_norm": None},
        ),
    ],
    "NovoGrad": [
        Entry("feedline", NovoGrad, paper.novograd, NOVO, {}, {}),
        Entry("pytorch_optimizer", pytorch_optimizer.NovoGrad, paper.novograd, NOVO, {}, {}),
        Entry("torch_optimizer", torch_optimizer.NovoGrad, paper.novograd, NOVO, {}, {}),
        Entry("timm", timm.optim.NvNovoGrad, paper.novograd, NOVO, {}, {}),
    ],
}
HEAD = [
    "library",
    "weight decay",
    "step 1",
    "10 steps",
    "10 steps of warm-up",
    "step 1, norm above 10",
    "vectors",
    "changes `p.grad`",
]
TEXT = """\
# Where public optimizers differ from their papers

    cd tests && python -m optimizers.differences > ../docs/measured/optimizer-differences.md

Same weights, same gradients, one step: the largest |step - paper's| / |paper's| over the tensors, in float64; 0 means below 1e-6. A test
regenerates this page and compares. The papers: LARS arXiv 1708.03888, LAMB 1904.00962 (algorithm 2, with its bias corrections),
NovoGrad 1905.11286 (algorithm 1). Each library uses its own defaults, except for the rate, the decay and the settings that the paper names.

- step 1, 10 steps: at a constant rate, matrices of norm below 10. 10 steps of warm-up: the rate grows with each step.
- norm above 10: a matrix of 20 x 20.
- vectors: how a tensor of one dimension is treated, which the papers leave open. "excluded": no trust ratio, no weight decay;
  "no difference": a matrix would have neither here.
"""


def page() -> str:
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("pytorch_optimizer", "torch_optimizer", "timm")
    )
    parts = [TEXT, f"Versions: {versions}.\n"]
    for paper_name, entries in ENTRIES.items():
        rows = [
            HEAD,
            ["---"] * len(HEAD),
            *(entry.row(decay) for entry in entries for decay in (0.0, 0.1)),
        ]
        parts.append(
            "\n".join([f"## {paper_name}\n", *("| " + " | ".join(row) + " |" for row in rows)])
            + "\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
