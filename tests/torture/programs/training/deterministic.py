"""Deterministic algorithms, threads set by hand, flush of denormals, and the settings read back at
the end.
"""

import torch
from tiny import digest, train

torch.use_deterministic_algorithms(True)
torch.set_num_threads(2)
torch.set_num_interop_threads(1)
torch.set_flush_denormal(True)
torch.set_float32_matmul_precision("high")
net = train()
print(
    torch.are_deterministic_algorithms_enabled(),
    torch.get_num_threads(),
    torch.get_num_interop_threads(),
)
print(torch.get_float32_matmul_precision(), torch.is_grad_enabled(), torch.initial_seed())
digest(net)
