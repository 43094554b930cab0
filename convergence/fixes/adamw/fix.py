"""``--fix adamw=LR``"""

from feedline.convergence.fixes.adamw.adamw import adamw
from feedline.convergence.optimizer_fix import optimizer_fix

FIX = optimizer_fix(
    "adamw",
    adamw,
    keys=("wd", "beta1", "beta2", "eps"),
    says="torch's AdamW, without decay of biases and normalisation weights: the control of lamb and soap",
    control="lr_rule=linear,warmup=5ep",
)
