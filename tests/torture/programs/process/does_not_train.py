"""It imports torch and never trains; or never imports it at all."""

import sys

if len(sys.argv) > 1:
    import torch

    print("parameters", torch.ones(1).item())
print("no steps")
