"""NovoGrad: each layer's gradient divided by its own running norm, before the momentum."""

from feedline.convergence.fixes.novograd.fix import FIX
from feedline.convergence.fixes.novograd.novograd import NovoGrad

__all__ = ["FIX", "NovoGrad"]
