"""``--fix novograd=LR``"""

from feedline.convergence.fixes.novograd.novograd import NovoGrad
from feedline.convergence.optimizer_fix import optimizer_fix

FIX = optimizer_fix(
    "novograd",
    NovoGrad,
    keys=("wd", "beta1", "beta2", "eps", "excluded"),
    says="momentum over gradients that are divided, layer by layer, by their running norm",
    control="lr_rule=linear,warmup=5ep",
    betas=(0.8, 0.5),
)
