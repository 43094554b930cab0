"""``--fix larc=LR``"""

from feedline.convergence.fixes.larc.larc import Larc
from feedline.convergence.optimizer_fix import optimizer_fix

FIX = optimizer_fix(
    "larc",
    Larc,
    keys=("wd", "momentum", "trust", "eps", "excluded"),
    says="LARS whose rate never exceeds the given one",
    control="lr_rule=linear,warmup=5ep",
)
