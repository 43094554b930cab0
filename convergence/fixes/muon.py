"""Muon, with AdamW for all other weights.

Jordan et al. 2024, kellerjordan.github.io/posts/muon; torch.optim.Muon.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from feedline.convergence.fix import (
    NothingToChange,
    OptimizerSetting,
    TrainingHooks,
    at_most_one_dimension,
    groups_at_rate,
    optimizer_fix,
)
from feedline.profiler.errors import MissingDependency

__all__ = ["FIX", "MuonWithAdamW", "muon"]


_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def muon(params: Any, lr: float, rest_lr: float | None = None, **more: Any) -> "MuonWithAdamW":
    """Make Muon for the hidden weights of a model and AdamW for all others.

    These are its embeddings, its output layer, biases and normalisation weights.

    Args:
        params: best a model; also (name, tensor) pairs, tensors or groups, among which the last
            matrix is taken for the output layer.
        lr: of Muon.
        rest_lr: of AdamW; None: the same. A scheduler changes both in proportion.
        **more: as for ``MuonWithAdamW``.

    Raises:
        MissingDependency: torch is older than 2.9 and has no Muon.
    """
    optimizer = MuonWithAdamW(
        params.named_parameters() if isinstance(params, nn.Module) else params, lr, rest_lr, **more
    )
    if isinstance(params, nn.Module):
        optimizer.choose(params)
    return optimizer


class MuonWithAdamW(torch.optim.Optimizer):
    """torch's Muon and AdamW behind one set of parameter groups, one state and one ``step``.

    A convolution's weight goes to Muon as a matrix, one row for each output channel. The key
    ``"hidden"`` of a group says for each of its parameters whether it goes to Muon.

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: of Muon.
        rest_lr: of AdamW; None: the same.
        momentum: of Muon.
        weight_decay: decoupled, for both, but not on tensors of at most one dimension.
        betas: of AdamW.
        eps: of AdamW.
        adjust_lr_fn: of Muon. "match_rms_adamw" (Liu et al. 2025, arXiv 2502.16982) lets it take a
            rate that suits AdamW.

    Raises:
        MissingDependency: torch is older than 2.9 and has no Muon.
        ValueError: a number is out of its range.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        rest_lr: float | None = None,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adjust_lr_fn: str = "match_rms_adamw",
    ) -> None:
        """Make both optimizers, and guess from names which weights are hidden."""
        if not hasattr(torch.optim, "Muon"):
            raise MissingDependency(
                f"Muon needs torch 2.9 or later, this is {torch.__version__}: pip install -U torch"
            )
        if rest_lr is not None and not lr > 0:
            raise ValueError(
                f"rest_lr is kept as a multiple of lr, which must be above 0, not {lr}"
            )
        self._make_engines(lr, weight_decay, momentum, adjust_lr_fn, betas, eps)
        scale = 1.0 if rest_lr is None else rest_lr / lr
        numbers = {
            "momentum": momentum,
            "weight_decay": weight_decay,
            "betas": betas,
            "eps": eps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, {"lr": lr, "rest_lr_scale": scale, **numbers})
        self._choose(_hidden_among(self._named()))

    def _make_engines(
        self,
        lr: Any,
        decay: float,
        momentum: float,
        adjust: str,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        self._muon = torch.optim.Muon([torch.zeros(1, 1)], lr, decay, momentum, adjust_lr_fn=adjust)
        self._adamw = torch.optim.AdamW([torch.zeros(1)], lr, betas, eps, decay)

    def _named(self) -> list[Any]:
        names = [
            name
            for group in self.param_groups
            for name in group.get("param_names", [""] * len(group["params"]))
        ]
        return list(zip(names, (param for group in self.param_groups for param in group["params"])))

    def choose(self, model: nn.Module) -> None:
        """Determine from the model's modules which of its weights are hidden.

        A weight that was updated keeps its optimizer, whose state it has. If the optimizer has
        matrices of other models, too, the last one of all stays the output layer.
        """
        own, embedded = set(_params_of(model)), _embedded_in(model)
        matrices = {param for _, param in self._named() if _is_matrix(param)}
        hidden = _hidden_in(model) if matrices <= own else None
        for group in self.param_groups:
            group["hidden"] = [
                at_muon
                if param not in own or param in self.state
                else (at_muon and param not in embedded if hidden is None else param in hidden)
                for param, at_muon in zip(group["params"], _at_muon(group))
            ]

    def _choose(self, hidden: set[Tensor]) -> None:
        for group in self.param_groups:
            group["hidden"] = [param in hidden for param in group["params"]]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state; a copy or an unpickled one makes both optimizers again."""
        super().__setstate__(state)
        if "_muon" not in self.__dict__:  # a copy or an unpickled one
            names = ("lr", "weight_decay", "momentum", "adjust_lr_fn", "betas", "eps")
            self._make_engines(*(self.defaults[name] for name in names))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Args:
            closure: recomputes the loss and returns it.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            trained = [
                (param, at_muon)
                for param, at_muon in zip(group["params"], _at_muon(group))
                if param.grad is not None
            ]
            self._orthogonal([param for param, at_muon in trained if at_muon], group)
            self._adaptive([param for param, at_muon in trained if not at_muon], group)
        return loss

    def _orthogonal(self, params: list[Any], group: dict[str, Any]) -> None:
        matrices = [_matrix(param) for param in params]
        state = {matrix: self.state[param] for param, matrix in zip(params, matrices)}
        _advance(self._muon, state, {**self._muon.defaults, **group, "params": matrices})
        for param, matrix in zip(params, matrices):
            if not param.is_contiguous():  # its matrix is a copy
                param.copy_(matrix.view(param.shape))

    def _adaptive(self, params: list[Any], group: dict[str, Any]) -> None:
        rate = {**self._adamw.defaults, **group, "lr": group["lr"] * group["rest_lr_scale"]}
        small = [param for param in params if at_most_one_dimension(param)]
        large = [param for param in params if not at_most_one_dimension(param)]
        for members, decay in ((large, group["weight_decay"]), (small, 0.0)):
            _advance(
                self._adamw,
                {param: self.state[param] for param in members},
                {**rate, "params": members, "weight_decay": decay},
            )


def _matrix(param: Tensor) -> Tensor:
    """Return the parameter and its gradient as a matrix, one row for each of its first dimension.

    It is the same memory if the parameter is contiguous.
    """
    matrix = param.detach().flatten(1)
    assert param.grad is not None
    matrix.grad = param.grad.flatten(1)
    return matrix


def _advance(
    engine: torch.optim.Optimizer, state: dict[Tensor, Any], group: dict[str, Any]
) -> None:
    """Make one step without the hooks of torch.optim.

    Whoever counts steps by them would count this one twice.
    """
    if group["params"]:
        engine.state, engine.param_groups = defaultdict(dict, state), [group]
        inspect.unwrap(type(engine).step)(engine)


def _at_muon(group: dict[str, Any]) -> list[bool]:
    """Tell for each parameter of a group whether it goes to Muon."""
    return group.get("hidden") or [_is_matrix(param) for param in group["params"]]


def _params_of(model: nn.Module) -> list[Tensor]:
    return [param for module in model.modules() for param in module.parameters(recurse=False)]


def _hidden_in(model: nn.Module) -> set[Tensor]:
    """Return the weights that are matrices, except embeddings and the last layer with one.

    Tied embeddings are left out too.
    """
    matrices = [param for param in _params_of(model) if _is_matrix(param)]
    return set(matrices[:-1]) - _embedded_in(model)


def _embedded_in(model: nn.Module) -> set[Tensor]:
    """Return the weights of embeddings."""
    return {
        param
        for module in model.modules()
        if isinstance(module, _EMBEDDINGS)
        for param in module.parameters(recurse=False)
    }


def _hidden_among(params: Iterable[tuple[str, Tensor]]) -> set[Tensor]:
    """Guess the hidden weights without a model.

    The last matrix is assumed to be the output layer, and names with "embed" are embeddings.
    """
    matrices = [(name, param) for name, param in params if _is_matrix(param)]
    return {param for name, param in matrices[:-1] if "embed" not in name.lower()}


def _is_matrix(param: Tensor) -> bool:
    """Tell whether it has at least 2 rows (the first dimension) and 2 columns.

    A single row or column is a vector, with nothing to orthogonalise.
    """
    return param.ndim >= 2 and param.shape[0] > 1 and param.numel() > param.shape[0]


def _attach(setting: OptimizerSetting, training: TrainingHooks) -> None:
    """Make the optimizer from tensors; the model's modules then say which are hidden."""
    optimizers: list[MuonWithAdamW] = []

    def make(_: type, params: Any, arguments: dict[str, Any]) -> MuonWithAdamW:
        optimizers.append(
            muon(groups_at_rate(params, arguments, setting.lr), lr=setting.lr, **setting.arguments)
        )
        return optimizers[-1]

    def choose(model: nn.Module) -> None:
        if not optimizers:
            raise NothingToChange(
                "no SGD, Adam or AdamW of torch.optim was made before the model was called"
            )
        for optimizer in optimizers:
            optimizer.choose(model)

    training.optimizer(make)
    training.model(choose)


FIX = replace(
    optimizer_fix(
        "muon",
        muon,
        keys=("wd", "momentum", "rest", "beta1", "beta2", "eps"),
        summary="hidden weight matrices by orthogonalized momentum (Muon), the rest by AdamW",
        control="lr_rule=linear,warmup=5ep",
        params="model",
    ),
    attach=_attach,
)
