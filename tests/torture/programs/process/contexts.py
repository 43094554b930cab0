"""contextvars, thread locals and context managers of the training are where they were left, in
hooks and workers too.
"""

import contextvars
import threading

import torch
from tiny import Numbers, digest, network, sgd, step

variable = contextvars.ContextVar("variable", default="unset")
local = threading.local()
local.value = "main"


class Data(Numbers):
    def __getitem__(self, index):
        assert variable.get() == "set" and local.value == "main"
        return super().__getitem__(index)


variable.set("set")
net = network()
optimizer = sgd(net)
net[0].register_full_backward_hook(
    lambda *_: print(variable.get(), threading.current_thread() is threading.main_thread())
)
for x in torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=1):
    step(net, optimizer, x)
print(contextvars.copy_context().run(variable.get), local.value)
digest(net)
