"""It takes modules out of sys.modules: its own, and every one of torch's that was not there before."""

import sys

import tiny
import torch

net = tiny.train()
before = set(sys.modules)
del sys.modules["torch"], sys.modules["tiny"]
tiny.digest(tiny.train(net))
sys.modules["torch"] = torch
sys.modules["__main__"].__dict__.pop("before")
again = __import__("tiny")
print(again is tiny, sorted(set(sys.modules["__main__"].__dict__) & {"before", "net"}))
again.digest(again.train())
