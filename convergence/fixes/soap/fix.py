"""``--fix soap=LR``"""

from feedline.convergence.fixes.soap.soap import soap
from feedline.convergence.optimizer_fix import optimizer_fix

FIX = optimizer_fix(
    "soap",
    soap,
    keys=("wd", "beta1", "beta2", "eps", "every"),
    says="Adam in the eigenbasis of each layer's gradient covariance",
    control="adamw={lr}",
    betas=(0.95, 0.95),
)
