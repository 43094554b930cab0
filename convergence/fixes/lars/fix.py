"""``--fix lars=LR``"""

from feedline.convergence.fixes.lars.lars import Lars
from feedline.convergence.optimizer_fix import optimizer_fix

FIX = optimizer_fix(
    "lars",
    Lars,
    keys=("wd", "momentum", "trust", "excluded"),
    says="SGD whose rate follows, layer by layer, the norm of the weights over that of the gradient",
    control="lr_rule=linear,warmup=5ep",
)
