"""It takes modules out of sys.modules, torch and its own among them, puts one back, and imports its
own again.
"""

import sys

import tiny
import torch

net = tiny.train()
del sys.modules["torch"], sys.modules["tiny"], sys.modules["torch.utils.data"]
print("torch" in sys.modules)
sys.modules["torch"] = torch
sys.modules["torch.utils.data"] = torch.utils.data
again = __import__("tiny")
print(again is tiny)
tiny.train(net)
again.digest(again.train(net))
