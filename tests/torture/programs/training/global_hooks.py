"""The user's own global hooks on all modules and optimizers see the same calls with feedline, in
the same order.
"""

import torch
from tiny import digest, loader, network, sgd, step
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

calls = []
modules.register_module_forward_pre_hook(
    lambda module, args: calls.append(f"pre {type(module).__name__}")
)
modules.register_module_forward_hook(
    lambda module, args, output: calls.append(f"post {type(module).__name__}")
)
modules.register_module_full_backward_hook(
    lambda module, before, after: calls.append(f"back {type(module).__name__}")
)
optimizers.register_optimizer_step_pre_hook(
    lambda optimizer, args, kwargs: calls.append("before step")
)
optimizers.register_optimizer_step_post_hook(
    lambda optimizer, args, kwargs: calls.append("after step")
)
net = network()
optimizer = sgd(net)
for x in loader():
    step(net, optimizer, x)
assert isinstance(net, torch.nn.Sequential)
print(len(calls), calls[:20])
digest(net)
