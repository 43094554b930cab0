"""``--fix lamb=LR``"""

from feedline.convergence.fixes.lamb.lamb import Lamb
from feedline.convergence.optimizer_fix import optimizer_fix

FIX = optimizer_fix(
    "lamb",
    Lamb,
    keys=("wd", "beta1", "beta2", "eps", "excluded"),
    says="Adam whose step is, layer by layer, as long as the weights' norm says",
    control="adamw={lr}",
)
