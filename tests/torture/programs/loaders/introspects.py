"""Signatures, names, docs, modules and files of what a profiler might replace."""

import inspect

import torch
import torch.utils.data
from tiny import digest, train

digest(train())
for function in (
    torch.Tensor.to,
    torch.Tensor.cuda,
    torch.Tensor.backward,
    torch.save,
    torch.autograd.backward,
    torch.nn.Module.__call__,
    torch.utils.data.DataLoader.__init__,
    torch.utils.data.DataLoader.__iter__,
    torch.utils.data._utils.worker._worker_loop,
    torch.utils.data._utils.pin_memory.pin_memory,
    torch.optim.SGD.step,
    open,
):
    print(
        function.__name__,
        function.__qualname__,
        getattr(function, "__module__", None),
        len(function.__doc__ or ""),
    )
    try:
        print(inspect.signature(function), inspect.getsourcelines(function)[0][0].strip())
    except (TypeError, ValueError) as error:
        print(error)
print(torch.overrides.is_tensor_method_or_property(torch.Tensor.to))
