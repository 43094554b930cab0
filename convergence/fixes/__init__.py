"""The fixes: a module each (a package where one does not hold it), with a function or class and its ``FIX``; docs/fixes has their pages."""

from feedline.convergence.fix import Fix
from feedline.convergence.fixes import (
    adamw,
    batch_growth,
    ghost_bn,
    gradient_noise,
    lamb,
    larc,
    lars,
    local_sgd,
    longer,
    lr_rule,
    muon,
    novograd,
    recalibrate_bn,
    soap,
    warmup,
)

FIXES: list[Fix] = [
    lr_rule.FIX,
    warmup.FIX,
    longer.FIX,
    ghost_bn.FIX,
    recalibrate_bn.FIX,
    gradient_noise.FIX,
    batch_growth.FIX,
    local_sgd.FIX,
    lars.FIX,
    larc.FIX,
    lamb.FIX,
    novograd.FIX,
    muon.FIX,
    soap.FIX,
    adamw.FIX,
]  # cheapest first
