"""``--fix muon=LR``"""

from dataclasses import replace
from typing import Any

from torch import nn

from feedline.convergence.fix import Training
from feedline.convergence.fixes.muon.muon import MuonWithAdamW, muon
from feedline.convergence.optimizer_fix import Setting, groups_at, optimizer_fix


def attach(setting: Setting, training: Training) -> None:
    """The optimizer is made from tensors; once the model is seen, its modules say which are embeddings and the output layer."""
    made: list[MuonWithAdamW] = []

    def make(_: type, params: Any, arguments: dict[str, Any]) -> MuonWithAdamW:
        made.append(muon(groups_at(params, arguments, setting.lr), lr=setting.lr, **setting.arguments))
        return made[-1]

    def choose(model: nn.Module) -> None:
        for optimizer in made:
            optimizer.choose(model)

    training.optimizer(make)
    training.model(choose)


FIX = replace(
    optimizer_fix(
        "muon",
        muon,
        keys=("wd", "momentum", "rest", "beta1", "beta2", "eps"),
        says="hidden weight matrices by orthogonalised momentum (Muon), the rest by AdamW",
        control="lr_rule=linear,warmup=5ep",
        params="model",
    ),
    attach=attach,
)
