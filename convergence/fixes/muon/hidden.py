"""Selects the hidden weights: matrices (and convolutions, flattened) that are neither an embedding nor the output layer."""

from collections.abc import Iterable

from torch import Tensor, nn

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def hidden_in(model: nn.Module) -> set[Tensor]:
    """Weights that are matrices, except those of embeddings (tied ones too) and of the last layer that has one."""
    matrices: list[Tensor] = [param for module in model.modules() for param in module.parameters(recurse=False) if is_matrix(param)]
    embedded: set[Tensor] = {
        param for module in model.modules() if isinstance(module, EMBEDDINGS) for param in module.parameters(recurse=False)
    }
    return set(matrices[:-1]) - embedded


def hidden_among(params: Iterable[tuple[str, Tensor]]) -> set[Tensor]:
    """The same without a model: the last matrix is assumed to be the output layer, and names with "embed" are embeddings."""
    matrices = [(name, param) for name, param in params if is_matrix(param)]
    return {param for name, param in matrices[:-1] if "embed" not in name.lower()}


def is_matrix(param: Tensor) -> bool:
    """Of at least 2 rows (the first dimension) and 2 columns: a single row or column is a vector, with nothing to orthogonalise."""
    return param.ndim >= 2 and param.shape[0] > 1 and param.numel() > param.shape[0]
